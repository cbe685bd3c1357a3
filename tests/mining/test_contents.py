"""Equal images lie in one half, whatever their units; what a pass over the images tells of them is not read again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mined_scenes import answer, recipe_sets, save_split, scenes

from counterfoil.mining.audited import audit_target
from counterfoil.mining.contents import ContentsSeen
from counterfoil.recipe import load_recipe
from counterfoil.sources import LabelledImages

SHOWN = scenes(0, 12)


@pytest.mark.parametrize("seed", range(4))
def test_an_image_under_two_units_is_in_one_half(seed: int, tmp_path: Path) -> None:
    shown = [*SHOWN, SHOWN[0], SHOWN[1]]  # copies, filed under other names
    units = [f"patient {row // 2}" for row in range(len(shown))]
    save_split(tmp_path / "data", "validation", shown, label=[one.label for one in shown], patient=units)
    target = answer(tmp_path / "answers.csv", shown, lambda one: False)
    sets = [*recipe_sets(tmp_path / "data"), "source.unit_column=patient", f"mine.seed={seed}"]
    recipe = load_recipe("wardrobe-mini", [*sets, f"mine.target={target}"])
    assert recipe.mine is not None
    (audited,), _, _ = audit_target(recipe, recipe.mine, "cpu")
    discover = np.isin(np.arange(len(shown)), audited.halves.discover)
    assert discover[0] == discover[1] == discover[12] == discover[13]
    assert 0 < discover.sum() < len(shown)
    assert audited.dealt_by == "unit"


def test_rows_are_read_once_whoever_reads_them(tmp_path: Path) -> None:
    read: list[str] = []

    def reading(wanted: frozenset[str] | None) -> Iterator[tuple[str, bytes | None]]:
        for row, key in enumerate(("a", "b", "c")):
            if wanted is None or key in wanted:
                read.append(key)
                yield key, None if key == "c" else bytes([row // 2])

    nothing = np.zeros(3, np.int64)
    images = LabelledImages("three", "0" * 64, ("a", "b", "c"), nothing, nothing, ("all",), reading)
    seen = ContentsSeen(images, tmp_path)
    assert [key for key, _ in seen.images.images(frozenset("ac"))] == ["a", "c"]
    contents = seen.known()
    assert contents[0] == contents[1] != contents[2]
    assert sorted(read) == ["a", "b", "c"]
    assert ContentsSeen(images, tmp_path).known() == contents
    assert sorted(read) == ["a", "b", "c"]
    other = replace(images, content="1" * 64, keys=("a", "b"))
    assert ContentsSeen(other, tmp_path).known() == contents[:2]
