"""The checks, a module for each chapter: visible trials, and the hidden tests beside them."""
