"""Read and check a dataset directory; every command that opens one reads it here."""

from counterfoil.dataset.reading import read_dataset
from counterfoil.dataset.standing import Fault, SoundDataset, StandingDataset

__all__ = ["Fault", "SoundDataset", "StandingDataset", "read_dataset"]
