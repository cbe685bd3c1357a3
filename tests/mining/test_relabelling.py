"""Wrong labels among images that exist: mining finds them as a failure, says that they may be wrong, and lists them."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from mined_sneakers import WORLD

from counterfoil.cli.mine import _print as print_result
from counterfoil.csv_text import csv_text
from counterfoil.errors import UserError
from counterfoil.mining.audited import opened_parts, refuse_unknown_rows
from counterfoil.mining.findings import Finding, Findings
from counterfoil.mining.mine_recipe import MineResult, mine
from counterfoil.models.classifiers import load_classifier
from counterfoil.recipe import load_recipe
from counterfoil.sources.labelled_sources import labelled_split

CLASSES = "[{{id: '05', name: sandal, source_label: {}}}, {{id: '07', name: sneaker, source_label: {}}}]"
SANDAL, SNEAKER = 0, 1
FLIPPED = 3  # every so many-th sandal is called a sneaker
PERSON = "Jane Doe"
CUT = f"{PERSON}-cut.png"
ROWS = {"train": 80, "validation": 240}


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """A folder of photographs of which some sandals are called sneakers, and the true class of its validation images.

    Every file's name, which may name a person, begins with `PERSON`. One is no image.
    """
    world = load_recipe("wardrobe-star", [f"source.dataset={WORLD}", f"source.classes={CLASSES.format(5, 7)}"])
    folder, truth = tmp_path_factory.mktemp("relabelled"), {}
    for name, count in ROWS.items():
        split = labelled_split(world.source, name, world.classes)
        labels, units = np.asarray(split.labels), np.asarray(split.units)
        rows = np.concatenate([np.flatnonzero(labels == label)[:count] for label in (SANDAL, SNEAKER)])
        images = dict(split.images(frozenset(split.keys[row] for row in rows)))
        told = labels[rows].copy()
        if name == "validation":
            told[:count:FLIPPED] = SNEAKER
        (folder / name).mkdir()
        listed = []
        for place, row in enumerate(rows):
            file = f"{PERSON}-{place:03d}.png"
            (folder / name / file).write_bytes(images[split.keys[row]] or b"")
            listed.append({"file_name": file, "label": int(told[place]), "garment": f"garment {units[row]}"})
            truth |= {f"{name}/{file}": int(labels[row])}
        if name == "validation":
            (folder / name / CUT).write_bytes(b"no image")
            listed.append({"file_name": CUT, "label": SANDAL, "garment": "garment of none"})
        (folder / name / "metadata.csv").write_text(csv_text(listed))
    return folder, truth


def mined_overrides(folder: Path) -> list[str]:
    return [
        f"source.dataset={folder}",
        f"source.classes={CLASSES.format(SANDAL, SNEAKER)}",
        "tokens=null",
        "mine.train_rows=100",
        "mine.settings.permutations=20",
    ]


@pytest.fixture(scope="module")
def mined(truth: tuple[Path, dict[str, int]], tmp_path_factory: pytest.TempPathFactory) -> MineResult:
    overrides = mined_overrides(truth[0])
    out = tmp_path_factory.mktemp("mined") / "out"
    return mine(
        "wardrobe-star", out, overrides=overrides, target="lab:resnet10t", on=["validation"], device="cpu", workers=1,
        pool="train", pool_rows=2, weights=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def suspected(mined: MineResult) -> list[Finding]:
    return [one for one in mined.findings.standing if one.labels is not None and one.labels.suspected]


def test_a_finding_of_wrong_labels_is_marked(mined: MineResult, suspected: list[Finding]) -> None:
    assert suspected
    for one in suspected:
        assert one.class_names == ("sneaker",) and "perhaps wrong labels" in one.marks
    assert Findings.from_json(mined.files["findings"].read_text()) == mined.findings
    assert (
        "Perhaps not." in mined.files["report"].read_text()
        and "perhaps wrong labels" in mined.files["table"].read_text()
    )


def test_a_recipe_carries_the_mark(mined: MineResult, suspected: list[Finding]) -> None:
    shifts = load_recipe(mined.files["recipe"]).prompts.shifts
    marked = {
        name for name, shift in shifts.items() if "perhaps wrong labels" in (shift.mined_from or {}).get("marks", ())
    }
    assert marked and marked <= {one.name for one in suspected}


def test_the_command_tells_it(mined: MineResult, suspected: list[Finding], capsys: pytest.CaptureFixture[str]) -> None:
    print_result(mined)
    told = " ".join(capsys.readouterr().out.split())
    count = len(mined.findings.standing)
    assert f"{len(suspected)} of {count} may be wrong labels and no failures: look at the images of relabel.csv" in told
    assert "relabel.csv" in told.split("relabel:")[1]
    assert f"1 image cannot be decoded and is left out: validation/{CUT}." in told


def test_files_are_named_where_rows_are_told_and_in_no_recipe(
    mined: MineResult, truth: tuple[Path, dict[str, int]]
) -> None:
    files = [path for path in mined.directory.iterdir() if path.is_file()]
    holding = {path.name for path in files if PERSON.encode() in path.read_bytes()}
    assert holding == {"findings.json", "relabel.csv", "report.html"}
    assert {"recipe.yaml", "pool.yaml", "weights.parquet"} <= {path.name for path in files}
    for one in mined.findings.confirmed:
        assert one.evidence and all(piece.path in truth[1] for piece in one.evidence)
        assert one.caption_check is None or all(image.path in truth[1] for image in one.caption_check.nearest)


def test_files_may_answer_by_path(truth: tuple[Path, dict[str, int]], mined: MineResult, tmp_path: Path) -> None:
    recipe = load_recipe("wardrobe-star", mined_overrides(truth[0]))
    (part,) = opened_parts(recipe, ["validation"])
    answers = tmp_path / "answers.csv"
    rows = [{"path": path, "class_id": ("05", "07")[label]} for path, label in truth[1].items()]
    rows = [row for row in rows if row["path"].startswith("validation/")]
    answers.write_text(csv_text(rows))
    refuse_unknown_rows(load_classifier(f"predictions:{answers}", classes=recipe.classes), [part])
    answers.write_text(csv_text([*rows, {"path": "validation/another.png", "class_id": "05"}]))
    with pytest.raises(UserError, match=r"answers 1 images that are not of .*: validation/another\.png"):
        refuse_unknown_rows(load_classifier(f"predictions:{answers}", classes=recipe.classes), [part])


def test_rows_to_relabel_are_those_with_a_wrong_label(
    mined: MineResult, suspected: list[Finding], truth: tuple[Path, dict[str, int]]
) -> None:
    listed = list(csv.DictReader(io.StringIO(mined.files["relabel"].read_text())))
    assert len({row["key"] for row in listed}) == len(listed) >= 10
    assert {(row["label"], row["suggested"]) for row in listed} == {("sneaker", "sandal")}
    assert np.mean([truth[1][row["path"]] == SANDAL for row in listed]) >= 0.8
    assert {name for row in listed for name in row["findings"].split()} <= {one.name for one in suspected}
    for one in suspected:
        assert sum(one.name in row["findings"].split() for row in listed) == (one.labels and one.labels.mislabelled)
