"""Detectors: their answers to images with objects, what each shift costs them, and the files that say so."""
