"""The table of rows that a plan edits: read as a stranger's, compared with the recipe, and what samples make of it."""

from __future__ import annotations

import pytest

from counterfoil.errors import UserError
from counterfoil.plan import Edited, make_plan, rows_wanted
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.rows_table import LONGEST_CAPTION, EditedRow

EDIT = ("generator={kind: edit, split: validation}", "samples.candidates=2", "tokens=null")
CAPTIONED = ("generator.captioner=lab:captioner", "prompts.shifts.red.prompt='{caption}, red'")


def table_of(recipe: Recipe, caption: str | None = 'a coat, "found" {class}') -> Edited:
    wanted = rows_wanted(recipe)
    return Edited.of({one: [EditedRow(7 * row + 1, caption) for row in range(count)] for one, count in wanted.items()})


def test_a_table_reads_back_and_every_shift_of_a_row_edits_the_same() -> None:
    recipe = load_recipe("wardrobe-mini", [*EDIT, *CAPTIONED])
    edited = table_of(recipe)
    assert Edited.read(edited.content, "rows.csv") == edited and not list(edited.problems(recipe))
    plan, bare = make_plan(recipe, edited=edited), make_plan(recipe)
    samples = [sample for cell in plan.cells() for sample in plan.samples(cell)]
    assert {(s.pair, s.row) for s in samples} == {(s.pair, 7 * s.index + 1) for s in samples}
    names = {cls.id: cls.name for cls in recipe.classes}
    assert all(sample.base_prompt == f"a photo of a {names[sample.class_id]}" for sample in samples)
    # What is filled in is never read as a template.
    assert {s.prompt for s in samples if s.shift == "red"} == {'a coat, "found" {class}, red'}
    # Without its table all is planned but rows and captions.
    others = [sample for cell in bare.cells() for sample in bare.samples(cell)]
    assert [(s.key, s.seed) for s in others] == [(s.key, s.seed) for s in samples] and bare.hash == plan.hash
    assert {s.row for s in others} == {None} and "{caption}, red" in {s.prompt for s in others}


def test_a_shift_with_more_candidates_takes_more_rows_of_the_same() -> None:
    more = load_recipe("wardrobe-mini", [*EDIT, "prompts.shifts.red.samples={candidates: 5}"])
    assert set(rows_wanted(more).values()) == {5}
    plan = make_plan(more, edited=table_of(more, None))
    rows = {shift: [] for shift in ("base", "red")}
    for cell in plan.cells():
        if cell.shift in rows and cell.label == 3:
            rows[cell.shift] += [sample.row for sample in plan.samples(cell)]
    assert rows == {"base": [1, 8], "red": [1, 8, 15, 22, 29]}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (lambda rows: {**rows, "99": rows["00"]}, "'99' is no class"),
        (lambda rows: {**rows, "00": rows["00"][:1]}, "the class '00' has 1 rows, expected 2"),
        (lambda rows: {**rows, "00": [rows["00"][0]] * 2}, "the class '00' has a row more than once"),
        (lambda rows: {**rows, "01": [EditedRow(3), EditedRow(4)]}, "row 3 has no caption"),
    ],
)
def test_what_is_no_table_of_a_recipe_is_told(changed, told: str) -> None:
    recipe = load_recipe("wardrobe-mini", [*EDIT, *CAPTIONED])
    problems = list(Edited.of(changed(table_of(recipe).rows)).problems(recipe))
    assert len(problems) == 1 and told in problems[0]


@pytest.mark.parametrize(
    "line",
    [
        "00,1",
        "00,x,a",
        "00,-1,a",
        f"00,1,{'a' * (LONGEST_CAPTION + 1)}",
        "00,1,a\x1b[2J",
        '00,1,"two\nlines"',
        "00,1, a",
    ],
)
def test_a_strangers_lines_are_refused(line: str) -> None:
    with pytest.raises(UserError, match="line 2"):
        Edited.read(f"class_id,row,caption\n{line}\n".encode(), "rows.csv")
    with pytest.raises(UserError, match="first line"):
        Edited.read(b"shift,class_id,row\n", "rows.csv")
