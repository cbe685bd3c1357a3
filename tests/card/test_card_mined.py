"""The card says that mined shifts were chosen for failing, shows what they came from, and trusts none of its words."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from card_cases import Built, build, plan_of
from markdown_it import MarkdownIt
from test_card import front_matter

from counterfoil import __version__
from counterfoil.card.sections import mined_of
from counterfoil.recipe.schema_mine import LONGEST

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
SECTION = re.compile(r"## Mined shifts\n.*?(?=\n## )", re.DOTALL)
# Every card has it since a recipe may name a second judge.
LABELS = re.compile(r"## Are the labels true\?\n.*?\n(?=## )", re.DOTALL)
# README.md of `cranes` as it was before there was such a section; the version is cut out of it.
PLAIN = "6368def17c0f0563d97234edfae4dfd118048b50a7344687a12c92e4541e99ef"


def mined(record: Any, shift: str = "starry") -> str:
    return f"prompts.shifts.{shift}={json.dumps({'kind': 'mined', 'mined_from': record})}"


def section(readme: str) -> str:
    found = SECTION.search(readme)
    assert found
    return found[0]


def test_a_card_without_mined_shifts_keeps_its_bytes(tmp_path: Path) -> None:
    readme = build(tmp_path, plan_of()).readme
    assert "ined shift" not in readme
    readme, sections = LABELS.subn("", readme.replace(__version__, "VERSION"))
    assert sections == 1
    assert hashlib.sha256(readme.encode()).hexdigest() == PLAIN


@pytest.mark.parametrize("format", ["parquet", "webdataset"])
def test_the_section_and_the_recipe_are_all_that_mining_adds(format: str, tmp_path: Path) -> None:
    form = f"output.format={format}"
    plain, told = (build(tmp_path / name, plan_of(form, *more)) for name, more in (("a", ()), ("b", (mined(RECORD),))))
    without = SECTION.sub("", told.readme).replace("\n\n\n## ", "\n\n## ")
    cut = [text.partition("<summary>The recipe</summary>")[0] for text in (plain.readme, without)]
    assert cut[0].replace("\n\n\n## ", "\n\n## ") == cut[1]
    assert front_matter(plain.readme) == front_matter(told.readme)
    facts = [re.sub(rb"[0-9a-f]{64}", b"", card.croissant).replace(b"recipe", b"") for card in (plain, told)]
    described = [json.loads(re.sub(rb'"contentSize": "[^"]*"', b'"contentSize": ""', one)) for one in facts]
    assert described[0] == described[1]


@pytest.mark.parametrize(
    ("marks", "shown"),
    [
        (["words untrusted", "perhaps wrong labels"], "crane (perhaps wrong labels, words untrusted)"),
        (["words untrusted", "a stranger's word"], "crane (words untrusted)"),
        ("words untrusted", "crane"),
    ],
)
def test_what_speaks_against_a_finding_stands_beside_its_words(marks: Any, shown: str, tmp_path: Path) -> None:
    readme = build(tmp_path, plan_of(mined({**RECORD, "words": "crane", "marks": marks}))).readme
    header, row = _rows(section(readme))
    assert dict(zip(header, row, strict=True))["Words"] == shown


def test_it_says_that_they_were_chosen_for_failing_and_what_they_came_from(tmp_path: Path) -> None:
    readme = build(tmp_path, plan_of(mined(RECORD))).readme
    said = section(readme)
    assert "A shift was chosen because the classifier `lab:resnet10t` failed on such images." in said
    assert "**Accuracy on it is no estimate of accuracy elsewhere**: not that of this classifier" in said
    header, row = _rows(said)
    assert dict(zip(header, row, strict=True)) == {
        "Shift": "starry",
        "Words": r"crane | by \*starlight\*",
        "Caption": "a photo of a crane by starlight",
        "Role": "hard",
        "Classes": "n02012849, n03126707",
        "Method": "directions",
        "Target": "lab:resnet10t",
        "Target’s sha256": "ab" * 6,
        "Wrong there (%)": "61.0",
        "Wrong in the rest (%)": "9.0",
        "p": "0.00041",
        "q": "0.0023",
    }


def _rows(said: str) -> list[list[str]]:
    tokens = MarkdownIt("commonmark").enable("table").parse(said)
    rows: list[list[str]] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and rows and token.level > 2:
            rows[-1].append(token.content.replace("`", "").strip())
    return rows


def test_what_was_tested_in_pairs_is_told_beside_its_base(tmp_path: Path) -> None:
    pairs = {**RECORD, "tested_on": "pairs"}
    said = section(build(tmp_path / "pairs", plan_of(mined(pairs))).readme)
    assert "Wrong without it (%)" in _rows(said)[0] and "the rest" not in said
    assert "beside images of the same noise without the words; its p is one over its e-value." in said
    plan = plan_of(mined(pairs), mined(RECORD, "snow"))
    assert "Wrong in the rest, or without it (%)" in _rows(section(build(tmp_path / "mixed", plan).readme))[0]
    beside = {"role": "reference", "target": RECORD["target"]}  # it has no rates of its own
    plan = plan_of(mined(pairs), mined(beside, "snow"))
    assert "Wrong without it (%)" in _rows(section(build(tmp_path / "beside", plan).readme))[0]
    assert "e-value" not in section(build(tmp_path / "rows", plan_of(mined(RECORD))).readme)


def test_others_than_failures_are_told_to_be_there_for_comparison(tmp_path: Path) -> None:
    plan = plan_of(mined(RECORD), mined({**RECORD, "role": "easy", "target": {"name": "lab:other"}}, "snow"))
    said = section(build(tmp_path, plan).readme)
    assert "2 shifts were chosen because the classifiers `lab:other`, `lab:resnet10t` failed on such images" in said
    assert ", or for comparison with these, as their role tells." in said
    assert "not that of these classifiers, and not that of others; nor is a mean over shifts that counts them." in said


def test_a_rule_that_asks_a_classifier_is_told(tmp_path: Path) -> None:
    keep = "prompts.shifts.starry.keep=[thresholds, {misclassified: {models: ['lab:resnet10t']}}]"
    assert "a rule that asks `lab:resnet10t` kept failures only" in section(
        build(tmp_path, plan_of(mined(RECORD), keep)).readme
    )


@pytest.mark.parametrize(
    "record",
    [None, {}, {"target": 7, "set": [1], "q": "no", "p": True, "classes": "all"}, {"set": {"rate": 61}, "words": " "}],
)
def test_what_is_not_told_or_of_another_form_is_a_dash(record: Any, tmp_path: Path) -> None:
    said = section(build(tmp_path, plan_of(mined(record))).readme)
    assert "chosen because a classifier failed on such images." in said
    assert _rows(said)[1] == ["starry", *["–"] * 11]


HOSTILE = "---\nlicense: stolen\n---\n# Not a title\n```\n</details><script>|\n{{ 7 * 7 }}\x1b[31m\u202e [x](y) "
HOSTILE += "z" * 500


def test_hostile_words_stay_text(tmp_path: Path) -> None:
    record = dict.fromkeys(("words", "caption", "role", "method"), HOSTILE)
    record |= {"target": {"name": HOSTILE, "sha256": HOSTILE}, "classes": [HOSTILE] * 50}
    readme = build(tmp_path, plan_of(mined(record))).readme
    said = section(readme)
    assert front_matter(readme)["license"] == "cc0-1.0"
    tokens = MarkdownIt("commonmark").enable("table").parse(said)
    assert [token.content for token in tokens if token.type in ("html_block", "fence")] == []
    inline = [child for token in tokens for child in token.children or []]
    assert not [child for child in inline if child.type in ("html_inline", "link_open", "image")]
    assert len(_rows(said)[1]) == 12
    assert "\x1b" not in said and "\u202e" not in said
    assert said.count("{{ 7 * 7 }}") > 3, "never run as a template"
    assert len(said) < 30 * LONGEST


def test_very_many_are_counted() -> None:
    shifts = {f"shift_{n}": {"prompt": f"a {{class}} at {n}", "kind": "mined", "group": "hard"} for n in range(150)}
    found = mined_of(plan_of(f"prompts.shifts={json.dumps(shifts)}").recipe, 100)
    assert found and (len(found["rows"]), found["all_shifts"], found["others"]) == (100, 150, 4)


def test_a_recipe_without_any_has_no_section(built: Built) -> None:
    assert mined_of(built.plan.recipe, 100) is None
