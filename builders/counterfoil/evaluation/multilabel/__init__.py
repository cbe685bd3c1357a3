"""Classifiers of several labels: their scores of images with conditions, what each shift costs them, and the files."""
