"""The plan of a recipe (cells, samples, seeds, keys, shards) and what it will cost."""
