"""Findings tested on images that exist: of a planted world the planted one is confirmed, on rows that named nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import datasets
import numpy as np
import pytest
from small_search import DRAWN, RECIPE, files_of, findings_of

from counterfoil import mine_again
from counterfoil.errors import UserError
from counterfoil.mining.audited import Audited
from counterfoil.mining.bugs.descriptions import Description, Piece
from counterfoil.mining.bugs.photographs import find_on_photographs
from counterfoil.mining.bugs.trials import BugHypothesis
from counterfoil.mining.findings import Finding, Findings
from counterfoil.models.clip import load_clip
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.schema_mine import BugsSettings, Mine
from counterfoil.sources.labelled_sources import labelled_split

# Planted: sneakers come with the road in training; a third of them are elsewhere in every other split.
WORLD = "lab:planted/correlation-0"
SNEAKERS = "source.classes=[{{id: '07', name: sneaker, source_label: {}}}]"
ROWS = 240
ELSEWHERE, AT_HOME = "in the grass", "on the road"


def hypothesis(words: str) -> BugHypothesis:
    return BugHypothesis(f"sneaker_{words.replace(' ', '_')}", 0, Description((Piece(words, "after"),)))


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """The first sneakers of the world's validation split, as a dataset without another split."""
    world = load_recipe("wardrobe-star", [f"source.dataset={WORLD}", SNEAKERS.format(7), "tokens=null"])
    split = labelled_split(world.source, "validation", world.classes)
    folder = tmp_path_factory.mktemp("photographs") / "data"
    folder.mkdir()
    images = [{"bytes": image, "path": None} for _, image in split.images(frozenset(split.keys[:ROWS]))]
    assert split.units is not None
    table = datasets.Dataset.from_dict(
        {"image": images, "label": [0] * ROWS, "garment": [str(one) for one in split.units[:ROWS]]}
    )
    table.cast_column("image", datasets.Image()).to_parquet(str(folder / "validation.parquet"))
    return load_recipe("wardrobe-star", [f"source.dataset={folder}", SNEAKERS.format(0), "tokens=null"])


@pytest.fixture(scope="module")
def tested(recipe: Recipe) -> tuple[Findings, Audited]:
    mine, settings = Mine(method="bugs", target=WORLD, on=("validation",)), BugsSettings(captioner="lab:captioner")
    asked = [hypothesis(words) for words in (ELSEWHERE, AT_HOME)]
    findings, audited, relabel = find_on_photographs(asked, recipe, mine, settings, "cpu")
    assert relabel is None, "their labels are right"
    return findings, audited


def finding_of(findings: Findings, words: str) -> Finding:
    return next(one for one in findings.findings if one.name == hypothesis(words).name)


def test_what_was_planted_is_confirmed_and_where_the_class_is_at_home_is_not(tested: tuple[Findings, Audited]) -> None:
    findings, _ = tested
    elsewhere, home = finding_of(findings, ELSEWHERE), finding_of(findings, AT_HOME)
    assert elsewhere.confirmed and not home.confirmed and findings.tested == 2
    assert elsewhere.difference.value is not None and elsewhere.difference.value > 0.2
    assert home.difference.value is not None and home.difference.value < 0.05
    assert (elsewhere.words, elsewhere.caption) == ("sneaker in the grass", "a photo of a sneaker in the grass")
    assert {one.tested_on for one in findings.findings} == {"rows"} and findings.whitened_by is None


@pytest.mark.parametrize("words", [ELSEWHERE, AT_HOME])
def test_its_set_is_the_nearest_rows_of_the_half_that_cut_nothing_off(
    words: str, recipe: Recipe, tested: tuple[Findings, Audited]
) -> None:
    findings, audited = tested
    one = finding_of(findings, words)
    clip = load_clip(recipe.screen.clip, recipe.screen.weights, "cpu")
    cosines = audited.features @ np.asarray(clip.embed_texts([one.caption]), np.float32)[0]
    confirm = audited.halves.confirm
    nearest = confirm[np.argsort(-cosines[confirm], kind="stable")]
    assert findings.halves is not None and findings.halves.confirm.rows == len(confirm)
    assert one.set.rows + one.rest.rows == len(confirm) and one.set.rows > 0
    assert one.set.failures == audited.failed[nearest[: one.set.rows]].sum()
    assert one.rest.failures == audited.failed[nearest[one.set.rows :]].sum()
    keys = {half: {audited.keys[row] for row in rows} for half, rows in (
        ("discover", audited.halves.discover), ("confirm", confirm),
    )}  # fmt: skip
    assert one.evidence and all(piece.key in keys[piece.half] for piece in one.evidence)


def test_the_folder_of_a_search_gets_it_beside_what_is_there(small_search: Path, tried: Path, tmp_path: Path) -> None:
    folder, rounds = tmp_path / "mined", small_search / "rounds"
    shutil.copytree(tried, folder, ignore=shutil.ignore_patterns("rounds", "tries"))
    before = files_of(folder)
    first = str(rounds / "01" / "dataset")
    for _ in range(2):
        found = mine_again(folder, RECIPE, on=[first], overrides=DRAWN, device="cpu").findings
    assert {one.name for one in found.findings} == {one.name for one in findings_of(tried).standing} != set()
    assert [one.rows for one in found.on] == [findings_of(tried).rounds[0].accepted]
    inside = folder / "again" / "wardrobe_bugs_dataset"
    assert files_of(folder) == before and findings_of(inside) == found
    # What exists is drawn by no recipe.
    assert files_of(inside).keys() == {"findings.json", "findings.csv", "report.html"}
    written = files_of(inside)
    assert not any(str(tmp_path).encode() in content for content in written.values())
    with pytest.raises(UserError, match="holds what was found on other images than"):
        mine_again(folder, RECIPE, on=[str(rounds / "02" / "dataset")], overrides=DRAWN, device="cpu")
    with pytest.raises(UserError, match="is no split of the source and no built dataset"):
        mine_again(folder, RECIPE, on=[str(tmp_path)], overrides=DRAWN, device="cpu")
    assert files_of(inside) == written
