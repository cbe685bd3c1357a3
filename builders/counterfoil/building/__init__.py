"""Build whole datasets: turn a recipe into a dataset directory, shard by shard, on one or many
workers."""
