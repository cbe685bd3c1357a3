"""Judges that are asked by another failure rule than the first answer: what is recorded, kept, verified and cut."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from PIL import Image
from timm.models import save_for_hf

from counterfoil.building import build
from counterfoil.calibration.recut_dataset import recut
from counterfoil.errors import UserError
from counterfoil.evaluation import evaluate
from counterfoil.models.classifiers import load_classifier
from counterfoil.recipe import load_recipe
from counterfoil.store.layout import What
from counterfoil.store.reading import read_receipts, read_shard
from counterfoil.store.rows import TableForm
from counterfoil.verification import verify
from tiny_builds import published, tiny

JUDGE = "lab:resnet10t"
KIN = (
    "source.classes=[{id: '00', name: t-shirt, source_label: 0, parent: top}, {id: '05', name: sandal, source_label: 5,"
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
    """Three shifts, each with a failure rule of its own. Read only."""
    out = tmp_path_factory.mktemp("failed") / "dataset"
    tiny(out, *BY_RULE)
    return out


def rows_of(directory: Path, what: What = "candidates", *more: str) -> Iterator[dict[str, Any]]:
    form = TableForm.of(load_recipe(directory))
    columns = ["key", "shift", "label", *([] if what == "data" else ["reason"]), *form.added, *more]
    for receipt in read_receipts(directory):
        yield from read_shard(directory, receipt, columns, what, form)


@cache
def first_three(directory: Path) -> dict[str, list[int]]:
    """Key → the first three outputs for each stored image, in no one's code but the model's."""
    model = load_classifier(JUDGE)
    transform, found = model.transform(), {}
    for what in ("data", "rejected"):
        for row in rows_of(directory, what, "image"):
            with Image.open(io.BytesIO(row["image"]["bytes"])) as image:
                logits = model.logits(transform(image.convert("RGB")).unsqueeze(0), "cpu")
            found[row["key"]] = torch.topk(logits[0], 3).indices.tolist()
    return found


def fails(rule: str, label: int, answers: list[int]) -> bool:
    own = (0, 5, 6)[label]
    if rule == "answered:00":
        return answers[0] == 0 and own != 0
    return not set(answers) & ({0, 6} if rule == "parent" and own != 5 else {own})


def test_what_is_kept_is_what_fails_by_the_rule_of_its_shift(failed: Path) -> None:
    answers, seen = first_three(failed), set()
    for row in rows_of(failed):
        told = row["resnet10t_failed"]
        if row["shift"] == "base":
            assert told is None and row["reason"] == "accepted"
            continue
        rule = RULES[row["shift"]]
        assert row["resnet10t_answer"] == answers[row["key"]][0]
        assert row["resnet10t_right"] == (answers[row["key"]][0] == (0, 5, 6)[row["label"]])
        assert told == fails(rule, row["label"], answers[row["key"]])
        assert row["reason"] == ("accepted" if told else "answered_right")
        seen.add((rule, told, row["resnet10t_right"]))
    # Each rule keeps some and drops some, and none of them keeps what is merely not right.
    assert {(rule, told) for rule, told, _ in seen} == {
        (rule, told) for rule in RULES.values() for told in (True, False)
    }
    assert {rule for rule, told, right in seen if not told and not right} == set(RULES.values())


def test_it_is_whole(failed: Path) -> None:
    assert verify(failed).problems == ()


def test_a_cut_goes_to_the_first_answer_and_to_no_rule_that_was_not_asked(failed: Path, tmp_path: Path) -> None:
    def cut(name: str, failure: str) -> Path:
        path = tmp_path / f"{name}.yaml"
        path.write_text(f"prompts: {{shifts: {{red: {{keep: {keep(failure)}}}}}}}\n")
        return path

    with pytest.raises(
        UserError, match="lab:resnet10t was not asked about the images of red by the failure rule 'parent'"
    ):
        recut(failed, cut("other", "parent"), tmp_path / "other")
    recut(failed, cut("first", "top1"), tmp_path / "first")
    tiny(tmp_path / "fresh", *BY_RULE, f"prompts.shifts.red.keep={keep('top1')}")
    assert published(tmp_path / "first") == published(tmp_path / "fresh")
    # Where the first answer is asked for, nothing of another rule is recorded.
    told = {row["shift"]: row["resnet10t_failed"] for row in rows_of(tmp_path / "first")}
    assert told["red"] is None is told["base"] and told["in_the_snow"] is not None
    assert verify(tmp_path / "first").problems == ()


def test_transfer_is_over_what_failed_by_the_rule(failed: Path) -> None:
    found = evaluate(failed, [JUDGE, "lab:lcnet_035"], device="cpu")
    [transfer] = found.transfer
    kept = [row for row in rows_of(failed, "data") if row["shift"] != "base"]
    assert transfer.images == len(kept) and {one.name: one.failure for one in transfer.shifts} == RULES
    for shift, by_construction in (
        ("red", ["top1", "top3"]),
        ("in_the_snow", ["top1"]),
        ("red_again", ["top1", "top3"]),
    ):
        [judge] = [model.name for model in transfer.models if model.relation == "judge"]
        rates = found.results.rows.where("transfer", model=judge, group=shift, against=transfer.judge)
        assert [rate.at for rate in rates if rate.low is None] == by_construction
        assert all(rate.value == 1 for rate in rates if rate.low is None)


def test_a_judge_that_cannot_answer_a_rule_is_told_before_anything_is_made(tmp_path: Path) -> None:
    few = tmp_path / "model"
    of_three_outputs(few)
    rule = f"screen.keep=[thresholds, {{misclassified: {{models: ['local-dir:{few}'], failure: top3}}}}]"
    with pytest.raises(
        UserError, match=r"screen\.keep: misclassified\.failure: the rule 'top3' reads the first 3 answers"
    ):
        build("wardrobe-mini", tmp_path / "out", overrides=[KIN, rule], device="cpu", workers=1)
    assert not (tmp_path / "out").exists()


def of_three_outputs(folder: Path) -> None:
    """A classifier of the three classes alone, by their names."""
    names = ["t-shirt", "sandal", "shirt"]
    model: Any = timm.create_model("test_resnet", num_classes=3)
    save_for_hf(model, str(folder), model_config={"label_names": names}, safe_serialization=True)
