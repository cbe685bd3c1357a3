"""Corrupt photographs: the published common corruptions, and faults of cameras and of image
pipelines."""
