"""Floor 3: input datasets, pinned and loaded by that pin, and labelled images of any origin."""

from counterfoil.sources.labelled_images import LabelledImages, rows_of, thinned
from counterfoil.sources.labelled_sources import Reference, labelled_source, labelled_split

__all__ = ["LabelledImages", "Reference", "labelled_source", "labelled_split", "rows_of", "thinned"]
