"""Semantic segmenters that are named: trained models that give each pixel a class."""
