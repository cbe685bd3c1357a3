"""The files of a dataset directory: shards, receipts, locks and the manifest, and their verification."""

from counterfoil.store.dataset_store import DatasetStore, ShardWriter
from counterfoil.store.manifest import verify_files
from counterfoil.store.reading import read_batches, read_receipts, read_rows
from counterfoil.store.receipts import Receipt, StoredFile
from counterfoil.store.rows import Candidate

__all__ = [
    "Candidate",
    "DatasetStore",
    "Receipt",
    "ShardWriter",
    "StoredFile",
    "read_batches",
    "read_receipts",
    "read_rows",
    "verify_files",
]
