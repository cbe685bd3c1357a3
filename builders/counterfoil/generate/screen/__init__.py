"""Screen images by CLIP scores and thresholds, and doubt a CLIP that may not know the classes."""
