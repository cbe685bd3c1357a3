"""The way in: a recipe proposed for one's own images, and what a recipe lacks on this machine."""
