"""The small world for tests of mending and its model mended, each made once a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.documents import read_document
from counterfoil.mending.document import Mended
from counterfoil.mending.mend_models import MendResult
from mending.scenes_to_mend import (
    GRID,
    MODEL,
    World,
    build_scenes,
    mend_scenes,
    mined_layer,
    save_source,
    write_recipe,
)
from shared_datasets import Once


@pytest.fixture(scope="session")
def world(once_a_run: Once) -> World:
    def make(folder: Path) -> None:
        save_source(folder / "source")
        recipe = write_recipe(folder / "recipe.yaml")
        build_scenes(folder / "built", recipe, mined_layer())

    folder = once_a_run("scenes-to-mend", make)
    return World(folder / "recipe.yaml", folder / "built")


@pytest.fixture(scope="session")
def mended(world: World, once_a_run: Once) -> MendResult:
    """Return the ResNet mended with contexts and with balanced groups. Read only."""

    def make(out: Path) -> None:
        mend_scenes(
            world,
            out,
            world.using,
            lambdas=GRID,
            effects=True,
            save="best",
        )

    folder = once_a_run("mended-scenes", make)
    names = {"table": "mend.csv", "report": "report.html", "document": "mend.json"}
    files = {what: folder / name for what, name in names.items()}
    document = read_document(files["document"], Mended)
    return MendResult(folder, document, files, {MODEL: folder / "model"})
