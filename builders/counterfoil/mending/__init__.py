"""Mend a classifier: refit its head with rendered images, and compare it with controls."""
