"""Rows that look mislabelled, and the table to relabel."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mined_examples import WORLD

from counterfoil.cli.mine import _print as print_result
from counterfoil.data.labelled_sources import labelled_split
from counterfoil.data.open_source import open_source
from counterfoil.documents import csv_text, parse_document
from counterfoil.errors import UserError
from counterfoil.mining.audited import opened_parts, refuse_unknown_rows
from counterfoil.mining.findings import Finding, Findings, LabelCheck
from counterfoil.mining.label_check import FEWEST, SeenLabels
from counterfoil.mining.mine_recipe import MineResult, mine
from counterfoil.models.classifiers import load_classifier
from counterfoil.recipe import load_recipe
from counterfoil.store.decoding import UNREAD

CLASSES = 3
EACH = 80
WIDTH = 12


def seen(seed: int = 0, per_class: int = EACH) -> SeenLabels:
    """Return clouds around the captions of three classes. Every answer is right, and each row is
    its own unit."""
    rng = np.random.default_rng(seed)
    captions = np.eye(CLASSES, WIDTH, dtype=np.float32)
    truth = np.repeat(np.arange(CLASSES), per_class)
    features = unit(captions[truth] + 0.25 * rng.standard_normal((len(truth), WIDTH)))
    known = np.ones(CLASSES, dtype=bool)
    return SeenLabels(
        features, truth, np.arange(len(truth)), np.ones(len(truth), bool), captions, known
    )


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def flipped(images: SeenLabels, rows: np.ndarray, label: int) -> SeenLabels:
    """Give rows another label but keep their true answers, so that they all fail."""
    labels = images.labels.copy()
    right = images.right.copy()
    labels[rows] = label
    right[rows] = False
    return replace(images, labels=labels, right=right)


@pytest.mark.parametrize("seed", range(2))
def test_rows_with_the_label_of_another_class_look_mislabelled(seed: int) -> None:
    images = seen(seed)
    rows = np.arange(20)
    check, looked = flipped(images, rows, 1).check(rows, images.labels[rows])
    assert check.suspected
    assert check.rows == 20
    assert check.mislabelled >= 15
    assert check.right_share is not None
    assert check.right_share < 0.05
    assert set(looked.others.tolist()) == {0}
    assert sorted(looked.rows.tolist()) == rows.tolist()


@pytest.mark.parametrize("seed", range(2))
def test_what_classifier_and_clip_both_take_for_another_class_is_no_wrong_label(seed: int) -> None:
    images = seen(seed)
    rows = np.arange(20)
    rng = np.random.default_rng(seed)
    features = images.features.copy()
    # The rows are slightly nearer to the other class, by its caption and by its rows, and at the
    # edge of both.
    between = 0.46 * images.captions[0] + 0.54 * images.captions[1]
    features[rows] = unit(between + 0.05 * rng.standard_normal((len(rows), WIDTH)))
    right = images.right.copy()
    right[rows] = False
    check, looked = replace(images, features=features, right=right).check(
        rows, np.ones(len(rows), dtype=np.int64)
    )
    assert (looked.captions > 0).mean() > 0.6
    assert not check.suspected
    assert check.share is not None
    assert check.share < 0.2


def test_neighbours_of_the_same_unit_say_nothing() -> None:
    # Each wrong row has a twin of the same garment with the same wrong label, whose answer counts
    # as right.
    images = seen()
    rows = np.arange(10)
    features = images.features.copy()
    units = images.units.copy()
    features[10:20], units[10:20] = features[:10], units[:10]
    twins = flipped(replace(images, features=features, units=units), np.arange(20), 1)
    right = twins.right.copy()
    right[10:20] = True
    together = replace(twins, right=right)
    apart = replace(together, units=np.arange(len(units)))
    others = np.zeros(10, dtype=np.int64)

    def neighbours(images: SeenLabels) -> np.ndarray:
        _, looked = images.check(rows, others)
        return looked.neighbours[np.argsort(looked.rows)]

    assert (neighbours(apart) < neighbours(together)).all()


def test_a_class_that_clip_does_not_know_is_not_checked() -> None:
    images = seen()
    rows = np.arange(20)
    for unknown in (0, 1):
        known = np.arange(CLASSES) != unknown
        check, _ = flipped(replace(images, known=known), rows, 1).check(
            rows, np.zeros(20, dtype=np.int64)
        )
        assert (
            check.verdict == "not checked"
            and "CLIP may not know" in str(check.reason)
            and not check.suspected
        )


def test_answers_of_no_class_and_few_failures_are_not_checked() -> None:
    images = seen()
    rows = np.arange(20)
    check, _ = flipped(images, rows, 1).check(rows, np.full(20, -1))
    assert check.reason is not None
    few = rows[: FEWEST - 1]
    check, _ = flipped(images, few, 1).check(few, images.labels[few])
    assert "fewer than" in str(check.reason)
    assert check.share is None


def test_a_class_without_right_rows_raises_no_doubt() -> None:
    images = seen()
    rows = np.arange(20)
    nothing_right = replace(
        flipped(images, rows, 1), right=np.zeros(len(images.labels), dtype=bool)
    )
    check, _ = nothing_right.check(rows, np.zeros(20, dtype=np.int64))
    assert check.share == 0
    assert not check.suspected


@given(st.permutations(range(20)))
def test_the_order_of_rows_changes_nothing(order: list[int]) -> None:
    images = flipped(seen(per_class=20), np.arange(20), 1)
    rows = np.asarray(order)
    others = np.zeros(20, dtype=np.int64)
    assert images.check(rows, others)[0] == images.check(np.sort(rows), others)[0]


def test_a_check_is_either_made_or_has_a_reason() -> None:
    right = LabelCheck(8, 4, 0.5, 0.0, True)
    for wrong in (lambda: replace(right, share=None), lambda: replace(right, reason="none"),
                  lambda: replace(right, mislabelled=9)):  # fmt: skip
        with pytest.raises(ValueError):
            wrong()


RELABELLED = (
    "[{{id: '05', name: sandal, source_label: {}}}, {{id: '07', name: sneaker, source_label: {}}}]"
)

SANDAL = 0
SNEAKER = 1
FLIPPED = 3  # every third sandal is labelled a sneaker
PERSON = "Jane Doe"
CUT = f"{PERSON}-cut.png"
ROWS = {"train": 80, "validation": 240}


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """Write photographs in which some sandals are labelled sneakers. Return the folder and the true
    class by path.

    Every file name begins with `PERSON`, as file names may name people. One file is no image.
    """
    world = load_recipe(
        "wardrobe-star", [f"source.dataset={WORLD}", f"source.classes={RELABELLED.format(5, 7)}"]
    )
    folder = tmp_path_factory.mktemp("relabelled")
    truth = {}
    for name, count in ROWS.items():
        split = labelled_split(world.source, name, world.classes)
        labels = np.asarray(split.labels)
        units = np.asarray(split.units)
        rows = np.concatenate(
            [np.flatnonzero(labels == label)[:count] for label in (SANDAL, SNEAKER)]
        )
        images = dict(split.images(frozenset(split.keys[row] for row in rows)))
        stored_labels = labels[rows].copy()
        if name == "validation":
            stored_labels[:count:FLIPPED] = SNEAKER
        (folder / name).mkdir()
        listed = []
        for index, row in enumerate(rows):
            file = f"{PERSON}-{index:03d}.png"
            (folder / name / file).write_bytes(images[split.keys[row]] or b"")
            listed.append(
                {
                    "file_name": file,
                    "label": int(stored_labels[index]),
                    "garment": f"garment {units[row]}",
                }
            )
            truth |= {f"{name}/{file}": int(labels[row])}
        if name == "validation":
            (folder / name / CUT).write_bytes(b"no image")
            listed.append({"file_name": CUT, "label": SANDAL, "garment": "garment of none"})
        (folder / name / "metadata.csv").write_text(csv_text(listed))
    return folder, truth


def mined_overrides(folder: Path) -> list[str]:
    return [
        f"source.dataset={folder}",
        f"source.classes={RELABELLED.format(SANDAL, SNEAKER)}",
        "tokens=null",
        "mine.train_rows=100",
        "mine.settings.permutations=20",
    ]


@pytest.fixture(scope="module")
def mined(
    truth: tuple[Path, dict[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> MineResult:
    overrides = mined_overrides(truth[0])
    out = tmp_path_factory.mktemp("mined") / "out"
    return mine(
        "wardrobe-star", out, overrides=overrides, target="lab:resnet10t", on=["validation"], device="cpu", workers=1,
        pool="train", pool_rows=2, weights=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def suspected(mined: MineResult) -> list[Finding]:
    return [
        finding
        for finding in mined.findings.standing
        if finding.labels is not None and finding.labels.suspected
    ]


def test_a_finding_of_wrong_labels_is_marked(mined: MineResult, suspected: list[Finding]) -> None:
    assert suspected
    for finding in suspected:
        assert finding.class_names == ("sneaker",)
        assert "perhaps wrong labels" in finding.marks
    assert (
        parse_document(Findings, mined.files["findings"].read_text(), "findings.json")
        == mined.findings
    )
    assert (
        "Perhaps not." in mined.files["report"].read_text()
        and "perhaps wrong labels" in mined.files["table"].read_text()
    )


def test_a_recipe_carries_the_mark(mined: MineResult, suspected: list[Finding]) -> None:
    shifts = load_recipe(mined.files["recipe"]).prompts.shifts
    marked = {
        name
        for name, shift in shifts.items()
        if "perhaps wrong labels" in (shift.mined_from or {}).get("marks", ())
    }
    assert marked
    assert marked <= {finding.name for finding in suspected}


def test_the_command_tells_it(
    mined: MineResult, suspected: list[Finding], capsys: pytest.CaptureFixture[str]
) -> None:
    print_result(mined)
    shown = " ".join(capsys.readouterr().out.split())
    count = len(mined.findings.standing)
    assert (
        f"{len(suspected)} of {count} may be wrong labels, not failures: look at the images in"
        " relabel.csv" in shown
    )
    assert "relabel.csv" in shown.split("relabel:")[1]
    assert f"1 image cannot be read ({UNREAD}) and is left out: validation/{CUT}." in shown


def test_files_are_named_where_rows_are_told_and_in_no_recipe(
    mined: MineResult, truth: tuple[Path, dict[str, int]]
) -> None:
    files = [path for path in mined.directory.iterdir() if path.is_file()]
    holding = {path.name for path in files if PERSON.encode() in path.read_bytes()}
    assert holding == {"findings.json", "relabel.csv", "report.html"}
    assert {"recipe.yaml", "pool.yaml", "weights.parquet"} <= {path.name for path in files}
    for finding in mined.findings.confirmed:
        assert finding.evidence
        assert all(piece.path in truth[1] for piece in finding.evidence)
        assert finding.caption_check is None or all(
            image.path in truth[1] for image in finding.caption_check.nearest
        )


def test_files_may_answer_by_path(truth: tuple[Path, dict[str, int]], tmp_path: Path) -> None:
    recipe = load_recipe("wardrobe-star", mined_overrides(truth[0]))
    (part,) = opened_parts(recipe, ["validation"], open_source(recipe.source))
    answers = tmp_path / "answers.csv"
    rows = [{"path": path, "class_id": ("05", "07")[label]} for path, label in truth[1].items()]
    rows = [row for row in rows if row["path"].startswith("validation/")]
    answers.write_text(csv_text(rows))
    refuse_unknown_rows(load_classifier(f"predictions:{answers}", classes=recipe.classes), [part])
    answers.write_text(csv_text([*rows, {"path": "validation/another.png", "class_id": "05"}]))
    with pytest.raises(
        UserError, match=r"answers 1 images that are not of .*: validation/another\.png"
    ):
        refuse_unknown_rows(
            load_classifier(f"predictions:{answers}", classes=recipe.classes), [part]
        )


def test_rows_to_relabel_are_those_with_a_wrong_label(
    mined: MineResult, suspected: list[Finding], truth: tuple[Path, dict[str, int]]
) -> None:
    listed = list(csv.DictReader(io.StringIO(mined.files["relabel"].read_text())))
    assert len({row["key"] for row in listed}) == len(listed) >= 10
    assert {(row["label"], row["suggested"]) for row in listed} == {("sneaker", "sandal")}
    assert np.mean([truth[1][row["path"]] == SANDAL for row in listed]) >= 0.8
    assert {name for row in listed for name in row["findings"].split()} <= {
        finding.name for finding in suspected
    }
    for finding in suspected:
        assert sum(finding.name in row["findings"].split() for row in listed) == (
            finding.labels and finding.labels.mislabelled
        )
