"""Faults that no hash shows: rows, images, counts and cards that are wrong although receipts and
manifest agree."""

from __future__ import annotations

import io
import json
import math
import re
import shutil
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doctored import (
    Rows,
    decoded,
    doctor,
    named,
    path_of,
    problem_of,
    receipt_with,
    restate,
    with_receipt,
)

from counterfoil.dataset.verification import Problem, verify
from counterfoil.dataset.verification.problems import ProblemsFound, Repairs
from counterfoil.dataset.verification.shards import RowFaults, check_judged, check_measured
from counterfoil.dataset.verification.verify_dataset import check_card
from counterfoil.plan.layout import make_plan
from counterfoil.recipe import load_recipe
from counterfoil.store.layout import What
from counterfoil.store.manifest import write_manifest
from counterfoil.store.reading import read_receipts
from support.files import edit
from support.images import encoded

NOBODY = "base_00_000077"
TWICE = "repeated members|appears more than once"


def setting(**values: Any) -> Callable[[Rows], Rows]:
    """Return a change that sets columns of the second row."""

    def change(rows: Rows) -> Rows:
        return [rows[0], {**rows[1], **values}, *rows[2:]]

    return change


def with_image(make: Callable[[bytes], bytes]) -> Callable[[Rows], Rows]:
    def change(rows: Rows) -> Rows:
        image = rows[1]["image"]
        return setting(image={**image, "bytes": make(image["bytes"])})(rows)

    return change


def cropped(image: bytes) -> bytes:
    format = "JPEG" if image[:2] == b"\xff\xd8" else "PNG"
    return encoded(decoded(image)[:16, :16], format)


WRONG_ROWS: dict[str, tuple[What, Callable[[Rows], Rows], Sequence[str]]] = {
    "planned values": (
        "candidates",
        setting(
            label=2, class_id="77", shift="red", index=7, pair="00_000000", prompt="a cat", seed=5
        ),
        (
            "label is 2, expected",
            'class_id is "77", expected',
            'shift is "red", expected "base"',
            "index is 7, expected 1",
            "pair is",
            'prompt is "a cat", expected',
            "seed is 5, expected",
        ),
    ),
    "measured values": (
        "candidates",
        setting(shift_score=0.5, object_threshold=0.5, reason="low_shift"),
        (
            "shift_score is 0.5, expected none",
            "object_threshold is 0.5, expected",
            'reason is "low_shift", expected',
        ),
    ),
    "values of an image": (
        "data",
        setting(label=2, object_score=0.125),
        ("label is 2, expected", "object_score is 0.125, expected"),
    ),
    "label out of range": ("data", setting(label=99), ["label is 99, expected"]),
    "no number": ("candidates", setting(object_score=math.nan), ["object_score is nan"]),
    "unknown key": ("data", setting(key=NOBODY), ["no candidate of this file has this key"]),
    "key of nobody": (
        "candidates", setting(key=NOBODY), ["the plan has no sample with this key"],
    ),
    "twice": ("data", lambda rows: [rows[0], rows[0], *rows[1:]], [TWICE]),
    "twice a candidate": ("candidates", lambda rows: [*rows, rows[1]], [TWICE]),
    "order": ("data", lambda rows: [rows[1], rows[0], *rows[2:]], ["out of order"]),
    "order of candidates": ("candidates", lambda rows: rows[::-1], ["out of order"]),
    "missing": ("data", lambda rows: rows[:-1], ["the row is missing"]),
    "missing candidate": ("candidates", lambda rows: rows[1:], ["the row is missing"]),
    "undecodable": (
        "data", with_image(lambda image: image[: len(image) // 2]), ["does not decode"],
    ),
    "no image": ("data", with_image(lambda image: b"GIF89a"), ["does not decode"]),
    "other size": ("data", with_image(cropped), ["its image is 16×16, expected 32×32"]),
    "other format": (
        "data", with_image(lambda image: encoded(decoded(image), "WEBP")), ["its image is WEBP"],
    ),
}  # fmt: skip
# Faults that are looked for in tar files too, whose rows are other files.
OF_TARS = (
    "planned values",
    "twice",
    "twice a candidate",
    "order",
    "missing",
    "undecodable",
    "other format",
)


@pytest.mark.parametrize(
    ("format", "name"),
    [*(("parquet", name) for name in WRONG_ROWS), *(("webdataset", name) for name in OF_TARS)],
)
def test_a_wrong_row_is_named(
    format: str, name: str, datasets: dict[str, Path], tmp_path: Path
) -> None:
    what, change, messages = WRONG_ROWS[name]
    dataset = Path(shutil.copytree(datasets[format], tmp_path / "dataset"))
    receipt = receipt_with(dataset, what)
    path = doctor(dataset, receipt, what, change)
    verification = verify(dataset)
    lines = "\n".join(problem.what for problem in problem_of(verification, path))
    assert all(re.search(message, lines) for message in messages), verification.problems
    assert {problem.repair for problem in problem_of(verification, path)} == {
        f"rm {dataset / receipt.path} && counterfoil build --from {dataset} --out {dataset}"
    }
    # The card and receipts count rows, the other tables of the shard know the same rows; no other
    # shard is blamed.
    expected = {"README.md", "_info.json", receipt.path, *(file.path for file in receipt.files)}
    assert named(verification) <= expected


def test_many_wrong_rows_are_one_problem_with_their_number(parquet: Path) -> None:
    receipt = receipt_with(parquet, "candidates", 4)
    path = doctor(parquet, receipt, "candidates", lambda rows: [{**row, "seed": 5} for row in rows])
    problems = [problem.what for problem in problem_of(verify(parquet), path)]
    assert problems == [problems[0]] and "(and 3 more such rows)" in problems[0]


def test_another_shards_file_in_the_place_of_one_is_found_by_its_keys(parquet: Path) -> None:
    receipts = read_receipts(parquet)
    for what in ("data", "candidates"):
        receipt, other = next(
            pair
            for pair in pairwise(receipts)
            if pair[0].group == pair[1].group and all(r.rows["data"] for r in pair)
        )
        shutil.copyfile(parquet / path_of(other, what), parquet / path_of(receipt, what))
        restate(parquet, receipt, path_of(receipt, what), other.rows[what])
        verification = verify(parquet)
        problems = [problem.what for problem in problem_of(verification, path_of(receipt, what))]
        assert any("key" in line for line in problems) and any(
            "the row is missing" in line for line in problems
        )
        assert not problem_of(verification, path_of(other, what))


def test_a_file_of_other_columns_is_reported_apart(dataset: Path) -> None:
    receipt = receipt_with(dataset, "data")
    shutil.copyfile(dataset / path_of(receipt, "candidates"), dataset / path_of(receipt, "data"))
    restate(dataset, receipt, path_of(receipt, "data"))
    problems = problem_of(verify(dataset), path_of(receipt, "data"))
    assert "missing columns: image" in problems[0].what


def test_parquet_that_names_other_classes_is_reported_apart(parquet: Path) -> None:
    import pyarrow.parquet as pq

    receipt = receipt_with(parquet, "data")
    path = path_of(receipt, "data")
    table = pq.read_table(parquet / path)
    features = json.loads(table.schema.metadata[b"huggingface"])
    features["info"]["features"]["label"]["names"][0] = "hat"
    pq.write_table(
        table.replace_schema_metadata({"huggingface": json.dumps(features)}), parquet / path
    )
    restate(parquet, receipt, path)
    assert any("class names" in problem.what for problem in problem_of(verify(parquet), path))


def test_a_tar_with_a_member_twice_is_reported(tars: Path) -> None:
    receipt = receipt_with(tars, "data")
    path = path_of(receipt, "data")
    with tarfile.open(tars / path, "a:") as tar:
        name = tar.getnames()[-1]
        tar.addfile(tarfile.TarInfo(name), io.BytesIO(b""))
    restate(tars, receipt, path)
    problems = [problem.what for problem in problem_of(verify(tars), path)]
    assert f"has repeated members: {name}" in problems


@pytest.mark.parametrize(
    ("format", "contents"),
    [
        ("parquet", [b"", b"PAR1", b"PAR1" * 20]),
        ("webdataset", [b"", bytes(1024), b"\x1f\x8b" + bytes(600)]),
    ],
)
def test_bytes_that_no_reader_takes_are_a_problem_and_no_traceback(
    format: str, contents: list[bytes], datasets: dict[str, Path], tmp_path: Path
) -> None:
    dataset = Path(shutil.copytree(datasets[format], tmp_path / "dataset"))
    paths = {path_of(receipt_with(dataset, what), what) for what in ("data", "candidates")}
    for content in contents:
        for path in paths:
            receipt = next(r for r in read_receipts(dataset) if path in {f.path for f in r.files})
            (dataset / path).write_bytes(content)
            restate(dataset, receipt, path)
        assert paths <= named(verify(dataset))


def counts_of(receipt: dict[str, Any], **counts: int) -> dict[str, Any]:
    return {"counts": dict.fromkeys(receipt["counts"], counts)}


def other_file(receipt: dict[str, Any], **changes: str) -> dict[str, Any]:
    first, *others = receipt["files"]
    return {"files": [first | changes, *others]}


def accepted_and_low(receipt: dict[str, Any]) -> dict[str, Any]:
    accepted = receipt["rows"]["data"]
    return counts_of(receipt, accepted=accepted, low_shift=receipt["rows"]["candidates"] - accepted)


# By receipt: what is changed in it, and what is said.
WRONG_RECEIPTS: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "base-00000": (accepted_and_low, "has counts that differ from the candidates"),
    "base-00001": (
        lambda r: {"counts": {"red": r["counts"]["base"]}}, "counts the shifts red, expected base",
    ),
    "red-00000": (lambda r: counts_of(r, accepted=9), "counts 9 accepted"),
    "red-00001": (lambda r: {"hashes": r["hashes"] | {"plan": "0" * 64}}, "belongs to another dataset"),
    "in_the_snow-00000": (lambda r: {"shard": 1}, "files of another shard"),
    "in_the_snow-00001": (lambda r: other_file(r, path="../../etc/passwd"), "files of another shard"),
    "pencil_sketch-00000": (lambda r: {"rows": [1, 2]}, "is not of the form"),
    "pencil_sketch-00001": (lambda r: other_file(r, size="12"), "is not of the form"),
}  # fmt: skip


def test_wrong_receipts_are_named(parquet: Path) -> None:
    for receipt in read_receipts(parquet):
        change, _ = WRONG_RECEIPTS[Path(receipt.path).stem]
        with_receipt(parquet, receipt, **json.loads(json.dumps(change(asdict(receipt)))))
    verification = verify(parquet)
    for name, (_, message) in WRONG_RECEIPTS.items():
        problems = problem_of(verification, f"receipts/{name}.json")
        assert any(message in problem.what for problem in problems), (name, problems)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("num_examples: ", "num_examples: 1", "but its files have"),
        ("num_examples: ", "num_examples: [1, 2] # ", "but its files have"),
        ("num_bytes: ", "num_bytes: 1", "but its files have"),
        ("candidates/base/", "candidates/bsae/", "has no config that loads"),
        ("- config_name: candidates\n  data_", "- config_name: other\n  data_", "has no entry in"
            " dataset_info for"),
        ("---\n", "", "cannot be read"),
    ],
)  # fmt: skip
def test_a_card_that_counts_otherwise_is_named(
    parquet: Path, old: str, new: str, message: str
) -> None:
    card = parquet / "README.md"
    text = card.read_text()
    receipts = read_receipts(parquet)
    assert old in text
    card.write_text(text.replace(old, new, 1))
    findings = ProblemsFound(Repairs(parquet))
    check_card(parquet, receipts, findings)
    problems = findings.problems()
    assert {problem.path for problem in problems} == {"README.md"}
    assert any(message in problem.what for problem in problems), problems


def test_the_table_of_yields_is_counted(parquet: Path) -> None:
    card = parquet / "README.md"
    lines = card.read_text().splitlines(keepends=True)
    (at,) = [
        number
        for number, line in enumerate(lines)
        if line.startswith("| `pencil_sketch` | `a black")
    ]
    cells = lines[at].split(" | ")
    cells[5] = "1,999"
    lines[at] = " | ".join(cells)
    card.write_text("".join(lines))
    write_manifest(parquet, {})
    problems = [str(problem) for problem in verify(parquet).problems]
    assert len(problems) == 1 and "has 1,999 for pencil_sketch under" in problems[0]


def problem_of_other(directory: Path, name: str, change: Callable[[Any], object]) -> Problem:
    """Change a JSON document, which the manifest then lists, and return the one problem of it."""
    edit(directory / name, change)
    write_manifest(directory, {})
    (problem,) = verify(directory).problems
    assert problem.path == name
    return problem


def test_thresholds_must_be_those_of_the_lock(with_tokens: Path) -> None:
    problem = problem_of_other(
        with_tokens,
        "thresholds.json",
        lambda values: values["object"]["base"]["05"].update(value=0.9),
    )
    assert problem.code == "changed-file"
    assert "lock.json" in problem.what


def test_tokens_must_be_those_of_the_lock(with_tokens: Path) -> None:
    shutil.copyfile(with_tokens / "tokens/08.safetensors", with_tokens / "tokens/05.safetensors")
    write_manifest(with_tokens, {})
    (problem,) = verify(with_tokens).problems
    assert (problem.path, problem.code) == ("tokens/05.safetensors", "changed-file")
    assert "by lock.json" in problem.what


def test_timms_listing_must_be_that_of_the_receipts(tars: Path) -> None:
    problem = problem_of_other(
        tars, "_info.json", lambda info: info["splits"]["all"].update(num_samples=1)
    )
    assert problem.code == "wrong-card"


def test_croissant_must_have_the_hashes_of_the_files(parquet: Path) -> None:
    nodes = [{"contentUrl": "recipe.yaml", "sha256": "0" * 64}, {"includes": "data/*"}]
    for content in (json.dumps({"distribution": nodes}), "{", "[]"):
        (parquet / "croissant.json").write_text(content)
        write_manifest(parquet, {})
        assert [problem.path for problem in verify(parquet).problems] == ["croissant.json"]


def test_images_of_another_size_than_most_are_named(parquet: Path) -> None:
    """Without a size in the recipe, only the other images show the right one."""
    receipt = receipt_with(parquet, "data")
    path = doctor(parquet, receipt, "data", lambda rows: [
        {**row, "image": {**row["image"], "bytes": encoded(np.zeros((16, 16, 3), np.uint8))}} for row in rows
    ])  # fmt: skip
    (problem,) = problem_of(verify(parquet), path)
    assert "its image is 16×16, expected 32×32" in problem.what


def test_what_a_pair_shares_is_what_the_recipe_says(beside_base: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(beside_base, tmp_path / "dataset"))
    receipt = next(receipt for receipt in read_receipts(directory) if receipt.group == "red")
    path = doctor(directory, receipt, "candidates", setting(paired_by="noise"))
    problems = problem_of(verify(directory), path)
    assert any('paired_by is "noise", expected "attention"' in problem.what for problem in problems)


# The recorded failure of a judge, compared with its first answer, the only one recorded.


JUDGE = "lab:resnet10t"
CLASSES = (
    "source.classes=[{id: '00', name: t-shirt, source_label: 0, parent: top}, {id: '05', name:"
    " sandal, source_label: 5,"
    " parent: shoe}, {id: '06', name: shirt, source_label: 6, parent: top}]"
)
PINS: dict[str, dict[str, Any]] = {JUDGE: {"targets": [[0], [5], [6]]}}
T_SHIRT = 0
SANDAL = 5
SHIRT = 6
BAG = 8


def faults_of(rule: str, shift: str = "red", label: int = 0, **changes: Any) -> list[str]:
    keep = f"[thresholds, {{misclassified: {{models: ['{JUDGE}'], failure: '{rule}'}}}}]"
    plan = make_plan(
        load_recipe(
            "wardrobe-mini",
            [
                CLASSES,
                "screen.keep=thresholds",
                "screen.judge=null",
                f"prompts.shifts.red.keep={keep}",
            ],
        )
    )
    row = {"key": "k", "shift": shift, "label": label, "class_id": "00", "object_score": 0.5}
    values = {"answer": BAG, "confidence": 0.5, "right": False, "failed": True} | changes
    faults = RowFaults()
    check_judged(
        [row | {f"resnet10t_{name}": value for name, value in values.items()}],
        shift,
        plan,
        PINS,
        faults,
    )
    return [line.text.removeprefix("is wrong in k: ") for line in faults.lines()]


@pytest.mark.parametrize(
    ("rule", "answer", "failed", "sound"),
    [
        # The second or third answer may be right, so that only an answer that is right itself
        # decides.
        ("top3", BAG, True, True), ("top3", BAG, False, True), ("top3", SHIRT, True, True),
        ("top3", T_SHIRT, False, True), ("top3", T_SHIRT, True, False),
        ("parent", SHIRT, False, True), ("parent", SHIRT, True, False), ("parent", SANDAL, True, True),
        ("parent_any", SHIRT, True, True), ("parent_any", SANDAL, False, True),
        ("answered:05", SANDAL, True, True), ("answered:05", SANDAL, False, False),
        ("answered:05", BAG, True, False), ("answered:05", BAG, False, True),
        ("answered:00", T_SHIRT, True, False), ("answered:00", T_SHIRT, False, True),
    ],
)  # fmt: skip
def test_a_failure_that_a_first_answer_contradicts_is_reported(
    rule: str, answer: int, failed: bool, sound: bool
) -> None:
    faults = faults_of(rule, answer=answer, failed=failed, right=answer == T_SHIRT)
    assert faults == (
        []
        if sound
        else [f"resnet10t_failed is {str(failed).lower()}, which the answer contradicts"]
    )


def test_it_is_reported_exactly_where_its_shift_asks() -> None:
    nothing: dict[str, Any] = {"answer": None, "confidence": None, "right": None}
    assert faults_of("top3", failed=None) == ["resnet10t_confidence is 0.5, expected a probability"]
    assert faults_of("top3", **nothing, failed=None) == [
        "resnet10t_answer is none, expected the judge's answer"
    ]
    assert faults_of("top3", "base", **nothing, failed=None) == []
    assert faults_of("top3", "base", **nothing, failed=True) == [
        "resnet10t_failed is true, expected none"
    ]
    assert faults_of("top1", failed=True) == ["resnet10t_failed is true, expected none"]
    assert faults_of("top1", failed=None) == []


@pytest.mark.parametrize("rule", ["top3", "parent", "answered:05"])
def test_a_label_of_no_class_is_left_to_the_check_of_labels(rule: str) -> None:
    assert faults_of(rule, label=10**18, answer=T_SHIRT) == []


# The measurements of a keep rule: present where it applies, and numbers within its range.


SOUND = {"contrast": 40.0, "black": 0.25, "white": 0.0}
NONE = {"contrast": None, "black": None, "white": None}


def measured_faults(shift: str, object_score: float | None = 0.5, **measured: Any) -> list[str]:
    """Return the faults of one row where the shift red asks and the base does not."""
    plan = make_plan(
        load_recipe(
            "wardrobe-mini",
            [
                "screen.keep=thresholds",
                "screen.judge=null",
                "prompts.shifts.red.keep=[{visible: {}}, thresholds]",
            ],
        )
    )
    faults = RowFaults()
    check_measured(
        [{"key": "k", "shift": shift, "object_score": object_score, **measured}],
        shift,
        plan,
        faults,
    )
    return [line.text.removeprefix("is wrong in k: ") for line in faults.lines()]


def test_a_measure_is_reported_exactly_where_its_shift_asks() -> None:
    assert measured_faults("red", **SOUND) == [] and measured_faults("base", **NONE) == []
    assert len(measured_faults("base", **SOUND)) == len(measured_faults("red", **NONE)) == 3
    assert measured_faults("red", None, **NONE) == []  # rendering failed
    assert measured_faults("red", None, **SOUND) == []  # its scores did, and it was drawn


@pytest.mark.parametrize(
    ("name", "value"), [("contrast", 256.0), ("contrast", -1.0), ("black", 1.5), ("white", -0.5)]
)
def test_what_no_image_has_is_reported(name: str, value: float) -> None:
    assert [line.partition(" ")[0] for line in measured_faults("red", **SOUND | {name: value})] == [
        name
    ]
