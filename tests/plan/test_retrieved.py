"""The table of retrieved rows: read back as it was written, to the bit, and refused where it is none of its recipe."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.errors import UserError
from counterfoil.plan import Retrieved, make_plan
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.rows_table import RetrievedRow

SETTINGS = (
    "source.classes=[{id: '00', name: t-shirt, source_label: 0}, {id: '05', name: sandal, source_label: 5}]",
    "tokens=null",
    "prompts.shifts={}",
    "prompts.shifts.red={prompt: 'a red {class}', caption: 'red', kind: colour, classes: ['05']}",
    "samples={candidates: 2, noise: independent}",
    "generator={kind: retrieve, model: null, steps: null, guidance: null}",
)


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return load_recipe("wardrobe-mini", SETTINGS)


def table(recipe: Recipe) -> dict[str, dict[str, list[RetrievedRow]]]:
    cells = [(shift, recipe.classes[label].id) for shift in recipe.all_shifts() for label in shift.class_labels]
    found: dict[str, dict[str, list[RetrievedRow]]] = {}
    for place, (shift, class_id) in enumerate(cells):
        rows = [RetrievedRow(10 * place + index, index + 1, 0.25) for index in range(shift.candidates)]
        found.setdefault(shift.name, {})[class_id] = rows
    return found


@given(
    rows=st.lists(
        st.builds(
            RetrievedRow, st.integers(0, 10**12), st.integers(1, 10**12), st.floats(-1, 1, width=32, allow_nan=False)
        )
    )
)
def test_it_reads_back_to_the_bit(rows: list[RetrievedRow]) -> None:
    there = Retrieved.of({"base": {'a, "b"': rows}} if rows else {})
    here = Retrieved.read(there.content, "rows.csv")
    assert here == there and here.pin() == there.pin()
    scores = [one.score for cells in here.rows.values() for own in cells.values() for one in own]
    assert [struct.pack("f", one) for one in scores] == [struct.pack("f", one.score) for one in rows]


@pytest.mark.parametrize(
    "line",
    ["base,00,1,1", "base,00,1,0,0.5", "base,00,-1,1,0.5", "base,00,1,1,nan", "base,00,1,1,1e99", "base,00,1,x,0.5",
     "base,00,1,1,0.5,6", "base,00,1,1,", "base,00,99999999999999999999,1,0.5"],
)  # fmt: skip
def test_a_line_that_is_none_is_told_with_its_number(line: str) -> None:
    with pytest.raises(UserError, match="mine, line 3"):
        Retrieved.read(f"shift,class_id,row,rank,score\nbase,00,7,1,0.5\n{line}\n".encode(), "mine")


def test_samples_are_the_rows_of_their_cells(recipe: Recipe) -> None:
    retrieved = Retrieved.of(table(recipe))
    assert not list(retrieved.problems(recipe))
    plan, bare = make_plan(recipe, retrieved=retrieved), make_plan(recipe)
    samples = [sample for cell in plan.cells() for sample in plan.samples(cell)]
    assert [sample.row for sample in samples] == [0, 1, 10, 11, 20, 21]
    assert samples[3].of_pool == {"source_row": 11, "retrieval_rank": 2, "retrieval_score": 0.25}
    assert [sample.prompt for sample in samples[-2:]] == ["a red sandal"] * 2
    # Which rows they are moves nothing else of the plan.
    others = [sample for cell in bare.cells() for sample in bare.samples(cell)]
    assert [(s.key, s.seed, s.prompt) for s in others] == [(s.key, s.seed, s.prompt) for s in samples]
    assert bare.hash == plan.hash and [s.id for s in bare.shards] == [s.id for s in plan.shards]
    assert all(sample.of_pool == {} for sample in others)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda rows: rows["base"].pop("00"), "'base' of class '00' has 0 rows, expected 2"),
        (lambda rows: rows["red"].update({"00": rows["red"]["05"]}), "'red' of class '00' is no cell"),
        (lambda rows: rows["base"]["00"].pop(), "has 1 rows, expected 2"),
        (lambda rows: rows["red"].update({"05": rows["base"]["00"]}), "2 rows are there more than once"),
        (lambda rows: rows.update(rde=rows.pop("red")), "'rde' of class '05' is no cell"),
    ],
)
def test_a_table_of_another_recipe_is_none(recipe: Recipe, change, told: str) -> None:
    rows = table(recipe)
    change(rows)
    assert any(told in problem for problem in Retrieved.of(rows).problems(recipe))
