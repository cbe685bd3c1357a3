"""The card says plainly when images are there because a model failed, by which models, and at what yield."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from card_cases import Judge, all_candidates, build, judged, plan_of
from markdown_it import MarkdownIt

from counterfoil.card import markdown
from counterfoil.plan import Sample
from counterfoil.report.results import ResultRow
from counterfoil.report.transfer import Transfer, TransferModel, transfer_tables
from results_examples import results

SECTION = re.compile(r"## Chosen because a model failed\n.*?(?=\n## )", re.DOTALL)
ONE = "[thresholds, {misclassified: {models: ['lab:resnet10t']}}]"
TWO = "[thresholds, {misclassified: {models: ['lab:resnet10t', 'lab:lcnet_035'], at_least: 2}}]"


def wrong(sample: Sample) -> str:
    """Of what the screen lets through under a shift, the judge is right about all but every third."""
    reason = judged(sample)
    chosen = reason == "accepted" and sample.shift in ("snow", "starry") and sample.index % 3
    return "answered_right" if chosen else reason


def section(folder: Path, *changes: str, judge: Judge = wrong) -> str:
    found = SECTION.search(build(folder, plan_of(*changes), judge).readme)
    assert found
    return found[0]


def rows_of(said: str) -> list[list[str]]:
    found: list[list[str]] = []
    for token in MarkdownIt("commonmark").enable("table").parse(said):
        if token.type == "tr_open":
            found.append([])
        elif token.type == "inline" and found and token.level > 2:
            found[-1].append(token.content.replace("`", "").strip())
    return found


def test_it_names_the_judge_and_the_yield_of_each_shift(tmp_path: Path) -> None:
    changes = (f"prompts.shifts.starry.keep={ONE}", f"prompts.shifts.snow.keep={ONE}")
    said = section(tmp_path, *changes)
    assert (
        "**The images of 2 of 4 shifts are here because a classifier answered them wrongly**: `lab:resnet10t`" in said
    )
    assert "It had to be wrong about each of them. **The accuracy of this model on them means nothing**" in said
    header, *rows = rows_of(said)
    reasons = [(one.sample.shift, one.reason) for one in all_candidates(plan_of(*changes), wrong)]
    assert [row[0] for row in rows] == ["snow", "starry"]
    for row in rows:
        own = [why for shift, why in reasons if shift == row[0]]
        kept, right = own.count("accepted"), own.count("answered_right")
        assert kept and right
        assert dict(zip(header, row, strict=True)) == {
            "Shift": row[0],
            "Judges": "lab:resnet10t",
            "Wrong at least": "1 of 1",
            "Drawn": str(len(own)),
            "Passed the screen": str(kept + right),
            "Wrong": str(kept),
            "Kept": str(kept),
            "Drawn for each kept": f"{len(own) / kept:.1f}",
        }


def test_it_says_how_many_of_several_had_to_be_wrong(tmp_path: Path) -> None:
    said = section(tmp_path / "two", f"screen.keep={TWO}")
    assert "**The images of every shift are here because classifiers answered them wrongly**" in said
    assert (
        "Of 2 judges of a shift, each had to be wrong. **The accuracy of these models on them means nothing**" in said
    )
    both = section(tmp_path / "both", f"screen.keep={TWO}", f"prompts.shifts.starry.keep={ONE}")
    assert "Of 1 judge of a shift, at least 1 had to be wrong; of 2 judges of a shift, each had to be wrong." in both


def test_it_says_what_wrong_is_where_that_is_not_the_first_answer(tmp_path: Path) -> None:
    assert "failure rule" not in section(tmp_path / "one", f"screen.keep={ONE}")
    by = {rule: ONE.replace("]}", f"], failure: '{rule}'}}") for rule in ("top3", "answered:n02012849")}
    said = section(
        tmp_path / "by", f"prompts.shifts.starry.keep={by['top3']}", f"screen.keep={by['answered:n02012849']}"
    )
    told = "Wrong is, by the failure rule of a shift, `answered:n02012849`: it answers that class; or `top3`: the label"
    assert f"{told} is not among the first three answers. **The accuracy" in said


def test_a_shift_of_which_nothing_was_kept_has_no_yield(tmp_path: Path) -> None:
    rows = rows_of(section(tmp_path, f"prompts.shifts.nowhere.keep={ONE}"))
    assert rows[1][-2:] == ["0", "–"]


def test_nothing_of_it_where_no_classifier_was_asked(tmp_path: Path) -> None:
    card = build(tmp_path, plan_of())
    assert "because a model failed" not in card.readme and b"answered them wrongly" not in card.croissant


def test_croissant_says_it_too(tmp_path: Path) -> None:
    card = build(tmp_path, plan_of(f"screen.keep={ONE}"), wrong)
    told = json.dumps(json.loads(card.croissant))
    assert "classifiers answered them wrongly: lab:resnet10t" in told
    assert "classifiers answered them wrongly: lab:resnet10t" in card.readme


def test_transfer_is_told_by_kinship_over_all_shifts() -> None:
    models = (TransferModel("lab:vit | `x`", "vit", "other"), TransferModel("lab:resnet10t", "vit", "judge"))
    judge = Transfer("lab:resnet10t", "resnet10t", "resnet", True, 3, 9, (), models)
    rows = []
    for model in models:
        own = ResultRow("transfer", model=model.name, against=judge.judge, at="top1", value=0.5, low=0.25, high=0.75)
        rows += [own, replace(own, measure="transfer_base", value=0.125), replace(own, group="snow", value=0.9)]
    rows[0] = replace(rows[0], low=None, high=None, note="by construction")
    [table] = transfer_tables(judge, results(1, 0, rows), short=False)
    shown = [line.split(" | ") for line in markdown.table(table).splitlines()]
    assert shown[0] == ["| Model", "Family", "To the judge", "Wrong, top-1", "Base, top-1 |"], "no model ranks three"
    assert shown[2][0] == "| `lab:resnet10t`" and shown[3][0] == "| `` lab:vit \\| `x` ``"
    assert shown[2][3:] == ["50.0 (25.0 to 75.0)", "12.5 |"] and shown[3][-2:] == ["50.0 (by construction)", "12.5 |"]


@pytest.mark.parametrize("format", ["parquet", "webdataset"])
def test_the_table_of_yields_stays_the_one_that_is_verified(format: str, tmp_path: Path) -> None:
    from counterfoil.store.reading import read_receipts
    from counterfoil.verification.card_counts import yield_faults

    change = f"screen.keep={ONE}"
    readme = build(tmp_path, plan_of(change, f"output.format={format}"), wrong).readme
    assert list(yield_faults(readme, read_receipts(tmp_path))) == []
