"""Floor 5: whole builds: a recipe becomes a dataset directory, shard by shard, on one or many workers."""

from counterfoil.building.build_dataset import BuildProgress, BuildResult, build, build_steps

__all__ = ["BuildProgress", "BuildResult", "build", "build_steps"]
