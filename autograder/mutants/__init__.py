"""Planted answers for each check: wrong ones that it must refuse, right ones that it must take."""
