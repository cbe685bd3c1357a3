"""Multi-label classifiers: their scores on images with conditions, what each shift costs them, and
the files."""
