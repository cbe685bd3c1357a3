"""Floor 3: input datasets, pinned and loaded by that pin, and labelled images of any origin."""

from counterfoil.sources.labelled_images import LabelledImages

__all__ = ["LabelledImages"]
