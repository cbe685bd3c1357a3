"""The card's sections: failures that chose images, mined shifts, labels, and what fails, as bounded
tables."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from card_cases import INPUTS, Built, Judge, all_candidates, build, describe, judged, plan_of
from markdown_it import MarkdownIt
from test_card import front_matter

import results_examples
from counterfoil import __version__
from counterfoil.dataset.card import markdown
from counterfoil.dataset.card.contact_sheets import Tally
from counterfoil.dataset.card.markdown import markdown_table, without_marks
from counterfoil.dataset.card.sections import (
    MOST_COLUMNS,
    MOST_MODELS,
    MOST_SHIFTS,
    judged_labels,
    mined_of,
    robustness_of,
    statements_of,
)
from counterfoil.dataset.card.tables import input_rows
from counterfoil.errors import RunFailure
from counterfoil.plan.layout import Sample
from counterfoil.recipe import load_recipe
from counterfoil.recipe.schema_mine import LONGEST
from counterfoil.report.reference import ReferenceResult
from counterfoil.report.results import NESTED, ClassFacts, LeftOut, ResultRow, ResultRows, Results
from counterfoil.report.sections import CardSection
from counterfoil.report.transfer import Transfer, TransferModel, transfer_tables
from counterfoil.report.words import Table, TableCell, TableColumn, TableRow
from results_examples import results

SECTION = re.compile(r"## Chosen because a model failed\n.*?(?=\n## )", re.DOTALL)
ONE = "[thresholds, {misclassified: {models: ['lab:resnet10t']}}]"
TWO = "[thresholds, {misclassified: {models: ['lab:resnet10t', 'lab:lcnet_035'], at_least: 2}}]"


def wrong(sample: Sample) -> str:
    """Let the judge be right, of what the screen lets through under a shift, about all but every
    third."""
    reason = judged(sample)
    chosen = reason == "accepted" and sample.shift in ("snow", "starry") and sample.index % 3
    return "answered_right" if chosen else reason


def section(folder: Path, *changes: str, judge: Judge = wrong) -> str:
    match = SECTION.search(describe(folder, plan_of(*changes), judge).readme)
    assert match
    return match[0]


def rows_of(text: str) -> list[list[str]]:
    rows: list[list[str]] = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and rows and token.level > 2:
            rows[-1].append(token.content.replace("`", "").strip())
    return rows


def test_it_names_the_judge_and_the_yield_of_each_shift(tmp_path: Path) -> None:
    changes = (f"prompts.shifts.starry.keep={ONE}", f"prompts.shifts.snow.keep={ONE}")
    text = section(tmp_path, *changes)
    assert (
        "**The images of 2 of 4 shifts are here because a classifier gets them wrong**:"
        " `lab:resnet10t`" in text
    )
    assert (
        "It had to be wrong about each of them. **The accuracy of this model on them means"
        " nothing**" in text
    )
    header, *rows = rows_of(text)
    reasons = [
        (candidate.sample.shift, candidate.reason)
        for candidate in all_candidates(plan_of(*changes), wrong)
    ]
    assert [row[0] for row in rows] == ["snow", "starry"]
    for row in rows:
        outcomes = [why for shift, why in reasons if shift == row[0]]
        kept = outcomes.count("accepted")
        right = outcomes.count("answered_right")
        assert kept and right
        assert dict(zip(header, row, strict=True)) == {
            "Shift": row[0],
            "Judges": "lab:resnet10t",
            "Wrong at least": "1 of 1",
            "Drawn": str(len(outcomes)),
            "Passed the screen": str(kept + right),
            "Wrong": str(kept),
            "Kept": str(kept),
            "Drawn for each kept": f"{len(outcomes) / kept:.1f}",
        }


def test_it_says_how_many_of_several_had_to_be_wrong(tmp_path: Path) -> None:
    text = section(tmp_path, f"screen.keep={TWO}")
    assert "**The images of every shift are here because classifiers get them wrong**" in text
    assert (
        "Of 2 judges of a shift, each had to be wrong. **The accuracy of these models on them means"
        " nothing**" in text
    )
    both = section(tmp_path, f"screen.keep={TWO}", f"prompts.shifts.starry.keep={ONE}")
    assert (
        "Of 1 judge of a shift, at least 1 had to be wrong; of 2 judges of a shift, each had to be"
        " wrong." in both
    )


def test_it_says_what_wrong_is_where_that_is_not_the_first_answer(tmp_path: Path) -> None:
    assert "Failure rule" not in section(tmp_path, f"screen.keep={ONE}")
    by = {
        rule: ONE.replace("]}", f"], failure: '{rule}'}}")
        for rule in ("top3", "answered:n02012849")
    }
    text = section(
        tmp_path / "by",
        f"prompts.shifts.starry.keep={by['top3']}",
        f"screen.keep={by['answered:n02012849']}",
    )
    shown = "Failure rule `answered:n02012849`: it answers that class; or `top3`: the label"
    assert f"{shown} is not among the first three answers. **The accuracy" in text


def test_a_shift_of_which_nothing_was_kept_has_no_yield(tmp_path: Path) -> None:
    rows = rows_of(section(tmp_path, f"prompts.shifts.nowhere.keep={ONE}"))
    assert rows[1][-2:] == ["0", "–"]


def test_nothing_of_it_where_no_classifier_was_asked(tmp_path: Path) -> None:
    card = describe(tmp_path, plan_of())
    assert (
        "because a model failed" not in card.readme
        and "classifiers get them wrong" not in card.croissant
    )


def test_croissant_says_it_too(tmp_path: Path) -> None:
    card = describe(tmp_path, plan_of(f"screen.keep={ONE}"), wrong)
    assert "these classifiers get them wrong: lab:resnet10t" in card.croissant
    assert "these classifiers get them wrong: lab:resnet10t" in card.readme


def test_transfer_is_reported_by_kinship_over_all_shifts() -> None:
    models = (
        TransferModel("lab:vit | `x`", "vit", "other"),
        TransferModel("lab:resnet10t", "vit", "judge"),
    )
    judge = Transfer("lab:resnet10t", "resnet10t", "resnet", True, 3, 9, (), models)
    rows = []
    for model in models:
        row = ResultRow(
            "transfer",
            model=model.name,
            against=judge.judge,
            at="top1",
            value=0.5,
            low=0.25,
            high=0.75,
        )
        rows += [
            row,
            replace(row, measure="transfer_base", value=0.125),
            replace(row, group="snow", value=0.9),
        ]
    rows[0] = replace(rows[0], low=None, high=None, note="by construction")
    [table] = transfer_tables(judge, results(1, 0, rows), short=False)
    shown = [line.split(" | ") for line in markdown.markdown_table(table).splitlines()]
    assert shown[0] == ["| Model", "Family", "To the judge", "Wrong, top-1", "Base, top-1 |"], (
        "no model ranks three"
    )
    assert shown[2][0] == "| `lab:resnet10t`" and shown[3][0] == "| `` lab:vit \\| `x` ``"
    assert shown[2][3:] == ["50.0 (25.0 to 75.0)", "12.5 |"] and shown[3][-2:] == [
        "50.0 (by construction)",
        "12.5 |",
    ]


def test_the_table_of_yields_stays_the_one_that_is_verified(tmp_path: Path) -> None:
    from counterfoil.dataset.verification.verify_dataset import yield_faults
    from counterfoil.store.reading import read_receipts

    readme = build(tmp_path, plan_of(f"screen.keep={ONE}"), wrong).readme
    assert list(yield_faults(readme, read_receipts(tmp_path))) == []


RECORD: dict[str, Any] = {
    "words": "crane | by *starlight*",
    "caption": "a photo of a crane by `starlight`",
    "role": "hard",
    "method": {"name": "directions", "settings": {"folds": 2}},
    "target": {"name": "lab:resnet10t", "sha256": "ab" * 32},
    "set": {"rate": 0.61, "rows": 50},
    "rest": {"rate": 0.09},
    "p": 0.00041,
    "q": 0.0023,
    "classes": ["n02012849", "n03126707"],
}
SECTION_OF_MINED = re.compile(r"## Mined shifts\n.*?(?=\n## )", re.DOTALL)
# Every card has it since a recipe may name a second judge.
LABELS = re.compile(r"## Are the labels true\?\n.*?\n(?=## )", re.DOTALL)
# README.md of `cranes` as it was before there was such a section; the version is cut out of it.
PLAIN = "c379f5d7378217acf0d81d26a170e24579fa2da3de7ec51fc6aa0943be054a2c"


def mined(record: Any, shift: str = "starry") -> str:
    return f"prompts.shifts.{shift}={json.dumps({'kind': 'mined', 'mined_from': record})}"


def section_of_mined(readme: str, pattern: re.Pattern[str] = SECTION_OF_MINED) -> str:
    match = pattern.search(readme)
    assert match
    return match[0]


def test_a_card_without_mined_shifts_keeps_its_bytes(cranes: Built) -> None:
    readme = without_marks(cranes.card.readme)
    assert "ined shift" not in readme
    readme, sections = LABELS.subn("", readme.replace(__version__, "VERSION"))
    assert sections == 1
    assert hashlib.sha256(readme.encode()).hexdigest() == PLAIN


def test_the_section_and_the_recipe_are_all_that_mining_adds(tmp_path: Path) -> None:
    plain, shown = (describe(tmp_path, plan_of(*more)) for more in ((), (mined(RECORD),)))
    without = SECTION_OF_MINED.sub("", shown.readme).replace("\n\n\n## ", "\n\n## ")
    texts = map(without_marks, (plain.readme, without))
    cut = [text.partition("<summary>The recipe</summary>")[0] for text in texts]
    assert cut[0].replace("\n\n\n## ", "\n\n## ") == cut[1]
    assert front_matter(plain.readme) == front_matter(shown.readme)
    assert plain.croissant == shown.croissant


@pytest.mark.parametrize(
    ("marks", "shown"),
    [
        (
            ["words untrusted", "perhaps wrong labels"],
            "crane (perhaps wrong labels, words untrusted)",
        ),
        (["words untrusted", "a stranger's word"], "crane (words untrusted)"),
        ("words untrusted", "crane"),
    ],
)
def test_what_speaks_against_a_finding_stands_beside_its_words(
    marks: Any, shown: str, tmp_path: Path
) -> None:
    readme = describe(tmp_path, plan_of(mined({**RECORD, "words": "crane", "marks": marks}))).readme
    header, row = rows_of(section_of_mined(readme))
    assert dict(zip(header, row, strict=True))["Description"] == shown


def test_it_says_that_they_were_chosen_for_failing_and_what_they_came_from(tmp_path: Path) -> None:
    readme = describe(tmp_path, plan_of(mined(RECORD))).readme
    text = section_of_mined(readme)
    assert (
        "A shift was chosen because the classifier `lab:resnet10t` failed on such images." in text
    )
    assert (
        "**Accuracy on it does not estimate accuracy elsewhere**, neither for this classifier"
        in text
    )
    header, row = rows_of(text)
    assert dict(zip(header, row, strict=True)) == {
        "Shift": "starry",
        "Description": r"crane | by \*starlight\*",
        "Caption": "a photo of a crane by starlight",
        "Role": "hard",
        "Classes": "n02012849, n03126707",
        "Method": "directions",
        "Target": "lab:resnet10t",
        "Target’s sha256": "ab" * 6,
        "Wrong (%)": "61.0",
        "Wrong in the rest (%)": "9.0",
        "p": "0.00041",
        "q": "0.0023",
    }


def test_what_was_tested_in_pairs_is_reported_beside_its_base(tmp_path: Path) -> None:
    pairs = {**RECORD, "tested_on": "pairs"}
    text = section_of_mined(describe(tmp_path, plan_of(mined(pairs))).readme)
    assert "Wrong without it (%)" in rows_of(text)[0] and "the rest" not in text
    assert (
        "compared with images of the same noise without the description; its p is one over its"
        " e-value." in text
    )
    plan = plan_of(mined(pairs), mined(RECORD, "snow"))
    assert (
        "Wrong in the rest, or without it (%)"
        in rows_of(section_of_mined(describe(tmp_path, plan).readme))[0]
    )
    beside = {"role": "reference", "target": RECORD["target"]}  # it has no rates of its own
    plan = plan_of(mined(pairs), mined(beside, "snow"))
    assert "Wrong without it (%)" in rows_of(section_of_mined(describe(tmp_path, plan).readme))[0]
    assert "e-value" not in section_of_mined(describe(tmp_path, plan_of(mined(RECORD))).readme)


def test_others_than_failures_are_reported_to_be_there_for_comparison(tmp_path: Path) -> None:
    plan = plan_of(
        mined(RECORD), mined({**RECORD, "role": "easy", "target": {"name": "lab:other"}}, "snow")
    )
    text = section_of_mined(describe(tmp_path, plan).readme)
    assert (
        "2 shifts were chosen because the classifiers `lab:other`, `lab:resnet10t` failed on such"
        " images" in text
    )
    assert ", or for comparison with these (see their role)." in text
    assert (
        "neither for these classifiers nor for others; nor does a mean over shifts that includes"
        " them." in text
    )


def test_a_rule_that_asks_a_classifier_is_reported(tmp_path: Path) -> None:
    keep = "prompts.shifts.starry.keep=[thresholds, {misclassified: {models: ['lab:resnet10t']}}]"
    assert "A keep rule with `lab:resnet10t` kept only failures" in section_of_mined(
        describe(tmp_path, plan_of(mined(RECORD), keep)).readme
    )


@pytest.mark.parametrize(
    "record",
    [
        None,
        {},
        {"target": 7, "set": [1], "q": "no", "p": True, "classes": "all"},
        {"set": {"rate": 61}, "words": " "},
    ],
)
def test_what_is_not_reported_or_of_another_form_is_a_dash(record: Any, tmp_path: Path) -> None:
    text = section_of_mined(describe(tmp_path, plan_of(mined(record))).readme)
    assert "chosen because a classifier failed on such images." in text
    assert rows_of(text)[1] == ["starry", *["–"] * 11]


HOSTILE = (
    "---\nlicense: stolen\n---\n# Not a title\n```\n</details><script>|\n{{ 7 * 7"
    " }}\x1b[31m\u202e [x](y) "
)
HOSTILE += "z" * 500


def test_hostile_words_stay_text(tmp_path: Path) -> None:
    record = dict.fromkeys(("words", "caption", "role", "method"), HOSTILE)
    record |= {"target": {"name": HOSTILE, "sha256": HOSTILE}, "classes": [HOSTILE] * 50}
    readme = describe(tmp_path, plan_of(mined(record))).readme
    text = section_of_mined(readme)
    assert front_matter(readme)["license"] == "cc0-1.0"
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    assert [token.content for token in tokens if token.type in ("html_block", "fence")] == []
    inline = [child for token in tokens for child in token.children or []]
    assert not [child for child in inline if child.type in ("html_inline", "link_open", "image")]
    assert len(rows_of(text)[1]) == 12
    assert "\x1b" not in text and "\u202e" not in text
    assert text.count("{{ 7 * 7 }}") > 3, "never run as a template"
    assert len(text) < 30 * LONGEST


def test_very_many_are_counted() -> None:
    shifts = {
        f"shift_{n}": {"prompt": f"a {{class}} at {n}", "kind": "mined", "group": "hard"}
        for n in range(150)
    }
    mined_shifts = mined_of(plan_of(f"prompts.shifts={json.dumps(shifts)}").recipe, 100)
    assert mined_shifts and (
        len(mined_shifts.rows),
        mined_shifts.all_shifts,
        mined_shifts.others,
    ) == (100, 150, 4)


def test_a_recipe_without_any_has_no_section(built: Built) -> None:
    assert mined_of(built.plan.recipe, 100) is None


SECTION_OF_LABELS = re.compile(r"## Are the labels true\?\n.*?(?=\n## )", re.DOTALL)
JUDGE = "lab:resnet14t"


def inputs(validation: Any) -> dict[str, Any]:
    return INPUTS | {"judges": {JUDGE: {"validation": validation}}}


def test_without_a_second_judge_it_says_unchecked(tmp_path: Path) -> None:
    shown = section_of_mined(describe(tmp_path, plan_of()).readme, SECTION_OF_LABELS)
    assert "**Unchecked.**" in shown and "`screen.judge`" in shown and "|" not in shown


def test_by_shift_the_numbers_and_the_worst_three_classes() -> None:
    recipe = load_recipe("wardrobe-mini", [f"screen.judge={JUDGE}"])
    ids = [cls.id for cls in recipe.classes]
    judged = {("base", name): (20, 0) for name in ids}
    judged |= {
        ("at_night", name): (10, wrong) for name, wrong in zip(ids, [9, 1, 4, 0, 6], strict=False)
    }
    checks, table, picked = judged_labels(
        recipe, inputs({name: {name: 100} for name in ids}), Tally({}, judged), 100
    )
    rows = {row.cells[0].text: row.cells for row in table.rows}
    assert checks.judge == JUDGE and checks.validated_on == 1000 and not picked
    disagrees, error, worst = rows["at_night"][1:]
    assert disagrees.below == "20 of 50"
    assert disagrees.text.startswith("40.0 (") and error.text.startswith("40.0 (")
    assert [text.partition(" ")[0] for text in worst.text.split("; ")] == [
        "t-shirt",
        "coat",
        "pullover",
    ]
    assert rows["base"][3].text == "–" and rows["base"][1].text.startswith("0.0 (0.0 to ")
    # nothing of it was accepted
    assert [cell.text for cell in rows["red"][1:3]] == ["unchecked", "–"]
    checks, table, _ = judged_labels(recipe, inputs(None), Tally({}, judged), 2)
    assert [row.cells[2].text for row in table.rows] == ["unknown", "–"]
    assert (
        table.more == "and 4 more shifts, in the columns of the rows"
        and checks.validated_on is None
    )


@pytest.mark.parametrize("validation", [{"crane": {"crane": 1}}, {"00": {"00": 10**6}}, "<script>"])
def test_a_lock_of_another_form_is_reported(validation: Any) -> None:
    recipe = load_recipe("wardrobe-mini", [f"screen.judge={JUDGE}"])
    with pytest.raises(RunFailure, match=r"lock\.json: is not a lock that a build wrote"):
        judged_labels(recipe, inputs(validation), Tally({}), 100)


@pytest.mark.parametrize("rows", [False, True])
def test_card_and_croissant_say_who_checked_the_labels(rows: bool) -> None:
    """CLIP's screening is called the only check where it is, and nowhere else."""
    none = "model: null, steps: null, guidance: null, rows: {base: {'00': [0]}}"
    pool = [f"generator={{kind: rows, {none}}}", "samples.noise=independent"] if rows else []

    def note(judge: str, looked_at: bool) -> str:
        recipe = load_recipe("wardrobe-mini", ["tokens=null", f"screen.judge={judge}", *pool])
        pins = INPUTS | {"pool": INPUTS["source"]}
        return statements_of(recipe, input_rows(recipe, pins), 3, 9, looked_at=looked_at)[
            0
        ].annotation

    nobody, judge, people, both = (
        note(judge, looked_at) for looked_at in (False, True) for judge in ("null", JUDGE)
    )
    assert ["only" in text for text in (nobody, judge, people, both)] == [True, False, False, False]
    assert ["No person has" in text for text in (nobody, judge, people, both)] == [
        not rows,
        True,
        False,
        False,
    ]
    assert ["second judge" in text for text in (nobody, judge, people, both)] == [
        False,
        True,
        False,
        True,
    ]
    assert ["people then looked" in text for text in (nobody, judge, people, both)] == [
        False,
        False,
        True,
        True,
    ]


def numbers(models: int, shifts: int) -> Iterator[ResultRow]:
    for number in range(models):
        name = f"model-{number}"
        value = number / 100
        yield ResultRow(
            "accuracy", model=name, group="base", value=value, low=value - 0.1, high=value + 0.1
        )
        for shift in range(shifts):
            key = {"model": name, "group": f"shift_{shift}"}
            yield ResultRow("drop_base", value=0.8, **key)
            yield ResultRow("drop", value=0.2, **key)
            yield ResultRow("relative_drop", value=0.25, **key)
    for shift in range(1, shifts):
        value = shift / 100
        yield ResultRow(
            "impact", group=f"shift_{shift}", value=value, low=value - 0.1, high=value + 0.1
        )


def names(shown: Table) -> list[str]:
    return [row.cells[0].text for row in shown.rows]


def test_the_best_models_and_the_largest_drops_come_first_and_the_rest_is_counted() -> None:
    robustness = robustness_of(results(30, 60, numbers(30, 60)))
    assert names(robustness.models) == [
        f"model-{number}" for number in range(29, 29 - MOST_MODELS, -1)
    ]
    heads = [column.label for column in robustness.shifts.columns if column.named]
    assert heads == [f"model-{number}" for number in range(29, 29 - MOST_COLUMNS, -1)]
    assert names(robustness.shifts) == [
        f"shift_{number}" for number in range(59, 59 - MOST_SHIFTS, -1)
    ]
    assert (robustness.models.more, robustness.shifts.more) == (
        "and 10 more models, in results.csv",
        "and 20 more shifts, in robustness.csv; and 24 more models, in robustness.csv",
    )  # fmt: skip
    assert "slope" not in [column.label for column in robustness.shifts.columns]
    cells = ["`shift_59`", "59.0 points (49.0 to 69.0)", "25.0 %", "7 of 8"]
    cells += ["20.0 points of 80.0 %"] * MOST_COLUMNS
    assert markdown_table(robustness.shifts).splitlines()[2] == f"| {' | '.join(cells)} |"
    assert "| 29.0 % (19.0 to 39.0) |" in markdown_table(robustness.models), (
        "averaged over classes, as everywhere"
    )


def test_a_shift_that_was_not_measured_comes_last() -> None:
    robustness = robustness_of(results(1, 3, numbers(1, 3)))
    assert [(row.cells[0].text, row.cells[1].text) for row in robustness.shifts.rows] == [
        ("shift_2", "2.0 points"), ("shift_1", "1.0 points"), ("shift_0", "–")
    ]  # fmt: skip


def test_a_large_gap_warns_and_a_small_one_does_not() -> None:
    def gaps(**of_model: tuple[float, float]) -> Iterator[ResultRow]:
        for name, (validation, base) in of_model.items():
            key = {"model": name.replace("_", "-")}
            gap = validation - base
            yield ResultRow("validation", value=validation, **key)
            yield ResultRow("validation_base", value=base, **key)
            yield ResultRow("validation_gap", value=gap, low=gap - 0.02, high=gap + 0.02, **key)

    def warnings(measured: Results) -> Sequence[str]:
        section = NESTED["reference"].card(
            replace(measured, reference=ReferenceResult("lab:wardrobe:validation"))
        )
        assert section
        return section.warnings

    assert warnings(results(2, 1, gaps(model_0=(0.8, 0.79), model_1=(0.8, 0.8)))) == ()
    large = results(2, 1, gaps(model_0=(0.738, 0.19), model_1=(0.8, 0.8)))
    [warning] = warnings(large)
    assert "1 of 2 models" in warning and "model-0: 73.8 % → 19.0 %" in warning
    assert "| `model-0` | 73.8 % | 54.8 points (52.8 to 56.8) |" in markdown_table(
        robustness_of(large).models
    )


def test_what_is_near_chance_is_marked_and_counted_and_in_no_average() -> None:
    made = results(3, 1)
    models = (*made.models[:2], results_examples.model("model-2", near_chance=True))
    low = LeftOut("a", "coat", 9, 9, "near chance", 0.0)
    groups = (made.groups[0], replace(made.groups[1], left_out=(low,)))
    classes = (
        ClassFacts("a", "coat"),
        *(ClassFacts(str(number), str(number)) for number in range(7)),
    )
    rows = [
        replace(row, value=0.99)
        if (row.measure, row.model) == ("relative_drop", "model-2")
        else row
        for row in numbers(3, 1)
    ]
    robustness = robustness_of(
        replace(made, models=models, groups=groups, classes=classes, rows=ResultRows(rows))
    )
    assert "| `model-2` (near chance) |" in markdown_table(robustness.models)
    # no impact was measured, so that it has no column
    assert robustness.shifts.rows[0].cells[1].text == "25.0 %"
    assert robustness.sentences == (
        "1 of 8 classes (coat) is near chance on the base: accuracies count it, drops do not.",
        "1 of 3 models (model-2) is near chance on the base: averages over models leave it out.",
    )


def test_a_nested_measure_of_ones_own_is_on_the_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    glare = Table("Glare", (TableColumn("shift", "shift"),), (TableRow((TableCell("snow"),)),))

    def shown(results: Results) -> CardSection:
        template = "dataset-card-severity.md.j2"
        return CardSection(
            place="drops",
            template=template,
            tables=[("", glare, "")],
            warnings=["It glares: a lot."],
        )

    monkeypatch.setitem(NESTED, "published", replace(NESTED["published"], card=shown))  # type: ignore[arg-type]
    monkeypatch.setattr(
        "counterfoil.dataset.card.card.read_results", lambda directory, content: results(1, 1)
    )
    readme = describe(tmp_path, plan_of()).readme
    assert markdown_table(glare) in readme and readme.index("## What fails") < readme.index(
        markdown_table(glare)
    )
    assert "> **Warning.** It glares. See [What fails](#what-fails)." in readme
    assert "> **Warning.** It glares: a lot." in readme
