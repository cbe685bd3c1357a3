"""Detectors: their detections on images, what each shift costs them, and the files with the
results."""
