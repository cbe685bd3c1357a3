"""The files of a dataset directory: shards, receipts, locks and the manifest, and their
verification."""
