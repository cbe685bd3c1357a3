"""`mine --limit`: some rows of each split, evenly over classes, and every file says so."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from mined_examples import OVERRIDES, WORLD, mine_sneakers

from counterfoil.data.open_source import open_source
from counterfoil.documents import parse_document
from counterfoil.errors import UserError
from counterfoil.mining.audited import opened_images
from counterfoil.mining.findings import Findings
from counterfoil.recipe import load_recipe
from counterfoil.recipe.schema_mine import Mine
from counterfoil.report.words import preview_sentence
from shared_datasets import Once

DRAWING = (
    "mine.settings.permutations=null",
    "mine.settings.captioner=lab:captioner",
    "mine.settings.classes=['07']",
)


def test_it_audits_so_many_rows_and_says_so(tmp_path: Path) -> None:
    result = mine_sneakers(tmp_path, "mine.settings.permutations=null", method="slices", limit=60)
    findings = result.findings
    sentence = preview_sentence(60, "part")
    assert [images.rows for images in findings.on] == [60]
    assert findings.preview == 60
    assert (
        findings.halves is not None
        and findings.halves.discover.rows + findings.halves.confirm.rows == 60
    )
    assert (
        parse_document(Findings, result.files["findings"].read_bytes(), "findings.json") == findings
    )
    assert (
        sentence in result.files["report"].read_text()
        and sentence in (tmp_path / "index.html").read_text()
    )
    with result.files["table"].open(newline="") as file:
        table = csv.DictReader(file)
        assert table.fieldnames is not None
        assert table.fieldnames[-1] == "preview"
        assert {line["preview"] for line in table} == ({"60"} if findings.findings else set())
    with pytest.raises(UserError, match="holds findings of another images"):
        mine_sneakers(tmp_path, "mine.settings.permutations=null", method="slices", limit=30)


def test_every_split_gives_rows_of_all_classes() -> None:
    recipe = load_recipe("wardrobe-star", OVERRIDES)
    source = open_source(recipe.source)
    (whole,), _ = opened_images(recipe, Mine(target=WORLD), source)
    parts, _ = opened_images(
        recipe, Mine(target=WORLD, on=("validation", "test"), limit=11), source
    )
    assert [len(part) for part in parts] == [11, 11]
    assert {part.preview for part in parts} == {11}
    assert all(sorted(sum(part.labels == label) for label in (0, 1)) == [5, 6] for part in parts)
    assert set(parts[0].keys) < set(whole.keys)
    assert whole.preview is None
    assert parts[0].content != whole.content


def test_a_method_that_draws_takes_none(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match="--limit: the method 'bugs' draws the images that it audits"
    ):
        mine_sneakers(tmp_path, *DRAWING, method="bugs", limit=60, on=None)


def test_a_whole_document_has_no_such_key(once_a_run: Once) -> None:
    mined = once_a_run("mined-sneakers", mine_sneakers)
    assert "preview" not in json.loads((mined / "findings.json").read_text())
