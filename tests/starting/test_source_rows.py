"""`check` finds in the input dataset of a recipe what a build of the recipe finds there."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from counterfoil.building.build_dataset import build
from counterfoil.cli.main import app
from counterfoil.data import pictures
from counterfoil.recipe import load_recipe
from counterfoil.starting.source_rows import look_at_source
from counterfoil.store.reading import read_rows
from drawn_folders import draw_folder
from support.images import encoded

HEAD = "recipe: 1\nname: own\nlicense: other\n"
SHIFTS = "prompts: {shifts: {fog: {corruption: fog, severity: 3}}}\nsamples: {candidates: 5}\n"


def written(recipe: Path, source: str) -> Path:
    recipe.write_text(
        f"{HEAD}source: {source}\ngenerator: {{kind: corrupt, split: train}}\n{SHIFTS}"
    )
    return recipe


def of_classes(folder: Path) -> Path:
    """Write a recipe for 7 ladders, 5 mugs of which one is cut off, and 2 stars."""
    for name, count in (("ladder", 7), ("mug", 5), ("star", 2)):
        draw_folder(folder / "photos", (name,), count, splits=("",))
    cut = folder / "photos" / "mug" / "004.png"
    cut.write_bytes(cut.read_bytes()[:300])
    return written(
        folder / "own.yaml", f"{{dataset: {folder / 'photos'}, validation_split: train}}"
    )


def of_conditions(folder: Path, columns: str) -> Path:
    """Write a recipe for three faces, whose conditions are columns of a table beside them."""
    (folder / "faces").mkdir()
    lines = ["file_name,smiling,glasses"]
    for number in range(3):
        (folder / "faces" / f"{number}.png").write_bytes(encoded((9 * number, 9, 9), side=32))
        lines.append(f"{number}.png,{number % 2},1")
    (folder / "faces" / "metadata.csv").write_text("\n".join(lines) + "\n")
    return written(
        folder / "own.yaml",
        f"{{dataset: {folder / 'faces'}, validation_split: train, conditions: {{columns:"
        f" [{columns}]}}}}",
    )


def check(recipe: Path) -> tuple[dict[str, Any], str]:
    done = CliRunner().invoke(app, ["check", str(recipe), "--json"])
    return json.loads(done.stdout), str(done.exception or "")


@pytest.mark.parametrize("conditions", [False, True])
def test_a_build_makes_as_many_samples_as_check_says(tmp_path: Path, conditions: bool) -> None:
    recipe = of_conditions(tmp_path, "smiling, glasses") if conditions else of_classes(tmp_path)
    document, _ = check(recipe)
    assert document["exact"] is True
    built = build(recipe, tmp_path / "built", device="cpu", workers=1)
    counts = {shift: sum(reasons.values()) for shift, reasons in built.counts.items()}
    assert {shift["shift"]: shift["samples"] for shift in document["shifts"]} == counts
    assert counts["fog"] == (3 if conditions else 5 + 4 + 2)


def test_images_that_were_not_decoded_make_the_number_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = of_classes(tmp_path)
    monkeypatch.setattr(pictures, "MOST_LOOKED_AT", 3)
    document, _ = check(recipe)
    assert (document["exact"], document["samples"]) == (False, 2 * (5 + 5 + 2))
    assert "at most 24" in CliRunner().invoke(app, ["check", str(recipe)]).stdout


def test_check_names_a_misspelt_column_where_it_stands_and_the_columns_that_exist(
    tmp_path: Path,
) -> None:
    document, message = check(of_conditions(tmp_path, "smilng, glasses"))
    assert document["buildable"] is False and document["exact"] is False
    assert (
        "source.conditions.columns: " in message
        and "no column 'smilng'; did you mean 'smiling'?" in message
    )
    assert "Its columns are image, smiling, glasses." in message


@pytest.mark.parametrize(
    "missing", ["generator.split=dev", "source.label_column=kind", "source.image_column=photo"]
)
def test_check_names_other_things_that_a_folder_lacks(tmp_path: Path, missing: str) -> None:
    recipe = load_recipe(
        of_classes(tmp_path), [missing, "source.classes=[{name: mug, source_label: 1}]"]
    )
    lacks = [lack for lack in look_at_source(recipe).lacks if lack.weight == "missing"]
    assert any(missing.partition("=")[2] in lack.text for lack in lacks), lacks


def test_a_note_and_a_problem_have_the_key_that_they_are_about(tmp_path: Path) -> None:
    blank = ["source.conditions.blank=absent"]
    faces = load_recipe(of_conditions(tmp_path, "smiling, glasses"), blank)
    table = tmp_path / "faces" / "metadata.csv"
    table.write_text(table.read_text().replace("2.png,0,1", "2.png,,1"))
    (note,) = look_at_source(faces).lacks
    assert (note.key, note.weight) == ("source.conditions", "optional")
    assert note.text == "1 of 6 labels are blank and count as absent"
    recipe = of_classes(tmp_path)
    for star in (tmp_path / "photos" / "star").iterdir():
        star.write_bytes(star.read_bytes()[:300])
    stars = ["source.classes=[{name: ladder, source_label: 0}, {name: star, source_label: 2}]"]
    lacks = look_at_source(load_recipe(recipe, stars)).lacks
    (problem,) = [lack for lack in lacks if lack.key == "source"]
    assert problem.weight == "missing" and problem.text.startswith(
        "class 'star' (star) has no image"
    )


def test_a_dataset_of_the_hub_is_not_looked_at_and_check_says_so(tmp_path: Path) -> None:
    recipe = load_recipe(of_conditions(tmp_path, "smiling"), ["source.dataset=someone/faces"])
    source = look_at_source(recipe)
    assert not source.exact and source.table is None
    assert [lack.weight for lack in source.lacks] == ["optional"]
    assert "its columns and its number of images are unchecked" in source.lacks[0].text


@pytest.mark.parametrize(("limit", "real"), [(60, 11), (10, 8)])
def test_a_preview_says_how_many_images_it_has(tmp_path: Path, limit: int, real: int) -> None:
    """Take a limit above what the folder has, and one that is no multiple of the number of
    classes."""
    recipe = of_classes(tmp_path)
    words = ["--limit", str(limit), "--workers", "1", "--out", str(tmp_path / "built")]
    done = CliRunner().invoke(app, ["build", str(recipe), *words])
    counts = Counter(row["shift"] for row in read_rows(tmp_path / "built", ["shift"]))
    assert counts == {"base": real, "fog": real}
    sentence = f"A preview of {real} images a shift."
    for text in (
        done.output,
        *((tmp_path / "built" / page).read_text() for page in ("README.md", "index.html")),
    ):
        assert sentence in text
