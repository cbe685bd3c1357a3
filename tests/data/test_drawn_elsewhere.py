"""Images drawn elsewhere become samples by class, shift and seed; only files of their folder are
opened."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from counterfoil.data import listed_folders
from counterfoil.data.drawn_elsewhere import GivenRows, given_rows
from counterfoil.data.pool import pin_pool, pool_rows
from counterfoil.errors import CounterfoilError, RunFailure, UserError, quoted
from counterfoil.plan.layout import RowTable, make_plan
from counterfoil.recipe import load_recipe
from counterfoil.recipe.rows_table import MOST_SEED
from support.images import encoded
from support.refusals import refuses, states
from tiny_builds import CLASSES

PNG = encoded(np.zeros((8, 8, 3), dtype=np.uint8))
HEADER = ("image", "label", "shift", "prompt", "seed")
IDS = ("00", "05", "08")
SHIFTS = ("base", "red")
SETTINGS = (
    CLASSES,
    "tokens=null",
    "prompts={base: {prompt: null}, shifts: {}}",
    "prompts.shifts.red={caption: 'something red', kind: colour}",
    "samples={candidates: 4, seed: 0, noise: paired}",
)
KIND = "kind: rows, model: null, steps: null, guidance: null"


def drawn_folder(
    path: Path,
    lines: Iterable[Sequence[Any]],
    header: Sequence[str] = HEADER,
    name: str = "drawn.csv",
) -> Path:
    """Write a CSV of `lines` to a new folder, and each image that a line names inside the
    folder."""
    path.mkdir(parents=True, exist_ok=True)
    with (path / "drawn.csv").open("w", newline="") as file:
        csv.writer(file).writerows([header, *lines])
    for line in lines:
        (path / str(line[0])).parent.mkdir(parents=True, exist_ok=True)
        if not str(line[0]).startswith(("/", "..")):
            (path / str(line[0])).write_bytes(PNG)
    return path


def full(seeds: Sequence[Any] = (7, 8)) -> list[list[Any]]:
    """Return a line for each shift, class and seed."""
    return [
        [f"{shift}_{cls}_{seed}.png", cls, shift, f"a {shift} {cls}", seed]
        for shift in SHIFTS
        for cls in IDS
        for seed in seeds
    ]


def given(folder: Path, *changes: str) -> GivenRows:
    recipe = load_recipe(
        "wardrobe-mini", [*SETTINGS, f"generator={{{KIND}, dataset: {folder}}}", *changes]
    )
    return given_rows(recipe, pin_pool(recipe, None))


def cells_of(rows: GivenRows) -> Mapping[tuple[str | None, str], list[tuple[int, int | None, int]]]:
    """Return the (index, seed, row) of each image by cell."""
    return {
        cell: [(row.index or 0, row.seed, row.row) for row in drawn]
        for cell, drawn in rows.table.rows.items()
    }


def refused(folder: Path, *changes: str) -> CounterfoilError:
    with pytest.raises(CounterfoilError) as caught:
        given(folder, *changes)
    return caught.value


def test_each_line_is_the_sample_that_it_says(tmp_path: Path) -> None:
    lines = full((MOST_SEED, 0))
    rows = given(drawn_folder(tmp_path / "drawn", lines))
    cells = [(shift, cls) for shift in SHIFTS for cls in IDS]
    # Samples are sorted by seed; the file has seed 0 second.
    assert cells_of(rows) == {
        cell: [(0, 0, 2 * at + 1), (1, MOST_SEED, 2 * at)] for at, cell in enumerate(cells)
    }
    assert all(
        sample.prompt == lines[sample.row][3]
        for samples in rows.table.rows.values()
        for sample in samples
    )
    assert rows.notes == (
        f"{tmp_path / 'drawn'}/drawn.csv: 12 images in 6 cells; 6 of 6 images of shifts are paired"
        " with a base image of"
        " their class and seed",
        "6 of 6 cells have fewer images than the recipe allows: base of 00 (2), base of 05 (2),"
        " base of 08 (2),"
        " red of 00 (2), red of 05 (2) and 1 more",
    )
    assert RowTable.read(rows.table.content, "rows.csv", "given") == rows.table


def test_images_share_an_index_where_class_and_seed_are_one(tmp_path: Path) -> None:
    """Compare every two images of random tables that lack some seeds; half of the tables have a
    column of numbers."""
    rng = np.random.default_rng(0)
    for trial in range(2):
        changes = [
            "samples.noise=independent",
            *(["generator.index_column=number"] if trial % 2 else []),
        ]
        lines = [
            [
                f"{shift}{cls}{number}.png",
                cls,
                shift,
                "",
                seed if rng.random() < 0.8 else "",
                number,
            ]
            for shift in SHIFTS
            for cls in IDS
            for number, seed in enumerate(rng.choice(5, 4, replace=False).tolist())
        ]
        folder = drawn_folder(tmp_path / str(trial), lines, (*HEADER, "number"))
        rows = given(folder, *changes)
        every = [
            (cls, given_row) for (_, cls), cell in rows.table.rows.items() for given_row in cell
        ]
        shared = 0
        for cls, given_row in every:
            for other in (
                other
                for other_cls, other in every
                if other_cls == cls and other.row != given_row.row
            ):
                alike = given_row.seed is not None and given_row.seed == other.seed
                alike &= not trial % 2 or lines[given_row.row][5] == lines[other.row][5]
                assert (given_row.index == other.index) == alike
                shared += alike
        assert shared
        recipe = load_recipe(
            "wardrobe-mini", [*SETTINGS, f"generator={{{KIND}, dataset: {folder}}}", *changes]
        )
        plan = make_plan(recipe, edited=rows.table)
        samples = [sample for shard in plan.shards for sample in shard.samples(plan)]
        assert (
            len({sample.key for sample in samples}) == len(samples) == plan.n_samples == len(lines)
        )
        assert {(sample.row, sample.seed) for sample in samples} == {
            (row, -1 if line[4] == "" else line[4]) for row, line in enumerate(lines)
        }


def test_without_seeds_nothing_is_paired(tmp_path: Path) -> None:
    lines = [[*line[:4], ""] for line in full()]
    folder = drawn_folder(tmp_path / "drawn", lines)
    assert states(refused(folder), "unfit-column", "samples.noise", "has no seeds")
    rows = given(folder, "samples.noise=independent")
    assert [sample[0] for samples in cells_of(rows).values() for sample in samples] == [0, 1] * 6
    assert "no seed is known, so no image is paired" in rows.notes[0]
    without = drawn_folder(tmp_path / "without", [line[:3] for line in lines], HEADER[:3])
    assert cells_of(given(without, "samples.noise=independent")) == cells_of(rows)
    apart = drawn_folder(
        tmp_path / "apart", [[*line[:4], 10 * line[4] + (line[2] == "red")] for line in full()]
    )
    assert states(refused(apart), "unfit-column", "samples.noise", "no two images")


def test_no_more_than_the_recipe_asks_for_is_taken(tmp_path: Path) -> None:
    rows = given(drawn_folder(tmp_path / "drawn", full(range(9))))
    assert {len(cell) for cell in rows.table.rows.values()} == {4}
    some = [line for line in full(range(9)) if line[2] == "base" or line[4] > 4]
    assert [
        seed for _, seed, _ in cells_of(given(drawn_folder(tmp_path / "some", some)))["base", "00"]
    ] == [5, 6, 7, 8]
    assert "30 images beyond what samples allows in a cell, not used" in rows.notes


def test_columns_may_be_called_otherwise_and_pandas_counts_beside_them(tmp_path: Path) -> None:
    lines = [[index, *line] for index, line in enumerate(full((7.0, 8.0)))]
    folder = tmp_path / "drawn"
    drawn_folder(folder, [line[1:] for line in lines])
    (folder / "drawn.csv").unlink()
    with (folder / "metadata.csv").open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows([["", "file_name", "garment", "scene", "text", "noise"], *lines])
    (folder / "other.csv").write_text("kept for later\n")
    names = (
        "label_column=garment",
        "shift_column=scene",
        "prompt_column=text",
        "seed_column=noise",
    )
    rows = given(folder, *(f"generator.{name}" for name in names))
    assert cells_of(rows) == cells_of(given(drawn_folder(tmp_path / "plain", full())))


def test_a_table_says_the_same(tmp_path: Path) -> None:
    lines = full()
    columns: dict[str, list[Any]] = {
        name: [line[column] for line in lines] for column, name in enumerate(HEADER)
    }
    columns["image"] = [{"bytes": PNG, "path": None}] * len(lines)
    features = {
        "image": datasets.Image(),
        "label": datasets.Value("string"),
        "shift": datasets.ClassLabel(names=["red", "base"]),
    }
    features |= {"prompt": datasets.Value("string"), "seed": datasets.Value("float64")}
    (tmp_path / "table").mkdir()
    table = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
    table.to_parquet(str(tmp_path / "table" / "train.parquet"))
    assert cells_of(given(tmp_path / "table")) == cells_of(
        given(drawn_folder(tmp_path / "drawn", lines))
    )
    error = refused(tmp_path / "table", "generator.shift_column=scene")
    assert states(error, "missing-column", "generator.shift_column", "'scene'")


def test_columns_of_lists_are_reported_together(tmp_path: Path) -> None:
    cell = ["base"]
    kind = [datasets.Value("string")]
    (folder := tmp_path / "table").mkdir()
    features = datasets.Features({"image": datasets.Image(), "label": kind, "shift": kind})
    columns = {
        "image": [{"bytes": PNG, "path": None}] * 2,
        "label": [cell] * 2,
        "shift": [cell] * 2,
    }
    datasets.Dataset.from_dict(columns, features=features).to_parquet(str(folder / "train.parquet"))
    error = refused(folder)
    words = f"column 'shift': found {quoted(str(cell))}; so are 1 more, expected text"
    assert states(error, "unfit-column", f"{folder}, split train", words)
    assert states(error, "unfit-column", "source.label_column")


def test_images_that_do_not_open_are_counted(tmp_path: Path) -> None:
    folder = drawn_folder(tmp_path / "drawn", full())
    (folder / "base_00_7.png").unlink()
    (folder / "red_05_8.png").write_bytes(b"no image")
    huge = bytearray(PNG)
    huge[16:24] = b"\x00\x7f\xff\xff" * 2
    (folder / "red_08_8.png").write_bytes(bytes(huge))
    rows = given(folder)
    assert (
        "3 images that cannot be opened, counted as failed: base_00_7.png, red_05_8.png,"
        " red_08_8.png" in rows.notes
    )
    assert cells_of(rows) == cells_of(given(drawn_folder(tmp_path / "whole", full())))


def test_files_larger_than_any_image_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = drawn_folder(tmp_path / "drawn", full())
    (folder / "red_05_8.png").write_bytes(PNG + bytes(1000))
    monkeypatch.setattr(listed_folders, "MOST_IMAGE_BYTES", len(PNG))
    assert "1 image that cannot be opened, counted as failed: red_05_8.png" in given(folder).notes


def changed(number: int, column: int, value: Any) -> list[list[Any]]:
    lines = full()
    lines[number][column] = value
    return lines


@pytest.mark.parametrize(
    ("lines", "code", "words"),
    [
        (changed(0, 1, "t-shrt"), "unknown-label", ["1 row", "'t-shrt'", "did you mean 't-shirt'?"]),
        (changed(6, 2, "rde"), "unknown-label", ["1 row", "'rde'", "did you mean 'red'?"]),
        (changed(0, 4, "x"), "unfit-column", ["'seed': found 'x'", "0 to 9,223,372,036,854,775,807"]),
        (changed(0, 4, 2**63), "unfit-column", ["'seed': found '9223372036854775808'"]),
        (changed(0, 4, "1.5"), "unfit-column", ["found '1.5'"]),
        (changed(0, 4, "9007199254740994.0"), "unfit-column", ["found '9007199254740994.0'"]),
        (changed(0, 4, -1), "unfit-column", ["found '-1'"]),
        (changed(0, 4, 8), "image-list", ["'base' of '00': seed 8", "generator.index_column"]),
        (changed(0, 3, "x" * 10_001), "unfit-column", ["'prompt'", "at most 10,000 characters"]),
        (full()[2:], "no-images", ["1 of 6 cells", "'base' of '00'"]),
        (changed(0, 0, "a/../../secret.png"), "image-list", ["'../secret.png'"]),
        (changed(0, 0, "/etc/passwd"), "image-list", ["'/etc/passwd'"]),
        (changed(0, 0, "./base_05_7.png"), "image-list", ["'base_05_7.png' more than once"]),
        ([line[:4] for line in full()], "image-list", ["line 2: 4 values, expected 5"]),
        ([], "image-list", []),
    ],
)  # fmt: skip
def test_what_is_none_of_the_recipe_is_reported(
    tmp_path: Path, lines: list[list[Any]], code: str, words: list[str]
) -> None:
    assert states(refused(drawn_folder(tmp_path / "drawn", lines)), code, None, *words)


def test_of_many_wrong_lines_the_first_are_shown(tmp_path: Path) -> None:
    lines = [line[:4] for line in full(range(5))]
    error = refused(drawn_folder(tmp_path / "drawn", lines))
    assert states(error, "image-list", None, "line 21: 4 values")
    assert error.problems[-1] == "… and 10 more"


def test_all_problems_come_together(tmp_path: Path) -> None:
    lines = full()
    lines[0][4] = "x"
    lines[1][1] = "nothing"
    lines[6][2] = "rde"
    lines[7][2] = "rde"
    error = refused(drawn_folder(tmp_path / "drawn", lines))
    where = f"{tmp_path / 'drawn'}/drawn.csv"
    assert states(error, "unfit-column", where, "'x'")
    assert states(error, "unknown-label", where, "1 row of the label 'nothing'")
    assert states(error, "unknown-label", where, "2 rows of the shift 'rde'")
    assert states(error, "no-images", where)


def test_a_class_that_a_shift_does_not_have_is_reported(tmp_path: Path) -> None:
    error = refused(
        drawn_folder(tmp_path / "drawn", full()), "prompts.shifts.red.classes=['00', '05']"
    )
    where = f"{tmp_path / 'drawn'}/drawn.csv"
    assert states(error, "unknown-label", where, "2 rows of the class '08' under 'red'")


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (b"\xff", "unreadable-data", "byte 0"),
        (b'image,label\n"a', "image-list", "line 2"),
        (b"image,label,label\n", "image-list", "'label' twice"),
        (b"a" * 300 + b"," * 300 + b"\n", "image-list", "'' twice"),
        (b"label,shift\n00,base\n", "missing-column", "'image'"),
        (b"image,label\na.png,00\n", "missing-column", "'shift'"),
    ],
)
def test_a_file_that_is_no_such_table_is_reported(
    content: bytes, code: str, words: str, tmp_path: Path
) -> None:
    folder = drawn_folder(tmp_path / "drawn", [])
    (folder / "drawn.csv").write_bytes(content)
    assert states(refused(folder), code, None, words)


def test_nothing_outside_the_folder_is_opened(tmp_path: Path) -> None:
    """Links and pipes, as an image or beside the images, are refused."""
    (tmp_path / "secret.png").write_bytes(PNG)
    folder = drawn_folder(tmp_path / "drawn", full())
    (folder / "base_00_7.png").unlink()
    (folder / "base_00_7.png").symlink_to(tmp_path / "secret.png")
    assert states(refused(folder), "unreadable-data", folder / "base_00_7.png", "is a link")
    (folder / "base_00_7.png").unlink()
    os.mkfifo(folder / "base_00_7.png")
    assert states(refused(folder), "unreadable-data", folder / "base_00_7.png", "is a pipe")
    (folder / "base_00_7.png").unlink()
    (folder / "others").symlink_to(tmp_path)
    assert states(refused(folder), "unreadable-data", folder / "others", "is a link")


def test_two_tables_are_one_too_many(tmp_path: Path) -> None:
    folder = drawn_folder(tmp_path / "drawn", full())
    (folder / "second.csv").write_text("image\n")
    assert states(refused(folder), "unclear-choice", folder, "2 CSV files (drawn.csv, second.csv)")


def test_a_folder_that_changed_is_refused(tmp_path: Path) -> None:
    folder = drawn_folder(tmp_path / "drawn", full())
    recipe = load_recipe("wardrobe-mini", [*SETTINGS, f"generator={{{KIND}, dataset: {folder}}}"])
    pin = pin_pool(recipe, None)
    rows = pool_rows(recipe, pin)
    assert next(rows.images([0])) == PNG
    (folder / "base_00_7.png").write_bytes(PNG + b"more")
    with refuses("changed-data", "source", kind=RunFailure):
        pool_rows(recipe, pin)
    (folder / "base_00_7.png").unlink()
    with pytest.raises(RunFailure, match="Restore it"):
        next(rows.images([0]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("generator.labels=predicted", "found labels, expected it only with rows"),
        ("generator.dataset=null", "missing rows, which kind rows needs; or dataset"),
        ("generator.rows={}", "missing rows, which kind rows needs"),
        ("generator.guidance=3", "found guidance, expected none with kind rows"),
        ("tokens={path: lab:tokens}", "rows of a pool are not drawn from prompts, expected null"),
        (
            "prompts.shifts.red.severity={levels: [0.5, 1]}",
            "generator.kind rows draws nothing, so it has no levels",
        ),
        ("samples.pairs=attention", "images of generator.kind rows cannot see their base"),
    ],
)
def test_what_the_recipe_cannot_say_of_them_is_reported(
    change: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as caught:
        load_recipe(
            "wardrobe-mini", [*SETTINGS, f"generator={{{KIND}, dataset: {tmp_path}}}", change]
        )
    assert message in str(caught.value)
