"""The checks, a module for each chapter: visible trials, and the hidden ones, nbgrader's hidden tests."""
