"""Rendering samples with a diffusion pipeline; rows of a pool instead, corrupted rows, or edits of
rows."""
