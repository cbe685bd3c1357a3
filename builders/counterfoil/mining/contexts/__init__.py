"""Contexts that a class may appear in: proposed by lists and chat models, chosen by CLIP on a few failures."""
