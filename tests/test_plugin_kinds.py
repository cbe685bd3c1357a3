"""A kind of generator of an installed package, from a recipe to a verified dataset."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import count
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from counterfoil import registry
from counterfoil.errors import UserError
from counterfoil.recipe import load_recipe, load_recipe_text
from counterfoil.recipe.json_schema import recipe_json_schema
from counterfoil.testing import check_generator
from support.plugins import install, ran

SECTION = """
from typing import Literal
from pydantic import Field
from counterfoil.plugins import Column, GeneratorKind

class Stripes(GeneratorKind):
    \"\"\"Stripes of a colour a class.\"\"\"
    takes_rows = False
    prompted = False
    needs_screen = False
    holds = "pictures of stripes"
    row_columns = {"tilt": Column("float32", "How much the stripes lean.")}
    words = {"licence": "Stripes are free."}

    kind: Literal["stripes"] = "stripes"
    width: int = Field(default=4, ge=1, le=16, description="Width of a stripe in pixels.")

    def problem(self):
        return "found size with an odd width" if self.width % 2 and self.width > 1 else super().problem()

    @classmethod
    def maker(cls):
        from stripes_maker import Maker
        return Maker()
"""
MAKER = """
import numpy as np
from counterfoil.plugins import ImageMaker, ImageRenderer

class Renderer(ImageRenderer):
    def __init__(self, generator):
        self.width = generator.width

    def tilt(self, sample):
        lean = 0.0 if sample.shift == "base" else 0.5
        return lean + np.random.default_rng(sample.seed).integers(4) / 16

    def ahead(self, samples):
        down, across = np.mgrid[:32, :32]
        pictures = []
        for sample in samples:
            on = ((across + self.tilt(sample) * down) // self.width) % 2 == 0
            colour = np.array([20 * sample.label, 90, 200], dtype=np.uint8)
            pictures.append(np.where(on[..., None], colour, 255).astype(np.uint8))
        return lambda: pictures

    def values(self, samples):
        return [{"tilt": float(self.tilt(sample))} for sample in samples]

class Maker(ImageMaker):
    def renderer(self, materials):
        return Renderer(materials.recipe.generator)
"""
RECIPE = """
recipe: 1
name: striped
source:
  dataset: lab:wardrobe
  classes: [{id: "05", name: sandal, source_label: 5}, {id: "08", name: bag, source_label: 8}]
generator: {kind: stripes, width: 8}
prompts: {base: {}, shifts: {leaning: {}}}
samples: {candidates: 3}
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "installed"
    install(
        folder,
        monkeypatch,
        "stripes",
        {"counterfoil.generators": {"stripes": "stripes:Stripes"}},
        SECTION,
    )
    (folder / "stripes_maker.py").write_text(MAKER, encoding="utf-8")
    yield folder
    registry._points.cache_clear()
    for module in ("stripes", "stripes_maker"):
        sys.modules.pop(module, None)


def test_its_section_is_read_and_checked_as_those_of_our_own_kinds() -> None:
    recipe = load_recipe_text(RECIPE)
    assert recipe.generator.get("width") == 8 and "stripes_maker" not in sys.modules
    assert load_recipe_text(recipe.portable_yaml).plan_hash == recipe.plan_hash
    assert (
        load_recipe_text(RECIPE, ["generator.steps=null", "generator.width=2"]).plan_hash
        != recipe.plan_hash
    )
    for change, problem in {
        "generator.width=0": "found the number 0, expected a whole number from 1 to 16",
        "generator.wdith=3": "unknown key; did you mean 'width'?",
        "generator.steps=20": "found steps, expected none with kind stripes",
        "generator.width=3": "odd width",
        "generator.kind=strips": "did you mean 'stripes'?",
    }.items():
        with pytest.raises(UserError) as refused:
            load_recipe_text(RECIPE, [change])
        assert problem in str(refused.value)
    with pytest.raises(UserError, match="expected none with kind diffusers"):
        load_recipe("wardrobe-mini", ["generator.width=2"])
    assert "width" in recipe_json_schema()["$defs"]["Stripes"]["properties"]


def test_it_keeps_what_a_generator_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    check_generator(load_recipe_text(RECIPE))
    made = count()
    monkeypatch.setattr(
        import_module("stripes_maker").Renderer, "tilt", lambda self, sample: next(made) / 10
    )
    with pytest.raises(AssertionError, match="another batch"):
        check_generator(load_recipe_text(RECIPE))


def test_it_builds_a_dataset_that_says_what_made_it(
    tmp_path: Path, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    words = (
        "build",
        "recipe.yaml",
        "--out",
        "set",
        "--device",
        "cpu",
        "--workers",
        "1",
    )
    built = ran(tmp_path, installed, *words)
    assert built.returncode == 0, built.stderr
    tables = [
        pq.read_table(path) for path in sorted((tmp_path / "set" / "data").rglob("*.parquet"))
    ]
    rows = [row for table in tables for row in table.select(["shift", "tilt"]).to_pylist()]
    assert len(rows) == 12 and all(
        (row["tilt"] >= 0.5) == (row["shift"] == "leaning") for row in rows
    )
    lock = json.loads((tmp_path / "set" / "lock.json").read_text())
    assert lock["inputs"]["plugins"] == {"kind of generator stripes": "stripes"}
    assert lock["stack"]["versions"]["stripes"] == "1.2.3"
    card = (tmp_path / "set" / "README.md").read_text()
    assert (
        "pictures of stripes" in card
        and "the plugin `stripes`" in card
        and "Stripes are free." in card
    )
    assert "  " not in card.partition("\n# ")[2].partition("\n")[0]
    verified = ran(tmp_path, installed, "verify", "set")
    assert verified.returncode == 0, verified.stdout
    monkeypatch.undo()
    absent = ran(tmp_path, None, "show", "set")
    assert absent.returncode == 2 and "stripes" in absent.stderr
