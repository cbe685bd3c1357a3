"""Floor 5: whole builds: a recipe becomes a dataset directory, shard by shard, on one or many workers."""

from counterfoil.building.build_dataset import BuildProgress, BuildResult, build, build_part_steps, build_steps
from counterfoil.building.part_result import PartResult

__all__ = ["BuildProgress", "BuildResult", "PartResult", "build", "build_part_steps", "build_steps"]
