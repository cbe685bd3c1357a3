"""The small world for tests of mending, made once a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from mending.scenes_to_mend import World, build_scenes, mined_layer, save_source, write_recipe
from shared_datasets import Once


@pytest.fixture(scope="session")
def world(once_a_run: Once) -> World:
    def make(folder: Path) -> None:
        save_source(folder / "source")
        recipe = write_recipe(folder / "recipe.yaml")
        build_scenes(folder / "built", recipe, mined_layer())

    folder = once_a_run("scenes-to-mend", make)
    return World(folder / "recipe.yaml", folder / "built")
