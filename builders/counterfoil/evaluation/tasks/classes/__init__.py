"""Classifiers that give each image one class."""
