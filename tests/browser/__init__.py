"""A learner at a real JupyterLab, in Debian's chromium."""
