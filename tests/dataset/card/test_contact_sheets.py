"""Contact sheets show pairs first, stay small, and read little."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import pytest
from card_cases import COLOURS, Built, build, plan_of
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from counterfoil.dataset.card.contact_sheets import (
    LARGEST,
    MOST_CLASSES,
    MOST_COLUMNS,
    PAIRS_A_CLASS,
    TALLEST,
    WIDEST,
    SampleId,
    Tally,
    evenly_spaced,
    font,
    locate_pictures,
    overview_row,
    pairs_first,
    tally_of,
    wrapped,
)
from counterfoil.errors import RunFailure
from counterfoil.store.reading import read_receipts

INDICES = st.sets(st.integers(0, 40), max_size=20)


def tally(**accepted: set[int]) -> Tally:
    return Tally(
        {
            (shift, 0): sum(1 << index for index in indices)
            for shift, indices in accepted.items()
            if indices
        }
    )


@given(INDICES, INDICES)
def test_a_tally_is_a_set_of_indices(base: set[int], snow: set[int]) -> None:
    counted = tally(base=base, snow=snow)
    assert list(counted.indices("snow", 0)) == sorted(snow)
    assert counted.count("snow", 0) == len(snow)
    assert counted.pairs("snow", 0) == len(snow & base)
    assert [index for index in range(45) if counted.has("base", 0, index)] == sorted(base)


@given(INDICES, INDICES)
def test_pairs_come_before_images_without_a_base(base: set[int], snow: set[int]) -> None:
    shown = pairs_first(tally(base=base, snow=snow), "snow", 0)
    assert len(shown) == min(PAIRS_A_CLASS, len(snow))
    assert all(shifted.index in snow for _, shifted in shown)
    assert [base_place is None for base_place, _ in shown] == sorted(b is None for b, _ in shown)
    assert sum(b is not None for b, _ in shown) == min(PAIRS_A_CLASS, len(base & snow))
    assert all(b is None or (b.index == s.index and b.index in base) for b, s in shown)


@given(INDICES, INDICES, INDICES)
def test_a_row_of_the_overview_keeps_to_one_index(
    base: set[int], snow: set[int], rain: set[int]
) -> None:
    row = overview_row(tally(base=base, snow=snow, rain=rain), 0, ["base", "snow", "rain"])
    for sample, indices in zip(row, (base, snow, rain), strict=True):
        assert (sample is None) == (not indices)
        assert sample is None or sample.index in indices
    if common := base & snow & rain:
        assert {sample.index for sample in row if sample} == {min(common)}


@given(st.integers(1, 200), st.integers(1, 30))
def test_what_is_left_out_is_left_out_evenly(count: int, most: int) -> None:
    chosen = evenly_spaced(range(count), most)
    assert len(chosen) == min(count, most)
    assert chosen == sorted(set(chosen))
    assert chosen[0] == 0
    if len(chosen) > 2:
        gaps = [after - before for before, after in itertools.pairwise(chosen)]
        assert max(gaps) - min(gaps) <= 1
        assert chosen[-1] == count - 1


@given(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=60),
    st.integers(40, 300),
)
def test_text_stays_in_its_box(text: str, width: int) -> None:
    lines = wrapped(text, 12, width, 3)
    assert len(lines) <= 3
    assert all(font(12).getlength(line) <= width for line in lines)


def test_sheets_stay_small_for_many_classes_and_large_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classes = ", ".join(
        f"{{id: c{n}, name: class number {n}, source_label: {n}}}" for n in range(13)
    )
    fewer = ("samples.candidates=2", "prompts.shifts.rain=null", "prompts.shifts.nowhere=null")
    plan = plan_of(f"source.classes=[{classes}]", *fewer)
    monkeypatch.setattr("card_cases.picture.__defaults__", (300,))
    figures = build(tmp_path, plan, judge=lambda sample: "accepted").figures
    assert set(figures) == {
        "contact-sheet.webp",
        "shift-snow.webp",
        "shift-starry.webp",
    }
    for content in figures.values():
        with Image.open(io.BytesIO(content)) as sheet:
            assert sheet.width <= WIDEST
            assert sheet.height <= 1.3 * TALLEST
        assert len(content) < 500_000


def test_a_picture_is_that_of_its_place(cranes: Built) -> None:
    receipts = read_receipts(cranes.directory)
    counted = tally_of(cranes.directory, cranes.plan, receipts)
    samples = [
        SampleId(shift, label, next(counted.indices(shift, label)))
        for shift, label in counted.accepted
    ]
    pictures = locate_pictures(cranes.directory, cranes.plan, receipts, counted.accepted)
    shown = pictures.read(samples)
    assert set(shown) == set(samples)
    for sample, picture in shown.items():
        assert max(picture.size) <= LARGEST
        x = 2 + sample.index % 10 + 6
        assert picture.getpixel((x, 10)) == tuple(bytes.fromhex(COLOURS[sample.label][1:]))


def test_an_image_that_does_not_open_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("card_cases.picture", lambda sample, format: b"no image")
    with pytest.raises(RunFailure, match=r"data/.*parquet: \w+: cannot be opened as an image"):
        build(tmp_path, plan_of())


def test_the_overview_has_room_for_the_shifts_of_the_paper() -> None:
    assert MOST_COLUMNS == 24
    assert MOST_CLASSES >= 10
