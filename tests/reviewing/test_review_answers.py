"""Answers counted: agreement by reference, files of strangers, what becomes part of the dataset."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import mlcroissant
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_answers import TOKENS, answers, data_of, is_own, is_true, known_of, written
from statsmodels.stats.inter_rater import fleiss_kappa as kappa_of_statsmodels
from typer.testing import CliRunner

from colour_world import build_colours, png_of, save_colour_model
from counterfoil.cli.main import app
from counterfoil.dataset.closing import close_again
from counterfoil.dataset.label_checks import ReviewTask, TaskResult, read_people
from counterfoil.dataset.verification import verify
from counterfoil.errors import UserError
from counterfoil.evaluation import evaluate
from counterfoil.plan.layout import Sample
from counterfoil.publishing.files import is_owned
from counterfoil.report.labels import labels_text
from counterfoil.reviewing.answers import mean_frequency
from counterfoil.reviewing.grids import CandidateImage, RealControl
from counterfoil.reviewing.review_answers import Review, agreement, review_answers
from counterfoil.reviewing.review_dataset import ReviewPage, review
from counterfoil.stats import fleiss_kappa
from counterfoil.store import sealed_folder
from counterfoil.store.manifest import content_of_receipts, verify_files
from counterfoil.store.reading import read_receipts
from counterfoil.store.sealed_folder import REVIEWED
from support.files import copy_of, published
from support.refusals import problems_of
from support.tables import csv_rows

Z = 1.959963984540054
SWAPPED = 4  # images of a class and `swap` that show another class


def wilson(share: float, n: float) -> tuple[float, float]:
    """Return the interval as Wilson (1927) writes it."""
    centre = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2)) / (1 + Z**2 / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def exact_kappa(counts: list[tuple[int, int]]) -> Fraction | None:
    """Compute Fleiss 1971, equations 1 to 7, in fractions."""
    raters = sum(counts[0])
    shares = [
        Fraction(sum(row[column] for row in counts), raters * len(counts)) for column in (0, 1)
    ]
    by_chance = sum(share * share for share in shares)
    agreed = Fraction(
        sum(Fraction(sum(n * (n - 1) for n in row), raters * (raters - 1)) for row in counts),
        len(counts),
    )
    return None if by_chance == 1 else (agreed - by_chance) / (1 - by_chance)


@given(
    st.integers(2, 6).flatmap(
        lambda n: st.lists(st.integers(0, n).map(lambda k: (k, n - k)), min_size=1, max_size=20)
    )
)
def test_kappa_is_fleiss(counts: list[tuple[int, int]]) -> None:
    exact = exact_kappa(counts)
    kappa = fleiss_kappa(counts)
    assert (kappa is None) == (exact is None)
    if exact is not None:
        assert kappa == pytest.approx(float(exact), abs=1e-9)
        assert kappa == pytest.approx(
            kappa_of_statsmodels(np.array(counts), method="fleiss"), abs=1e-12
        )


def test_kappa_is_undefined_without_two_raters_or_two_answers() -> None:
    assert agreement({"a": {0: True}, "b": {0: False}}) == (None, 0)
    assert agreement({"a": {0: True, 1: True}, "b": {0: True, 1: True}}) == (None, 0)
    assert agreement({}) == (None, 0)


def test_kappa_is_over_the_images_that_all_have_seen() -> None:
    shared = {
        "a": {0: True, 1: True},
        "b": {0: False, 1: False},
        "c": {0: True, 1: False},
        "d": {0: False, 1: False},
    }
    kappa, images = agreement(shared)
    assert (kappa, images) == (
        pytest.approx(float(exact_kappa([(2, 0), (0, 2), (1, 1), (0, 2)]) or 0)),
        4,
    )
    assert agreement({**shared, "e": {0: True}, "f": {1: True}}) == (kappa, images)


def test_where_no_image_was_seen_by_all_images_are_grouped_by_how_many_saw_them() -> None:
    pairs = {"a": {0: True, 1: True}, "b": {0: False, 1: False}}
    others = {"c": {1: True, 2: False}, "d": {1: False, 2: True}}
    kappa, images = agreement({**pairs, **others})
    assert (kappa, images) == (
        pytest.approx(float(exact_kappa([(2, 0), (0, 2), (1, 1), (1, 1)]) or 0)),
        4,
    )
    triples = {
        "e": {0: True, 1: True, 2: True, 3: False},
        "f": {0: False, 1: False, 2: False, 4: False},
    }
    # Of five raters, two images were seen by two and two by four: a mean weighted by images.
    two, four = (float(exact_kappa(counts) or 0) for counts in ([(2, 0), (0, 2)], [(3, 1), (0, 4)]))
    assert agreement({**pairs, **triples}) == (pytest.approx((2 * two + 2 * four) / 4), 4)


@given(st.integers(1, 60), st.integers(0, 60))
def test_of_one_rater_the_interval_is_wilsons_over_images(n: int, selected: int) -> None:
    frequency = mean_frequency([(int(index < selected), 1) for index in range(n)])
    assert frequency is not None
    assert frequency.value == pytest.approx(min(selected, n) / n)
    assert (frequency.low, frequency.high) == pytest.approx(wilson(frequency.value, n), abs=1e-9)


def test_images_that_differ_little_tell_more_and_never_more_than_the_answers_do() -> None:
    def width(selected: tuple[int, int]) -> float:
        frequency = mean_frequency([(count, 5) for count in selected] * 10)
        assert frequency is not None and frequency.value == 0.5
        return frequency.high - frequency.low

    def of(n: float) -> float:
        low, high = wilson(0.5, n)
        return high - low

    # 20 images of five answers each: as 100 answers at most, and as 20 where all five always agree.
    assert of(100) < width((3, 2)) < width((4, 1)) < width((5, 0)) < 1.15 * of(20)
    assert width((3, 2)) < 1.15 * of(100)


def test_where_everything_was_selected_the_interval_still_has_a_width() -> None:
    frequency = mean_frequency([(5, 5)] * 12)
    assert frequency is not None
    assert (frequency.value, frequency.high) == (1.0, 1.0)
    assert frequency.low == pytest.approx(0.025 ** (1 / 12)), "exact, of images"
    assert mean_frequency([]) is None


def sees_colours(task: str, label: str, picture: CandidateImage | RealControl) -> bool:
    """Select what is true: the first images under `swap` show the next class, and no image shows
    its shift."""
    if isinstance(picture, RealControl):
        return True
    if task == "shift":
        return False
    number = int(picture.key.rpartition("_")[2])
    swapped = picture.shift == "swap" and number < SWAPPED
    return label == f"{(picture.label + swapped) % 3:02d}"


def everything(task: str, label: str, picture: CandidateImage | RealControl) -> bool:
    return True


@pytest.fixture(scope="session")
def files(made: ReviewPage, colours: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the answers of three people: one sees colours, one believes all labels, one selects
    everything."""
    folder = tmp_path_factory.mktemp("answers")
    known = known_of(colours)
    people = (("Anna Nyman", sees_colours), ("", is_true), ("B.", everything))
    return [
        written(folder / f"{index}.json", answers(made.page, known, choice, TOKENS[index], name))
        for index, (name, choice) in enumerate(people)
    ]


@pytest.fixture(scope="session")
def reviewed(
    colours: Path, files: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Review]:
    """Return a dataset that holds their answers. Read only."""
    directory = copy_of(colours, tmp_path_factory.mktemp("reviewed") / "colours")
    return directory, review_answers(directory, files)


def task_result(outcome: Review, shift: str, task: ReviewTask = "class") -> TaskResult:
    result = outcome.selection.of(shift, task)
    assert result is not None
    return result


def document_of(directory: Path) -> dict[str, Any]:
    return json.loads((directory / "review" / "selection.json").read_bytes())


def test_frequencies_are_those_of_the_answers(reviewed: tuple[Path, Review]) -> None:
    directory, outcome = reviewed
    document = document_of(directory)
    assert document["content"] == content_of_receipts(read_receipts(directory))
    by_name = {shift["name"]: shift for shift in document["shifts"]}
    assert list(by_name) == ["base", "dusk", "swap"]
    # Three people saw 36 images a shift; one of them does not select the 12 that show another
    # colour.
    assert (by_name["base"]["class"]["images"], by_name["base"]["class"]["answers"]) == (36, 108)
    assert by_name["base"]["class"]["selected"]["value"] == 1
    assert by_name["base"]["class"]["selected"]["low"] < 1
    assert by_name["swap"]["class"]["selected"]["value"] == pytest.approx(
        (24 * 3 + 12 * 2) / 108, abs=1e-6
    )
    assert by_name["swap"]["shift"]["selected"]["value"] == pytest.approx(2 / 3, abs=1e-6)
    assert by_name["base"]["shift"] is None, "the base shows no shift"
    assert by_name["base"]["class"]["kappa"] is None, "all answers are one"
    # 24 images selected by three, 12 by two of three.
    kappa = float(exact_kappa([(3, 0)] * 24 + [(2, 1)] * 12) or 0)
    assert by_name["swap"]["class"]["kappa"] == pytest.approx(kappa, abs=1e-6)
    assert by_name["swap"]["class"]["kappa_images"] == 36
    images = document["images"]["class"]
    assert len(images) == 108 and len(document["images"]["shift"]) == 72
    assert images["swap_00_000000"] == {"shown": 3, "selected": 2}
    assert images["swap_00_000005"] == {"shown": 3, "selected": 3}
    assert task_result(outcome, "swap", "class").images == 36


def test_who_fails_the_controls_is_reported_and_not_dropped(reviewed: tuple[Path, Review]) -> None:
    document = document_of(reviewed[0])
    assert [rater["rater"] for rater in document["raters"]] == ["rater-1", "rater-2", "rater-3"]
    assert [rater["failed_controls"] for rater in document["raters"]] == [False, False, True]
    believes = document["raters"][1]["controls"]
    all_selected = document["raters"][2]["controls"]
    assert believes["real_passed"] == believes["real"] == all_selected["real"] == 12
    assert believes["without_passed"] == believes["without"]
    assert all_selected["without_passed"] == 0
    assert document["controls"]["real_share"]["value"] == 1
    sees = document["raters"][0]["controls"]
    passed = sees["without_passed"] + believes["without"]
    assert document["controls"]["without_share"]["value"] == pytest.approx(
        passed / (3 * believes["without"]), abs=1e-6
    )
    assert document["images"]["class"]["base_00_000000"] == {"shown": 3, "selected": 3}, (
        "the one who failed counts"
    )


def test_nobody_is_named(reviewed: tuple[Path, Review], files: list[Path]) -> None:
    directory, outcome = reviewed
    for path, content in published(directory).items():
        assert b"Nyman" not in content and TOKENS[0].encode() not in content, path
        assert str(files[0].parent).encode() not in content, path
    shown = outcome.to_json()["raters"]
    assert [(rater["rater"], rater["name"]) for rater in shown] == [
        ("rater-1", "Anna Nyman"),
        ("rater-2", ""),
        ("rater-3", "B."),
    ]


def test_the_table_has_a_row_an_image_and_task(reviewed: tuple[Path, Review]) -> None:
    rows = csv_rows(reviewed[0] / "review" / "selection.csv")
    assert len(rows) == 180
    assert rows[72]["key"].startswith("swap")
    row = next(row for row in rows if row["task"] == "class" and row["key"] == "swap_01_000000")
    assert (row["shift"], row["class_id"], row["shown"], row["selected"]) == (
        "swap",
        "01",
        "3",
        "2",
    )
    assert float(row["frequency"]) == pytest.approx(2 / 3, abs=1e-5)


def test_the_dataset_is_whole_and_its_card_shows_it(reviewed: tuple[Path, Review]) -> None:
    directory, _ = reviewed
    assert verify_files(directory) == []
    listed = {
        file["path"] for file in json.loads((directory / "manifest.json").read_bytes())["files"]
    }
    assert {"review/selection.json", "review/selection.csv"} <= listed
    assert all(is_owned(path) for path in ("review/selection.json", "review/selection.csv"))
    assert not is_owned("review/notes.txt")
    section = (
        (directory / "README.md")
        .read_text()
        .partition("\n## What people say\n")[2]
        .partition("\n## ")[0]
    )
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in section.splitlines()
        if line.startswith("|")
    ]
    assert [row[0] for row in rows[2:]] == ["`base`", "`dusk`", "`swap`"]
    swap = rows[-1]
    assert swap[1].startswith("88.9 (") and swap[2] == "36" and swap[4].startswith("66.7 (")
    assert rows[2][4:] == ["–", "–", "–"]
    assert "Unchecked" not in (directory / "README.md").read_text()
    assert (
        "3 people selected images" in section
        and "One of the raters got fewer than three in four" in section
    )
    assert "No person has labelled" not in (directory / "README.md").read_text()
    croissant = mlcroissant.Dataset(jsonld=str(directory / "croissant.json"))
    assert "review/selection.json" in [file.id for file in croissant.metadata.file_objects]


def test_who_was_asked_for_shifts_alone_has_checked_no_label(
    copied: Callable[..., Path], files: list[Path]
) -> None:
    directory = copied()
    document = json.loads(files[1].read_text())
    document["grids"] = [grid for grid in document["grids"] if grid["task"] == "shift"]
    review_answers(directory, [written(directory.parent / "shift.json", document)])
    labels = (
        (directory / "README.md")
        .read_text()
        .partition("\n## Are the labels true?\n")[2]
        .partition("\n## ")[0]
    )
    assert "**Unchecked.**" in labels and "People were asked about shifts only" in labels


def test_an_evaluation_says_what_people_said(reviewed: tuple[Path, Review], tmp_path: Path) -> None:
    directory, outcome = reviewed
    model = f"local-dir:{save_colour_model(tmp_path / 'sharp')}"
    evaluation = evaluate(directory, model, out=tmp_path / "out", device="cpu")
    checks = evaluation.label_checks
    assert checks is not None and (checks.judge, checks.raters) == (None, 3)
    assert [shift.shift for shift in checks.shifts] == ["base", "dusk", "swap"]
    assert read_people(directory, "0" * 64, ("base",)) is None, "it holds for its content"
    swap = checks.of("swap").people
    assert swap is not None and swap.class_selected is not None
    assert swap.class_selected.value == pytest.approx(
        task_result(outcome, "swap", "class").selected.value, abs=1e-6
    )
    assert evaluation.to_json()["label_checks"]["shifts"][2]["people"]["shift_images"] == 36
    assert labels_text(checks) == (
        "labels: images in which people see the class: 100.0 % (90.3 to 100.0) under base, at least"
        f" 88.9 % ({100 * swap.class_selected.low:.1f} to {100 * swap.class_selected.high:.1f})"
        " under swap (3 people)"
    )


def test_the_same_answers_give_the_same_bytes(
    reviewed: tuple[Path, Review], files: list[Path], tmp_path: Path
) -> None:
    copy = copy_of(reviewed[0], tmp_path / "again")
    again = review_answers(copy, files)
    assert published(copy) == published(reviewed[0])
    assert again.replaced == 3
    fewer = review_answers(copy, files[:1])
    assert fewer.replaced == 3
    assert len(document_of(copy)["raters"]) == 1
    assert {shift["class"]["kappa"] for shift in document_of(copy)["shifts"]} == {None}
    assert verify_files(copy) == []


def test_a_dataset_that_is_closed_again_keeps_it_and_one_of_other_data_does_not(
    reviewed: tuple[Path, Review], tmp_path: Path
) -> None:
    directory, _ = reviewed
    copy = copy_of(directory, tmp_path / "closed")
    close_again(copy)
    assert published(copy) == published(directory)

    def otherwise(sample: Sample) -> bytes:
        return png_of(sample) + b"\0"  # after the end of a PNG: other bytes, the same pixels

    (copy / "receipts" / "swap-00000.json").unlink()
    build_colours(copy, "publish.repo=someone/colours", image=otherwise)
    close_again(copy)
    assert not (copy / "review").exists()
    text = (copy / "README.md").read_text()
    assert "What people say" not in text and "No person has labelled" in text
    assert verify_files(copy) == []


def test_a_run_that_was_killed_is_mended_by_the_same_command(
    reviewed: tuple[Path, Review], files: list[Path], tmp_path: Path
) -> None:
    copy = copy_of(reviewed[0], tmp_path / "killed")
    table = (copy / "review" / "selection.csv").read_bytes()
    # killed between the table and its document, nothing closed
    REVIEWED.write(copy, {"selection.csv": table})
    assert verify_files(copy) == [
        "manifest.json: is missing: the dataset is not finished, or this is not a dataset"
        " [not-finished]"
    ]
    closed = copy_of(copy, tmp_path / "closed")
    close_again(closed)
    assert not (closed / "review").exists()
    assert verify_files(closed) == []
    assert review_answers(copy, files).replaced == 0
    assert published(copy) == published(reviewed[0])


@pytest.mark.parametrize("damage", ["selection.json", "selection.csv"])
def test_what_is_damaged_is_reported_and_not_shown(
    reviewed: tuple[Path, Review], damage: str, tmp_path: Path
) -> None:
    copy = copy_of(reviewed[0], tmp_path / "damaged")
    file = copy / "review" / damage
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    (problem,) = [
        problem for problem in verify(copy).problems if problem.path == f"review/{damage}"
    ]
    assert "counterfoil review" in problem.repair and "--answers" in problem.repair
    close_again(copy)
    assert not (copy / "review").exists()
    assert verify_files(copy) == []


def test_a_sealed_review_of_another_form_is_reported_in_a_sentence(
    reviewed: tuple[Path, Review], tmp_path: Path
) -> None:
    copy = copy_of(reviewed[0], tmp_path / "odd")
    document = json.loads((copy / "review" / "selection.json").read_text()) | {"raters": 7}
    rest = {
        name: value
        for name, value in document.items()
        if name not in ("sha256", "files", "version")
    }
    odd = sealed_folder.sealed(rest, document["files"], document["version"])
    (copy / "review" / "selection.json").write_bytes(odd)
    close_again(copy)
    text = (copy / "README.md").read_text()
    assert "is not shown: review/selection.json is not a selection document" in text
    assert "Fleiss" not in text and verify_files(copy) == []


def test_one_and_the_same_person_is_counted_once(
    copied: Callable[..., Path], files: list[Path]
) -> None:
    directory = copied()
    before = published(directory)
    for again in (files[0], Path(shutil.copy(files[0], directory.parent / "other.json"))):
        with pytest.raises(UserError, match="has the same person and page as"):
            review_answers(directory, [files[0], files[1], again])
    assert published(directory) == before


def test_who_answers_two_pages_is_one_person(
    made: ReviewPage, colours: Path, copied: Callable[..., Path], tmp_path: Path
) -> None:
    """Check that the later file counts where both answer, controls too, and that other answers are
    kept."""
    directory = copied()
    known = known_of(colours)
    other = review(colours, tmp_path / "other.html", tasks=["class"], shifts=["swap"], seed=1)
    first = written(tmp_path / "first.json", answers(made.page, known, is_true, TOKENS[0], "A."))
    second = written(tmp_path / "second.json", answers(other.page, known, sees_colours, TOKENS[0]))
    outcome = review_answers(directory, [first, second])
    (rater,) = outcome.selection.raters
    assert (
        outcome.raters[0].name == "A."
        and str(second) in outcome.notes[0]
        and "rater-1" in outcome.notes[0]
    )
    assert [rater["more_files"] for rater in outcome.to_json()["raters"]] == [[str(second)]]
    swap, base = (task_result(outcome, name) for name in ("swap", "base"))
    assert (swap.images, swap.answers, swap.kappa) == (36, 36, None)
    # the other page asks about one class
    assert swap.selected.value == pytest.approx(1 - SWAPPED / 36)
    assert (base.images, base.selected.value) == (36, 1.0)
    images = [image for task in outcome.selection.images.values() for image in task.values()]
    assert {image.shown for image in images} == {1} and rater.images == len(images)
    pages = [{(grid["task"], grid["label"], id) for grid in data_of(page.page)["grids"] for id in grid["shown"]}
             for page in (made, other)]  # fmt: skip
    assert outcome.raters[0].again == len(pages[0] & pages[1])
    backwards = review_answers(copied("again"), [second, first])
    assert task_result(backwards, "swap", "class").selected.value == 1.0


def changed(document: dict[str, Any], change: Callable[[dict[str, Any]], Any]) -> Any:
    document = json.loads(json.dumps(document))
    replaced = change(document)
    return document if replaced is None else replaced


HOSTILE: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a list": (lambda d: [d], "is not the answers of a review"),
    "another form": (lambda d: d.update(version=2), "is not the answers of a review"),
    "a key more": (lambda d: d.update(evil=1), "evil: is not a key of this form"),
    "a key less": (
        lambda d: {key: value for key, value in d.items() if key != "rater"},
        "rater: is missing",
    ),
    "another dataset": (lambda d: d.update(content="0" * 64), "is for another dataset"),
    "a token of another form": (lambda d: d.update(token="../../x"), "token: String"),
    "a long name": (lambda d: d.update(rater="x" * 61), "rater: String should have at most 60"),
    "grids that are none": (lambda d: d.update(grids={}), "grids: Input"),
    "no finished grid": (lambda d: d.update(grids=[]), "grids: List should have at least 1 item"),
    "too many grids": (lambda d: d.update(grids=[{}] * 2001), "grids"),
    "a grid that is none": (lambda d: d["grids"].append(3), "Input should be an object"),
    "another task": (
        lambda d: d["grids"][0].update(task="beauty"),
        "task: Input should be 'class' or 'shift'",
    ),
    "a class that is not there": (
        lambda d: d["grids"][0].update(task="class", label="99"),
        "which the dataset does not",
    ),
    "the base as a shift": (
        lambda d: d["grids"][0].update(task="shift", label="base"),
        "which the dataset does not",
    ),
    "an id of no form": (lambda d: d["grids"][0]["shown"].append("base_00_000000"), "shown."),
    "an unknown id": (
        lambda d: d["grids"][0]["shown"].append("0" * 20),
        "1 of 45 images belong to no page of this dataset",
    ),
    "an id twice": (
        lambda d: d["grids"][0]["shown"].append(d["grids"][0]["shown"][0]),
        "each once",
    ),
    "nothing shown": (lambda d: d["grids"][0].update(shown=[], selected=[]), "at least 1 item"),
    "more than a grid": (
        lambda d: d["grids"][0].update(shown=[f"{n:020x}" for n in range(49)]),
        "at most 48 items",
    ),
    "selected and not shown": (
        lambda d: d["grids"][0]["selected"].append("0" * 20),
        "selects images that it does not",
    ),
    "a grid twice": (lambda d: d["grids"].append(d["grids"][0]), "images twice under the"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_strangers_answers_are_refused_and_change_nothing(
    name: str, colours: Path, files: list[Path], tmp_path: Path
) -> None:
    change, shown = HOSTILE[name]
    bad = json.loads(files[1].read_text())
    bad["grids"].sort(key=lambda grid: (grid["task"], grid["label"]))
    before = published(colours)
    with pytest.raises(UserError) as refused:
        review_answers(colours, [files[0], written(tmp_path / "bad.json", changed(bad, change))])
    assert shown in str(refused.value)
    assert str(tmp_path / "bad.json") in str(refused.value)
    assert max(map(len, refused.value.problems)) < 2000
    assert published(colours) == before


def test_files_that_are_none_are_reported_together(
    colours: Path, files: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\0")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "large.json").write_text(" " * 4_000_001)
    (tmp_path / "folder.json").mkdir()
    names = ("binary", "deep", "large", "folder", "missing")
    problems = problems_of(
        review_answers, colours, [files[0], *(tmp_path / f"{name}.json" for name in names)]
    )
    assert len(problems) == len(names)
    for name, line in zip(names, problems, strict=True):
        assert f"{name}.json" in line
    with pytest.raises(UserError, match="found no answers"):
        review_answers(colours, [])


def test_pages_that_were_only_clicked_through_are_no_answers(
    made: ReviewPage, copied: Callable[..., Path], colours: Path, tmp_path: Path
) -> None:
    directory = copied()
    before = published(directory)
    empty = answers(made.page, known_of(colours), lambda task, label, picture: False, TOKENS[0])
    with pytest.raises(
        UserError, match="has no answers: no image is selected in any of its 5 grids"
    ):
        review_answers(directory, [written(tmp_path / "empty.json", empty)])
    assert published(directory) == before


def test_many_problems_of_a_file_are_counted(
    colours: Path, files: list[Path], tmp_path: Path
) -> None:
    bad = json.loads(files[1].read_text())
    bad["grids"] = [{}] * 500
    with pytest.raises(UserError) as refused:
        review_answers(colours, [written(tmp_path / "bad.json", bad)])
    assert len(refused.value.problems) == 1 and "; … and 1,991 more" in refused.value.problems[0]
    bad["grids"] = [{"task": "shift", "label": "base", "shown": ["0" * 20], "selected": []}] * 500
    with pytest.raises(UserError) as refused:
        review_answers(colours, [written(tmp_path / "bad.json", bad)])
    assert len(refused.value.problems) == 11
    assert "490 more problems" in refused.value.problems[-1]


def test_a_part_of_the_grids_is_counted_for_what_it_is(
    made: ReviewPage, copied: Callable[..., Path], colours: Path, tmp_path: Path
) -> None:
    known = known_of(colours)
    whole = answers(made.page, known, is_true, TOKENS[0])
    part = answers(made.page, known, is_true, TOKENS[1]) | {"rater": "\x1b[31m x"}
    part["grids"] = [
        grid for grid in part["grids"] if (grid["task"], grid["label"]) == ("shift", "dusk")
    ]
    paths = [written(tmp_path / "a.json", whole), written(tmp_path / "b.json", part)]
    outcome = review_answers(copied(), paths)
    assert [rater.grids for rater in outcome.selection.raters] == [5, 1]
    assert task_result(outcome, "dusk", "shift").answers == 72
    assert task_result(outcome, "swap", "shift").answers == 36
    assert outcome.raters[1].name == "[31m x", "no control character reaches a terminal"
    shown = [
        id for grid in part["grids"] for id in grid["shown"] if is_own("shift", "dusk", known[id])
    ]
    assert len(shown) == 36


def test_the_command_writes_a_page_and_counts_its_answers(
    copied: Callable[..., Path], files: list[Path], tmp_path: Path
) -> None:
    directory = copied()
    run = CliRunner().invoke
    page = run(app, ["review", str(directory), "--out", str(tmp_path / "page.html"), "--json"])
    assert page.exit_code == 0, page.output
    assert json.loads(page.stdout)["page"] == str(tmp_path / "page.html")
    assert "5 grids of 108 of 108 accepted images" in page.stderr
    counted = run(app, ["review", str(directory), "--answers", *map(str, files)])
    assert counted.exit_code == 0, counted.output
    assert "88.9 (" in counted.stdout and str(directory / "review") in counted.stdout
    assert (
        f"rater-3 ({files[2]}, “B.”)" in counted.stderr and "FAILED the controls" in counted.stderr
    )
    as_json = run(app, ["review", str(directory), "--answers", *map(str, files), "--json"])
    assert json.loads(as_json.stdout)["raters"][2]["failed_controls"] is True
    assert "This replaces the earlier answers of 3 people." in as_json.stderr


def test_mistakes_of_the_command_exit_2(colours: Path, files: list[Path]) -> None:
    def refused(*words: str) -> str:
        result = CliRunner().invoke(app, ["review", str(colours), *words])
        error = result.exception
        assert isinstance(error, UserError) or result.exit_code == 2
        return str(error) if isinstance(error, UserError) else result.stderr

    shown = refused("--answers", str(files[0]), "--images", "3", "--task", "class", "--open")
    for other in ("--images", "--task", "--open"):
        assert f"{other} does not go with --answers, which writes no page" in shown
    assert "found 'dsk'" in refused("--shift", "dsk")
    assert "beauty" in refused("--task", "beauty")
    assert "does not exist" in refused("--answers", "nowhere.json")
