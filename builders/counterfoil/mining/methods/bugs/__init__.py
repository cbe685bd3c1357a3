"""Discovering bugs (Wiles 2022): descriptions of failures in generated images, each tested on new pairs of images.

A description is fixed before any image of its test is rendered, and each round has a seed of its own purpose and
number. A pair counts if the screen accepts both images; pairs of one class share base images. All hypotheses of a run,
shortened and tried ones included, are one family of e-values. A finding is confirmed if e-BH rejects it, it was not
given up as futile, and it fails by the margin or more.
"""

from __future__ import annotations
