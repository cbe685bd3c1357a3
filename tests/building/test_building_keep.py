"""A build that keeps the best of each cell: whole, verified, and cut again by other rules without
rendering."""

from __future__ import annotations

import io
import json
import shutil
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from PIL import Image
from timm.data.config import resolve_model_data_config
from timm.data.transforms_factory import create_transform
from timm.models import save_for_hf

from counterfoil.building.build_dataset import build
from counterfoil.building.regenerate_dataset import regenerate
from counterfoil.dataset.verification import verify
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.evaluation import evaluate
from counterfoil.models.classifiers import load_classifier
from counterfoil.models.names import LAB_WEIGHTS
from counterfoil.recipe import load_recipe
from counterfoil.reviewing.recut_dataset import recut
from counterfoil.store.layout import What
from counterfoil.store.reading import read_receipts, read_rows
from loopback_hub import LoopbackHub
from support.built_rows import published_rows, table_rows
from tiny_builds import (
    CLASSES,
    SHIFTS,
    build_arguments,
    killed,
    published,
    tiny,
)

TOP = ("screen.keep=[thresholds, {top: {k: 1, by: shift}}]", "screen.keep_rejected=true")


@pytest.fixture(scope="module")
def best(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("best") / "dataset"
    tiny(out, *TOP)
    return out


def reasons(directory: Path) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {}
    for row in read_rows(directory, columns=["shift", "reason"], what="candidates"):
        counts.setdefault(row["shift"], Counter())[row["reason"]] += 1
    return counts


def test_the_best_of_each_cell_is_kept_and_the_base_whole(best: Path) -> None:
    assert reasons(best) == {
        shift: Counter(accepted=6) if shift == "base" else Counter(accepted=3, below_top=3)
        for shift in SHIFTS
    }
    rows = list(
        read_rows(best, columns=["shift", "label", "reason", "shift_score"], what="candidates")
    )
    for shift in SHIFTS[1:]:
        for label in range(3):
            cell = [row for row in rows if (row["shift"], row["label"]) == (shift, label)]
            scores = [row["shift_score"] for row in cell if row["reason"] == "accepted"]
            assert scores == [max(row["shift_score"] for row in cell)]
    assert verify(best).problems == ()


def test_other_rules_are_a_cut_and_the_bytes_of_a_fresh_build(
    best: Path, undisturbed: Path, tmp_path: Path
) -> None:
    (tmp_path / "cut.yaml").write_text("screen: {keep: [thresholds], keep_rejected: false}\n")
    recut(best, tmp_path / "cut.yaml", tmp_path / "cut")
    assert published(tmp_path / "cut") == published(undisturbed)
    (tmp_path / "back.yaml").write_text(
        "prompts: {shifts: {red: {keep: [{top: {k: 1, by: object}}]}}}\n"
    )
    recut(tmp_path / "cut", tmp_path / "back.yaml", tmp_path / "back")
    assert reasons(tmp_path / "back")["red"] == Counter(accepted=3, below_top=3)
    assert reasons(tmp_path / "back")["pencil_sketch"] == Counter(accepted=6)
    assert verify(tmp_path / "back").problems == ()


# A set of what a classifier gets wrong: built, gone on with, verified, cut again, made again,
# published and loaded.


JUDGE = "lab:resnet10t"
WRONG = (
    f"screen.keep=[thresholds, {{misclassified: {{models: ['{JUDGE}', 'lab:lcnet_035']}}}}]",
    "generator.steps=2",
)
# The base is whole; a shift draws until two of a cell are misclassified, or eight are drawn.
QUOTA = (
    *WRONG,
    "screen.keep_rejected=true",
    "prompts.shifts.red.samples={accepted: 2, at_most: 8}",
    "prompts.shifts.in_the_snow.samples={candidates: 5}",
    "prompts.shifts.pencil_sketch=null",
)
REPO = "someone/wrong"
COLUMNS = ("resnet10t_answer", "resnet10t_confidence", "resnet10t_right")


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wrong") / "dataset"
    tiny(out, *QUOTA)
    return out


def rows_of(directory: Path, what: What = "candidates", *more: str) -> list[dict[str, Any]]:
    columns = ["key", "shift", "label", "class_id", *more]
    if what != "data":
        columns.append("reason")
    return table_rows(directory, *columns, what=what, added=True)


def test_only_what_is_answered_wrongly_is_kept_and_the_base_whole(wrong: Path) -> None:
    accepted = list(rows_of(wrong, "data"))
    assert {row["shift"] for row in accepted} == {"base", "in_the_snow", "red"}
    for row in accepted:
        answers = (row["resnet10t_right"], row["lcnet_035_right"])
        assert answers == (None, None) if row["shift"] == "base" else False in answers
    reasons = {row["reason"] for row in rows_of(wrong) if row["shift"] == "base"}
    assert reasons == {"accepted"}
    dropped = [row for row in rows_of(wrong) if row["reason"] == "answered_right"]
    assert all(row["resnet10t_right"] and row["lcnet_035_right"] for row in dropped)


def test_judges_see_what_is_stored(wrong: Path) -> None:
    folder = LAB_WEIGHTS / JUDGE.removeprefix("lab:")
    model: Any = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    prepared: dict[str, Any] = resolve_model_data_config(model, use_test_size=True)
    transform: Any = create_transform(**prepared, is_training=False)
    looked = 0
    for what in ("data", "rejected"):
        for row in rows_of(wrong, what, "image"):
            if row["shift"] == "base":
                continue
            image = Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB")
            with torch.inference_mode():
                shares = model(transform(image)[None])[0].softmax(0)
            assert row["resnet10t_answer"] == int(shares.argmax())
            assert row["resnet10t_confidence"] == pytest.approx(float(shares.max()), abs=1e-4)
            source = load_recipe(wrong).classes[row["label"]].source_label
            assert row["resnet10t_right"] == (row["resnet10t_answer"] == source)
            looked += 1
    assert looked > 20


def test_a_cell_tells_how_many_candidates_filled_it(wrong: Path) -> None:
    receipts = [receipt for receipt in read_receipts(wrong) if receipt.group == "red"]
    filled = {cls: at for receipt in receipts for cls, at in (receipt.filled or {})["red"].items()}
    assert set(filled) == {"00", "05", "08"}
    for class_id, at in filled.items():
        cell = [
            row["reason"]
            for row in rows_of(wrong)
            if (row["shift"], row["class_id"]) == ("red", class_id)
        ]
        accepted = [index for index, reason in enumerate(cell, start=1) if reason == "accepted"]
        assert at == (accepted[1] if len(accepted) == 2 else None)
        assert len(cell) == 12 or (at is not None and len(cell) < at + 4)
    assert all(receipt.filled is None for receipt in read_receipts(wrong) if receipt.group != "red")


def test_it_is_whole_and_its_lock_pins_the_judges(wrong: Path) -> None:
    assert verify(wrong).problems == ()
    lock = json.loads((wrong / "lock.json").read_text())["inputs"]["judges"]
    assert set(lock) == {JUDGE, "lab:lcnet_035"}
    assert lock[JUDGE]["targets"] == [[0], [5], [8]]


@pytest.mark.whole
def test_a_killed_build_goes_on_to_the_same_bytes(wrong: Path, tmp_path: Path) -> None:
    killed(build_arguments(tmp_path / "out", *QUOTA), tmp_path / "out", 3)
    assert tiny(tmp_path / "out", *QUOTA).shards_made < len(read_receipts(wrong))
    assert published(tmp_path / "out") == published(wrong)


def test_other_settings_of_known_judges_are_a_cut_and_without_them_the_plain_dataset_is(
    undisturbed: Path, tmp_path: Path
) -> None:
    """That a cut by answers has the bytes of a fresh build is shown beside second judges."""
    rule = WRONG[0].removeprefix("screen.keep=").replace("]}}", "], at_least: 2}}")
    tiny(tmp_path / "whole", WRONG[0], "screen.keep_rejected=true")
    (tmp_path / "cut.yaml").write_text(f"screen: {{keep: {rule}}}\n")
    recut(tmp_path / "whole", tmp_path / "cut.yaml", tmp_path / "cut")
    assert reasons(tmp_path / "cut") != reasons(tmp_path / "whole")
    for row in rows_of(tmp_path / "cut"):
        right = row["resnet10t_right"], row["lcnet_035_right"]
        kept = row["shift"] == "base" or right == (False, False)
        assert row["reason"] == ("accepted" if kept else "answered_right")
    (tmp_path / "none.yaml").write_text("screen: {keep: thresholds, keep_rejected: false}\n")
    recut(tmp_path / "whole", tmp_path / "none.yaml", tmp_path / "none")
    assert published(tmp_path / "none") == published(undisturbed)


def test_a_judge_that_was_never_asked_is_no_cut(wrong: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.yaml").write_text(
        "screen: {keep: [thresholds, {misclassified: {models: ['lab:resnet14t']}}]}\n"
    )
    with pytest.raises(
        UserError, match="lab:resnet14t did not judge the images of in_the_snow, red"
    ):
        recut(wrong, tmp_path / "cut.yaml", tmp_path / "cut")
    assert not (tmp_path / "cut").exists()


def test_a_judge_elsewhere_is_the_same_by_its_weights(tmp_path: Path) -> None:
    """Weights identify a judge, because a dataset does not name its folder's path; other weights
    are refused."""
    for name, model in (("first", "resnet10t"), ("second", "resnet14t")):
        shutil.copytree(LAB_WEIGHTS / model, tmp_path / name / "judge")

    def keep(name: str) -> str:
        return (
            "screen.keep=[thresholds, {misclassified: {models:"
            f" ['local-dir:{tmp_path / name / 'judge'}']}}}}]"
        )

    few = ("prompts.shifts.red=null", "prompts.shifts.pencil_sketch=null", "samples.candidates=1")
    quota = "prompts.shifts.in_the_snow.samples={accepted: 1, at_most: 4}"
    tiny(tmp_path / "out", *few, quota, keep("first"))
    (tmp_path / "first").rename(tmp_path / "moved")
    with pytest.raises(CounterfoilError, match="folder on the machine that built the dataset"):
        regenerate(tmp_path / "out", tmp_path / "again", device="cpu", workers=1)
    with pytest.raises(UserError, match=r"the judges are not those that lock\.json pins"):
        regenerate(
            tmp_path / "out",
            tmp_path / "again",
            overrides=[keep("second")],
            device="cpu",
            workers=1,
        )
    regenerate(
        tmp_path / "out", tmp_path / "again", overrides=[keep("moved")], device="cpu", workers=1
    )
    assert published(tmp_path / "again") == published(tmp_path / "out")


@pytest.mark.parametrize(
    ("judge", "message"),
    [("lab:resnet10", "did you mean 'resnet10t'"), ("local-dir:/none", "there is no folder /none")],
)
def test_a_judge_that_is_not_there_is_reported_before_a_build(
    judge: str, message: str, tmp_path: Path
) -> None:
    keep = f"screen.keep=[thresholds, {{misclassified: {{models: ['{judge}']}}}}]"
    with pytest.raises((UserError, RunFailure), match=message):
        build("wardrobe-mini", tmp_path / "out", overrides=[CLASSES, keep], device="cpu", workers=1)
    assert not (tmp_path / "out").exists()


def test_it_is_published_and_loaded_with_its_columns(
    wrong: Path, loopback: LoopbackHub, tmp_path: Path
) -> None:
    from_hub = published_rows(wrong, loopback, REPO, tmp_path, "key", *COLUMNS)
    accepted = {row["key"]: row for row in rows_of(wrong, "data")}
    read = {row["key"]: row for row in from_hub}
    assert set(read) == set(accepted)
    for key, row in read.items():
        assert [row[name] for name in COLUMNS] == [accepted[key][name] for name in COLUMNS]


# Judges that are asked by another failure rule than the first answer: what is recorded, kept,
# verified and cut.


KIN = (
    "source.classes=[{id: '00', name: t-shirt, source_label: 0, parent: top}, {id: '05', name:"
    " sandal, source_label: 5,"
    " parent: shoe}, {id: '06', name: shirt, source_label: 6, parent: top}]"
)
# The same images twice, so that two rules are compared on them.
RULES = {"in_the_snow": "answered:00", "red": "top3", "red_again": "parent"}


def keep(failure: str) -> str:
    return f"[thresholds, {{misclassified: {{models: ['{JUDGE}'], failure: '{failure}'}}}}]"


BY_RULE = (
    KIN,
    "generator.size=null",  # its own, at which the judge knows something
    "generator.steps=2",
    "generator.guidance=3.0",
    "samples={candidates: 4, seed: 0, noise: paired}",
    "output.rows_per_shard=12",
    "screen={store_embeddings: false, keep_rejected: true}",
    "prompts.shifts.pencil_sketch=null",
    "prompts.shifts.red_again={prompt: 'a photo of a red {class}', kind: colour}",
    *(f"prompts.shifts.{name}.keep={keep(failure)}" for name, failure in RULES.items()),
)


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build three shifts, each with a failure rule of its own. Read only."""
    out = tmp_path_factory.mktemp("failed") / "dataset"
    tiny(out, *BY_RULE)
    return out


@cache
def first_three(directory: Path) -> dict[str, list[int]]:
    """Return key → the first three outputs for each stored image, by the model's own code alone."""
    model = load_classifier(JUDGE)
    transform = model.transform()
    outputs = {}
    for what in ("data", "rejected"):
        for row in rows_of(directory, what, "image"):
            with Image.open(io.BytesIO(row["image"]["bytes"])) as image:
                logits = model.logits(transform(image.convert("RGB")).unsqueeze(0), "cpu")
            outputs[row["key"]] = torch.topk(logits[0], 3).indices.tolist()
    return outputs


def fails(rule: str, label: int, answers: list[int]) -> bool:
    output = (0, 5, 6)[label]
    if rule == "answered:00":
        return answers[0] == 0 and output != 0
    return not set(answers) & ({0, 6} if rule == "parent" and output != 5 else {output})


def test_what_is_kept_is_what_fails_by_the_rule_of_its_shift(failed: Path) -> None:
    answers = first_three(failed)
    seen = set()
    for row in rows_of(failed):
        failed_found = row["resnet10t_failed"]
        if row["shift"] == "base":
            assert failed_found is None and row["reason"] == "accepted"
            continue
        rule = RULES[row["shift"]]
        assert row["resnet10t_answer"] == answers[row["key"]][0]
        assert row["resnet10t_right"] == (answers[row["key"]][0] == (0, 5, 6)[row["label"]])
        assert failed_found == fails(rule, row["label"], answers[row["key"]])
        assert row["reason"] == ("accepted" if failed_found else "answered_right")
        seen.add((rule, failed_found, row["resnet10t_right"]))
    # Each rule keeps some and drops some, and none of them keeps what is merely not right.
    assert {(rule, failed_found) for rule, failed_found, _ in seen} == {
        (rule, failed_found) for rule in RULES.values() for failed_found in (True, False)
    }
    assert {rule for rule, failed_found, right in seen if not failed_found and not right} == set(
        RULES.values()
    )
    assert verify(failed).problems == ()


def test_a_cut_goes_to_the_first_answer_and_to_no_rule_that_was_not_asked(
    failed: Path, tmp_path: Path
) -> None:
    def cut(name: str, failure: str) -> Path:
        path = tmp_path / f"{name}.yaml"
        path.write_text(f"prompts: {{shifts: {{red: {{keep: {keep(failure)}}}}}}}\n")
        return path

    with pytest.raises(
        UserError,
        match="lab:resnet10t did not judge the images of red by the failure rule 'parent'",
    ):
        recut(failed, cut("other", "parent"), tmp_path / "other")
    recut(failed, cut("first", "top1"), tmp_path / "first")
    rows = rows_of(tmp_path / "first")
    for row in rows:
        if row["shift"] == "red":
            kept = not row["resnet10t_right"]
            assert row["reason"] == ("accepted" if kept else "answered_right")
    # Where the first answer is asked for, nothing of another rule is recorded.
    failed_found = {row["shift"]: row["resnet10t_failed"] for row in rows}
    assert (
        failed_found["red"] is None is failed_found["base"]
        and failed_found["in_the_snow"] is not None
    )
    assert verify(tmp_path / "first").problems == ()


def test_transfer_is_over_what_failed_by_the_rule(failed: Path) -> None:
    evaluation = evaluate(failed, [JUDGE, "lab:lcnet_035"], device="cpu")
    [transfer] = evaluation.transfer
    accepted = [row for row in rows_of(failed, "data") if row["shift"] != "base"]
    assert (
        transfer.images == len(accepted)
        and {shift.name: shift.failure for shift in transfer.shifts} == RULES
    )
    for shift, by_construction in (
        ("red", ["top1", "top3"]),
        ("in_the_snow", ["top1"]),
        ("red_again", ["top1", "top3"]),
    ):
        [judge] = [model.name for model in transfer.models if model.relation == "judge"]
        rates = evaluation.results.rows.where(
            "transfer", model=judge, group=shift, against=transfer.judge
        )
        assert [rate.at for rate in rates if rate.low is None] == by_construction
        assert all(rate.value == 1 for rate in rates if rate.low is None)


def test_a_judge_that_cannot_answer_a_rule_is_reported_before_anything_is_made(
    tmp_path: Path,
) -> None:
    few = tmp_path / "model"
    of_three_outputs(few)
    rule = (
        f"screen.keep=[thresholds, {{misclassified: {{models: ['local-dir:{few}'], failure:"
        " top3}}]"
    )
    with pytest.raises(
        UserError,
        match=r"screen\.keep: misclassified\.failure: the rule 'top3' reads the first 3 answers",
    ):
        build("wardrobe-mini", tmp_path / "out", overrides=[KIN, rule], device="cpu", workers=1)
    assert not (tmp_path / "out").exists()


def of_three_outputs(folder: Path) -> None:
    """Save a classifier of the three classes alone, by their names."""
    names = ["t-shirt", "sandal", "shirt"]
    model: Any = timm.create_model("test_resnet", num_classes=3)
    save_for_hf(model, str(folder), model_config={"label_names": names}, safe_serialization=True)
