"""Propose a recipe for a user's own images, and list what a recipe lacks on this machine."""
