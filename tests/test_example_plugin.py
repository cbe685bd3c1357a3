"""The example plugin, installed by pip: what it registers is in recipe, schema, build, card, report
and gate."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from counterfoil.errors import UserError
from counterfoil.recipe import load_recipe_text
from support.plugins import ran

PLUGIN = Path(__file__).parents[1] / "examples" / "plugin"
RECIPE = """
recipe: 1
name: dead-pixels
source:
  dataset: lab:wardrobe
  classes: [{id: "05", name: sandal, source_label: 5}, {id: "08", name: bag, source_label: 8}]
generator: {kind: corrupt, split: validation}
prompts: {shifts: {dead: {corruption: dead_pixels, severity: 5}}}
samples: {candidates: 12}
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    pip = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
    )
    copied = tmp_path_factory.mktemp("source")
    for path in PLUGIN.glob("*.*"):
        (copied / path.name).write_bytes(path.read_bytes())
    subprocess.run([*pip, "--target", str(folder), str(copied)], check=True)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / "means.json").write_text(
        json.dumps({"sandal": [0.6, 0.5, 0.4], "bag": [0.3, 0.3, 0.3]})
    )
    return folder


def test_it_stands_everywhere_without_a_change_to_the_package(folder: Path, plugin: Path) -> None:
    built = ran(folder, plugin, "build", "recipe.yaml", "--out", "set")
    assert built.returncode == 0, built.stderr
    card = (folder / "set" / "README.md").read_text()
    assert "Sets some pixels to black" in card
    lock = json.loads((folder / "set" / "lock.json").read_text())
    assert lock["inputs"]["plugins"] == {"corruption dead_pixels": "counterfoil-example"}
    assert lock["stack"]["versions"]["counterfoil-example"] == "0.1.0"
    (folder / "gate.yaml").write_text("- confident_errors(base) <= 100\n")
    options = (
        "--models",
        "mean-colour:./means.json",
        "--gate",
        "gate.yaml",
        "--into-card",
        "--out",
        "evaluation",
    )
    evaluated = ran(folder, plugin, "evaluate", "set", *options)
    assert evaluated.returncode == 0, evaluated.stdout + evaluated.stderr
    report = (folder / "evaluation" / "report.html").read_text()
    assert "Confident errors" in report
    assert "means.json" in report
    assert "Confident errors" in (folder / "set" / "README.md").read_text()
    robustness = (folder / "evaluation" / "robustness.csv").read_text()
    assert "confident_errors" in robustness.splitlines()[0]

    without = ran(folder, None, "verify", "set")
    assert without.returncode == 1
    assert (
        "its 'corruption dead_pixels' is of the package 'counterfoil-example'"
        in without.stdout + without.stderr
    )


def test_a_recipe_that_names_no_installed_plugin_is_refused() -> None:
    with pytest.raises(UserError, match="found 'dead_pixels', expected the name of a corruption"):
        load_recipe_text(RECIPE)
