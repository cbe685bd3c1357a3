"""Read and check a dataset directory; every command that opens one reads it here."""

from counterfoil.dataset.reading import Fault, SoundDataset, StandingDataset, read_dataset

__all__ = ["Fault", "SoundDataset", "StandingDataset", "read_dataset"]
