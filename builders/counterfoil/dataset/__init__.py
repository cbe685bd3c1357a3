"""Read and check a dataset directory; every command that opens one reads it here."""
