"""Submissions -> reports: found, put into our skeleton, run, marked, many at once, kept."""
