"""Mending a classifier: its head fitted again with drawn images, and judged beside what any refit gains."""
