"""Failures of a class as a direction in CLIP's space (Jain 2023): fitted, named by captions, turned into hypotheses."""
