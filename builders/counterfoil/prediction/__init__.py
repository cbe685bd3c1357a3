"""Compute classifiers' answers to labelled images, cache them by content, and resume a stopped
run."""
