"""Build whole datasets: turn a recipe into a dataset directory, shard by shard, on one or many workers."""

from counterfoil.building.build_dataset import BuildProgress, BuildResult, PartResult, build

__all__ = ["BuildProgress", "BuildResult", "PartResult", "build"]
