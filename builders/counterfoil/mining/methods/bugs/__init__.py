"""Discovering bugs (Wiles 2022): descriptions of failures in generated images, each tested on new
pairs of images.

A description is fixed before any image of its test is rendered. The seed of a round depends on its
purpose and number. A pair counts if the screen accepts both of its images. Pairs of one class share
base images. All hypotheses of a run are one family of e-values, including shortened hypotheses and
those that a person tried. A finding is confirmed if e-BH rejects its null hypothesis, its test was
not given up as futile, and its failure rate exceeds the base's by at least the margin.
"""

from __future__ import annotations
