"""Whole builds: a recipe becomes a dataset directory, shard by shard, on one or many workers."""

from counterfoil.building.build_dataset import BuildProgress, BuildResult, PartResult, build

__all__ = ["BuildProgress", "BuildResult", "PartResult", "build"]
