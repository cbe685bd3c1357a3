"""The card's section of labels: who checked them, in numbers that are those of the rows, or that nobody did."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from card_cases import INPUTS, build, plan_of

from counterfoil.card.contact_sheets import Tally
from counterfoil.card.sections import labels_of
from counterfoil.card.statements import statements_of
from counterfoil.card.tables import input_rows
from counterfoil.errors import RunFailure
from counterfoil.recipe import load_recipe

SECTION = re.compile(r"## Are the labels true\?\n.*?(?=\n## )", re.DOTALL)
JUDGE = "lab:resnet14t"


def inputs(validation: Any) -> dict[str, Any]:
    return INPUTS | {"judges": {JUDGE: {"validation": validation}}}


def section(readme: str) -> str:
    found = SECTION.search(readme)
    assert found
    return found[0]


def test_without_a_second_judge_it_says_unchecked(tmp_path: Path) -> None:
    told = section(build(tmp_path, plan_of()).readme)
    assert "**Unchecked.**" in told and "`screen.judge`" in told and "|" not in told


def test_by_shift_the_numbers_and_the_worst_three_classes() -> None:
    recipe = load_recipe("wardrobe-mini", [f"screen.judge={JUDGE}"])
    ids = [cls.id for cls in recipe.classes]
    judged = {("base", name): (20, 0) for name in ids}
    judged |= {("at_night", name): (10, wrong) for name, wrong in zip(ids, [9, 1, 4, 0, 6], strict=False)}
    checks, table, picked = labels_of(recipe, inputs({name: {name: 100} for name in ids}), Tally({}, judged), 100)
    rows = {row.cells[0].text: row.cells for row in table.rows}
    assert checks.judge == JUDGE and checks.validated_on == 1000 and not picked
    disagrees, error, worst = rows["at_night"][1:]
    assert disagrees.below == "20 of 50"
    assert disagrees.text.startswith("40.0 (") and error.text.startswith("40.0 (")
    assert [text.partition(" ")[0] for text in worst.text.split("; ")] == ["t-shirt", "coat", "pullover"]
    assert rows["base"][3].text == "–" and rows["base"][1].text.startswith("0.0 (0.0 to ")
    assert [cell.text for cell in rows["red"][1:3]] == ["unchecked", "–"]  # nothing of it was accepted
    checks, table, _ = labels_of(recipe, inputs(None), Tally({}, judged), 2)
    assert [row.cells[2].text for row in table.rows] == ["not known", "–"]
    assert table.more == "and 4 more shifts, in the columns of the rows" and checks.validated_on is None


@pytest.mark.parametrize("validation", [{"crane": {"crane": 1}}, {"00": {"00": 10**6}}, "<script>"])
def test_a_lock_of_another_form_is_told(validation: Any) -> None:
    recipe = load_recipe("wardrobe-mini", [f"screen.judge={JUDGE}"])
    with pytest.raises(RunFailure, match=r"lock\.json is not one that a build wrote"):
        labels_of(recipe, inputs(validation), Tally({}), 100)


@pytest.mark.parametrize("rows", [False, True])
def test_card_and_croissant_say_who_checked_the_labels(rows: bool) -> None:
    """CLIP's screening is called the only check where it is, and nowhere else."""
    none = "model: null, steps: null, guidance: null, rows: {base: {'00': [0]}}"
    pool = [f"generator={{kind: rows, {none}}}", "samples.noise=independent"] if rows else []

    def said(judge: str, looked_at: bool) -> str:
        recipe = load_recipe("wardrobe-mini", ["tokens=null", f"screen.judge={judge}", *pool])
        made = INPUTS | {"pool": INPUTS["source"]}
        return statements_of(recipe, input_rows(recipe, made), 3, 9, looked_at=looked_at).annotation

    nobody, judge, people, both = (said(judge, looked_at) for looked_at in (False, True) for judge in ("null", JUDGE))
    assert ["only" in one for one in (nobody, judge, people, both)] == [True, False, False, False]
    assert ["No person has" in one for one in (nobody, judge, people, both)] == [not rows, True, False, False]
    assert ["second judge" in one for one in (nobody, judge, people, both)] == [False, True, False, True]
    assert ["people then looked" in one for one in (nobody, judge, people, both)] == [False, False, True, True]
