"""How near an edit is to its row: measured of what is stored, cut by as by any score, and counted as a build does."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from counterfoil.calibration.recut_dataset import recut
from counterfoil.calibration.scores import scores_of
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.world import render
from counterfoil.models.clip import load_clip
from counterfoil.recipe import load_recipe
from counterfoil.store.reading import read_receipts, read_shard
from counterfoil.store.rows import TableForm
from counterfoil.verification import verify
from tiny_builds import images, published, tiny

KEEP = "screen.keep=[{{same_image: {}}}, thresholds]"
EDITS = (
    "generator={kind: edit, split: validation, model: lab:sd, steps: 2, guidance: 3.0, batch_size: 4, dtype: float32}",
    "generator.size=null",
    "prompts.shifts.pencil_sketch=null",
    "prompts.shifts.in_the_snow=null",
    "screen.keep_rejected=true",
)
Built = Callable[[str], Path]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A build with this setting of the rule, once."""
    made: dict[str, Path] = {}

    def build(setting: str) -> Path:
        if setting not in made:
            made[setting] = tmp_path_factory.mktemp("similarity") / "dataset"
            tiny(made[setting], *EDITS, KEEP.format(setting))
        return made[setting]

    return build


def candidates(out: Path) -> list[dict[str, Any]]:
    """Every candidate's row, with the columns that only some recipes ask for."""
    form = TableForm.of(load_recipe(out / "recipe.yaml"))
    columns = ["key", "shift", "source_row", "source_similarity", "reason"]
    return [row for one in read_receipts(out) for row in read_shard(out, one, columns, "candidates", form)]


def test_it_is_the_cosine_of_what_is_stored_and_its_row(built: Built) -> None:
    out = built("{}")
    rows = candidates(out)
    stored = images(out)
    clip = load_clip("lab:clip", None, "cpu")
    seen = clip.embed_images([Image.open(io.BytesIO(stored[row["key"]])) for row in rows], 4)
    sources = clip.embed_images(
        [Image.fromarray(render(wardrobe_scene("validation", row["source_row"]))) for row in rows], 4
    )
    found = np.array([row["source_similarity"] for row in rows])
    np.testing.assert_allclose(found, (seen * sources).sum(1), atol=1e-5)
    base = np.array([row["shift"] == "base" for row in rows])
    # What is drawn under its own words is nearer to itself than what is drawn red.
    assert found[base].mean() > found[~base].mean()
    assert {row["reason"] for row in rows} == {"accepted"}
    assert verify(out).whole


def test_a_cut_by_it_is_a_fresh_build_and_the_page_counts_alike(built: Built, tmp_path: Path) -> None:
    loose = built("{}")
    found = sorted(row["source_similarity"] for row in candidates(loose) if row["shift"] == "red")
    middle = round(found[len(found) // 2], 3)
    keep = [{"same_image": {"similarity": middle}}, "thresholds"]
    cut = tmp_path / "cut.yaml"
    cut.write_text(json.dumps({"screen": {"keep": keep}}))
    recut(loose, cut, tmp_path / "cut")
    strict = built(f"{{similarity: {middle}}}")
    assert published(tmp_path / "cut") == published(strict)
    reasons = [row["reason"] for row in candidates(strict) if row["shift"] == "red"]
    assert {"accepted", "other_image"} == set(reasons)
    recipe = load_recipe(strict / "recipe.yaml")
    (red,) = scores_of(strict, recipe, read_receipts(strict), ["red"])
    assert red.accepted_at(-1) == reasons.count("accepted")
