"""Discovering bugs (Wiles 2022): descriptions of failures in generated images, each tested in pairs with fresh ones.

The search is pure: who draws and who describes is given to it, and the same answers give the same search, so that an
interrupted run resumes when it is run again. A description is fixed before any image of its test is drawn; every
round has a seed of its own purpose and number. A pair counts where the screen accepts both images, and pairs of one
class share base images. E-values of a run are one family, tried ones and shorter ones included: who adds a
hypothesis judges all of them again. Confirmed is what e-BH rejects, was not given up as futile, and fails by the
margin or more.
"""

from __future__ import annotations
