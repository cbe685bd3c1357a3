"""Floor 3: the Hugging Face Hub from the outside: names of datasets there, and where a dataset's directory is."""

from counterfoil.hub.locating import LocatedDataset, locate_dataset
from counterfoil.hub.references import DatasetReference

__all__ = ["DatasetReference", "LocatedDataset", "locate_dataset"]
