"""What a recipe asks to be made: cells, samples, shards and parts of plans; pairs, and tables of
rows."""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import struct
import tracemalloc
from itertools import islice, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.errors import UserError
from counterfoil.plan.estimate import estimate, rendered_budget
from counterfoil.plan.layout import (
    Plan,
    PlanPart,
    RowTable,
    Sample,
    make_plan,
    rows_wanted,
    sample_seed,
)
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.rows_table import LONGEST_CAPTION, PoolRow, RowsByCell

MINI = load_recipe("wardrobe-mini").model_dump()


def recipe_of(
    class_ids: list[str], shifts: dict[str, dict[str, Any]], **changes: dict[str, Any]
) -> Recipe:
    values = json.loads(json.dumps(MINI))
    values["source"]["classes"] = [
        {"id": class_id, "name": class_id, "source_label": label}
        for label, class_id in enumerate(class_ids)
    ]
    values["prompts"]["shifts"] = {
        name: {"prompt": f"a {{class}} {name}", "caption": name} | spec
        for name, spec in shifts.items()
    }
    for section, change in changes.items():
        values[section] |= change
    return Recipe.model_validate(values)


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    # Letters and digits in ids only: underscores can make keys meet, which a recipe refuses
    # (test_problems).
    ids = draw(
        st.lists(
            st.from_regex(r"[A-Za-z0-9-]{1,4}", fullmatch=True), min_size=1, max_size=5, unique=True
        )
    )
    names = draw(
        st.lists(
            st.from_regex(r"x[a-z0-9_]{0,3}", fullmatch=True), min_size=0, max_size=5, unique=True
        )
    )
    shifts: dict[str, dict[str, Any]] = {}
    for name in names:
        chosen = draw(st.none() | st.lists(st.sampled_from(ids), min_size=1, unique=True))
        shifts[name] = {"classes": chosen, "group": draw(st.none() | st.sampled_from(["g", "h"]))}
    count = draw(st.integers(1, 6))
    mode = draw(
        st.sampled_from(
            [{"candidates": count}, {"candidates": None, "accepted": 1, "at_most": count}]
        )
    )
    return recipe_of(
        ids,
        shifts,
        samples=mode
        | {
            "noise": draw(st.sampled_from(["paired", "independent"])),
            "seed": draw(st.integers(0, 9)),
        },
        output={"rows_per_shard": draw(st.integers(1, 20))},
        generator={"batch_size": draw(st.integers(1, 7))},
    )


def samples_of(plan: Plan) -> list[Sample]:
    return [sample for shard in plan.shards for sample in shard.samples(plan)]


@given(recipes())
def test_keys_are_unique_seeds_fit_and_everything_agrees(recipe: Recipe) -> None:
    plan = make_plan(recipe)
    samples = samples_of(plan)
    assert len(samples) == plan.n_samples
    assert len({sample.key for sample in samples}) == len(samples)
    assert len({(sample.shift, sample.pair) for sample in samples}) == len(samples)
    for sample in samples:
        assert "." not in sample.key
        assert (
            sample.key
            == f"{sample.shift}_{sample.class_id}_{sample.index:06d}"
            == f"{sample.shift}_{sample.pair}"
        )
        assert 0 <= sample.seed < 2**53
        assert recipe.classes[sample.label].id == sample.class_id
        assert plan.shift(sample.shift).group == sample.group


@given(recipes())
def test_paired_samples_share_their_noise_and_independent_ones_do_not(recipe: Recipe) -> None:
    seeds: dict[str, list[int]] = {}
    for sample in samples_of(make_plan(recipe)):
        seeds.setdefault(sample.pair, []).append(sample.seed)
    for of_pair in seeds.values():
        assert len(set(of_pair)) == (1 if recipe.samples.noise == "paired" else len(of_pair))
    firsts = [seed[0] for seed in seeds.values()]
    assert len(set(firsts)) == len(firsts), "other classes and indices have other seeds"


def identities(recipe: Recipe) -> dict[str, tuple[str | None, int, str]]:
    return {
        sample.key: (sample.prompt, sample.seed, sample.pair)
        for sample in samples_of(make_plan(recipe))
    }


@given(recipes(), st.data())
def test_fewer_classes_leave_every_other_image_as_it_was(
    recipe: Recipe, data: st.DataObject
) -> None:
    ids = [cls.id for cls in recipe.classes]
    chosen = data.draw(st.sets(st.sampled_from(ids), min_size=1))
    kept = [class_id for class_id in ids if class_id in chosen]
    values = recipe.model_dump()
    values["source"]["classes"] = [
        entry for entry in values["source"]["classes"] if entry["id"] in kept
    ]
    for name, spec in list(values["prompts"]["shifts"].items()):
        if spec["classes"] is not None:
            spec["classes"] = [i for i in spec["classes"] if i in kept]
            if not spec["classes"]:
                del values["prompts"]["shifts"][name]
    before = identities(recipe)
    after = identities(Recipe.model_validate(values))
    assert after == {key: before[key] for key in after}


@given(recipes(), st.integers(0, 5))
def test_one_more_shift_or_index_leaves_every_other_image_as_it_was(
    recipe: Recipe, at: int
) -> None:
    values = recipe.model_dump()
    shifts = list(values["prompts"]["shifts"].items())
    new = {"prompt": "a new {class}", "caption": "new"}
    values["prompts"]["shifts"] = dict([*shifts[:at], ("new", new), *shifts[at:]])
    mode = "candidates" if values["samples"]["candidates"] else "at_most"
    values["samples"][mode] += 1
    before = identities(recipe)
    after = identities(Recipe.model_validate(values))
    assert before == {key: after[key] for key in before}
    assert len(after) > len(before)


@given(recipes())
def test_shards_hold_whole_cells_of_one_group_in_order(recipe: Recipe) -> None:
    plan = make_plan(recipe)
    shards = list(plan.shards)
    assert len(shards) == len(plan.shards) == plan.n_shards
    assert [cell for shard in shards for cell in shard.cells] == list(plan.cells())
    assert sum(len(shard.cells) for shard in shards) == plan.n_cells
    assert plan.groups[0] == "base"
    order = [shift.name for shift in recipe.all_shifts()]
    for group in plan.groups:
        of_group = [shard for shard in shards if shard.group == group]
        assert [(shard.number, shard.of) for shard in of_group] == [
            (n, len(of_group)) for n in range(len(of_group))
        ]
        cells = [cell for shard in of_group for cell in shard.cells]
        places = [(order.index(cell.shift), cell.label) for cell in cells]
        assert places == sorted(set(places))
        assert {cell.group for cell in cells} == {group}
        for shard in of_group:
            assert shard.id == f"{group}-{shard.number:05d}"
            assert shard.candidates <= max(recipe.output.rows_per_shard, shard.cells[0].candidates)
    assert list(dict.fromkeys(shard.group for shard in shards)) == list(plan.groups)
    assert sorted(dict.fromkeys(cell.shift for cell in plan.cells())) == sorted(order)


@given(recipes())
def test_batches_are_full_but_the_last_of_a_cell(recipe: Recipe) -> None:
    plan = make_plan(recipe)
    size = recipe.generator.batch_size
    for cell in plan.cells():
        batches = list(plan.batches(cell))
        assert [len(batch) for batch in batches[:-1]] == [size] * (len(batches) - 1)
        assert [sample for batch in batches for sample in batch] == list(plan.samples(cell))


@given(
    st.integers(0, 2**53 - 1),
    st.from_regex(r"[A-Za-z0-9_-]{1,9}", fullmatch=True),
    st.integers(0, 10**6),
)
def test_a_seed_is_the_first_53_bits_of_sha256(seed: int, class_id: str, index: int) -> None:
    bits = bin(int(hashlib.sha256(f"{seed}\n{class_id}\n{index}".encode()).hexdigest(), 16))[
        2:
    ].zfill(256)
    assert sample_seed(seed, class_id, index, None) == int(bits[:53], 2)
    assert sample_seed(seed, class_id, index, "base") != sample_seed(seed, class_id, index, None)


def test_seeds_stay_what_they_were() -> None:
    # Published datasets are regenerated from these: a change here breaks every one of them.
    assert sample_seed(0, "00", 0, None) == 146506955357496
    assert sample_seed(0, "00", 0, "red") == 6502484814450138


def test_placeholders_take_the_names_place_in_prompts() -> None:
    recipe = load_recipe("wardrobe-mini", ["tokens.path=./tokens"])
    tokens = {cls.id: f"<{cls.name}-{cls.id}>" for cls in recipe.classes}
    assert next(make_plan(recipe, tokens).shards[0].samples(make_plan(recipe, tokens))).prompt == (
        "a photo of a <t-shirt-00>"
    )
    unread = make_plan(recipe)
    assert next(unread.samples(next(unread.cells()))).prompt == "a photo of a <00>"
    plain = make_plan(load_recipe("wardrobe-mini", ["tokens=null"]))
    assert plain.placeholders is None
    assert next(plain.samples(next(plain.cells()))).prompt == "a photo of a t-shirt"


def test_a_class_without_a_token_is_named() -> None:
    recipe = load_recipe("wardrobe-mini", ["tokens.path=./tokens"])
    with pytest.raises(UserError, match="no class token for 03, 04"):
        make_plan(recipe, {cls.id: "<x>" for cls in recipe.classes if cls.id not in ("03", "04")})


def test_shards_are_a_sequence() -> None:
    plan = make_plan(load_recipe("wardrobe-mini"))
    shards = plan.shards
    assert shards[-1] == list(shards)[-1]
    assert list(shards[2:4]) == [shards[2], shards[3]]
    for outside in (len(shards), -len(shards) - 1):
        with pytest.raises(IndexError):
            shards[outside]


def test_a_plan_travels_to_another_process() -> None:
    plan = make_plan(load_recipe("wardrobe-mini"))
    copy = pickle.loads(pickle.dumps(plan))
    assert copy.hash == plan.hash
    assert samples_of(copy) == samples_of(plan)


def test_ten_million_samples_take_no_memory() -> None:
    tracemalloc.start()
    plan = make_plan(
        load_recipe("wardrobe-star", ["samples.candidates=41667", "output.rows_per_shard=50000"])
    )
    assert plan.n_samples == 10_000_080
    seen = sum(shard.candidates for shard in plan.shards)
    last = plan.shards[-1]
    for sample in islice(last.samples(plan), 1000):
        assert sample.shift == "embroidery"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen == plan.n_samples
    assert peak < 10_000_000, "samples and shards are made when asked for, not kept"


def test_a_million_one_sample_cells_take_no_more_memory_than_their_classes_and_shifts() -> None:
    ids = [f"n{label:05d}" for label in range(1000)]
    shifts = {f"s{number}": {"group": f"g{number % 8}"} for number in range(999)}
    rows = 10_000
    recipe = recipe_of(ids, shifts, samples={"candidates": 1}, output={"rows_per_shard": rows})
    tracemalloc.start()
    plan = make_plan(recipe)
    sizes = [len(plan.shards[at].cells) for at in (0, 1, plan.n_shards - 1)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert plan.n_cells == plan.n_samples == 1_000_000
    # the last group has one shift less and so fewer cells in its last shard
    assert plan.n_shards == 1 + 8 * 13
    assert sizes == [1000, rows, 124 * 1000 % rows]
    assert peak < 10_000_000


def test_changing_what_is_screened_changes_no_plan() -> None:
    plans = [
        make_plan(load_recipe("wardrobe-mini", more))
        for more in ([], ["screen.shift_threshold=0.3"])
    ]
    assert plans[0].hash == plans[1].hash
    assert re.fullmatch("[0-9a-f]{64}", plans[0].hash)


def test_shards_have_room_for_the_largest_cell_of_their_group_wherever_it_comes() -> None:
    for counts in ({"xa": 2, "xb": 6}, {"xa": 6, "xb": 2}):
        shifts = {
            name: {"group": "g", "samples": {"candidates": count}} for name, count in counts.items()
        }
        recipe = recipe_of(
            ["a", "b", "c"], shifts, samples={"candidates": 3}, output={"rows_per_shard": 6}
        )
        cells = [(shard.group, len(shard.cells)) for shard in make_plan(recipe).shards]
        assert cells == [("base", 2), ("base", 1), *[("g", 1)] * 6]


BESIDE = "samples.pairs=attention"
TOKENS = {f"{label:02d}": f"<token-{label}>" for label in range(10)}


def plan_of(*changes: str) -> Plan:
    return make_plan(load_recipe("wardrobe-mini", changes), TOKENS)


def test_a_sample_of_a_shift_knows_the_prompt_of_its_base_with_its_class_token() -> None:
    samples = samples_of(plan_of(BESIDE))
    bases = {sample.pair: sample for sample in samples if sample.shift == "base"}
    shifted = [sample for sample in samples if sample.shift != "base"]
    assert all(sample.base_prompt is None for sample in bases.values())
    assert all(
        sample.base_prompt == bases[sample.pair].prompt != sample.prompt for sample in shifted
    )
    assert all(sample.seed == bases[sample.pair].seed for sample in shifted)
    assert "<token-3>" in {sample.class_id: sample.base_prompt or "" for sample in shifted}["03"]
    assert {sample.base_prompt for sample in samples_of(plan_of())} == {None}


@pytest.mark.parametrize(
    ("shift", "class_id"), [("base", "00"), ("nowhere", "00"), ("red", "none")]
)
def test_what_is_no_shifted_sample_of_the_plan_has_no_base(shift: str, class_id: str) -> None:
    assert plan_of(BESIDE).base_prompt(shift, class_id) is None


def test_an_image_beside_its_base_costs_two_and_is_reported() -> None:
    plain = estimate(plan_of(), 4.0)
    beside = estimate(plan_of(BESIDE), 4.0)
    assert plain.seconds is not None and beside.seconds is not None
    assert (plain.seconds, beside.seconds) == (1200 / 4, (200 + 2 * 1000) / 4)
    assert (beside.images, beside.files) == (plain.images, plain.files)
    assert (
        "1,000 images are rendered together with their base, so each costs as much as two"
        in beside.assumptions[2]
    )
    assert "together" not in plain.assumptions[2]


MINED = {
    "confirm": "{confirm: rendered}",
    "bugs": "{method: bugs, settings: {captioner: lab:captioner}}",
}


@pytest.mark.parametrize("mine", MINED)
def test_images_that_mining_asks_for_cost_two_but_for_their_base(mine: str) -> None:
    plain = rendered_budget(load_recipe("wardrobe-mini", [f"mine={MINED[mine]}"]), 1.0)
    beside = rendered_budget(load_recipe("wardrobe-mini", [f"mine={MINED[mine]}", BESIDE]), 1.0)
    assert plain is not None and beside is not None
    assert (beside.images, beside.hypothesis_images) == (plain.images, plain.hypothesis_images)
    assert beside.hypothesis_seconds == 1.5 * (plain.hypothesis_seconds or 0)
    assert (plain.finding_images, plain.finding_seconds) == (
        (1024, 1024.0) if mine == "bugs" else (0, None)
    )
    assert (beside.finding_seconds or 0) == 1.5 * (plain.finding_seconds or 0)
    assert (plain.seconds or 0) < (beside.seconds or 0) <= 2 * (plain.seconds or 0)


@given(of=st.integers(1, 40), shards=st.integers(0, 200))
def test_every_shard_is_in_one_part_and_parts_are_of_one_size(of: int, shards: int) -> None:
    parts = [
        [index for index in range(shards) if PlanPart(number, of).holds(index)]
        for number in range(1, of + 1)
    ]
    assert sorted(index for part in parts for index in part) == list(range(shards))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert all(b - a == of for part in parts for a, b in pairwise(part))


def test_a_part_is_given_as_text_or_as_two_numbers() -> None:
    assert PlanPart.given("3/16") == PlanPart.given((3, 16)) == PlanPart(3, 16)
    assert PlanPart.given(str(PlanPart(3, 16))) == PlanPart(3, 16)


@pytest.mark.parametrize(
    "wrong",
    [
        "3/2",
        "0/4",
        "a/b",
        "",
        "3",
        "3/",
        "-1/4",
        "1/0",
        "1.0/2",
        " 1/2",
        "1/2\n",
        "٣/٤",
        "1/9999999999",
        (0, 1),
    ],
)
def test_what_is_no_part_is_refused_in_words(wrong: str | tuple[int, int]) -> None:
    with pytest.raises(UserError, match="expected K/N with K from 1 to N"):
        PlanPart.given(wrong)


def test_the_shards_of_all_parts_are_those_of_the_plan_without_the_finished() -> None:
    plan = make_plan(
        load_recipe("wardrobe-mini", ["output.rows_per_shard=7", "samples.candidates=3"])
    )
    shards = list(plan.shards)
    done = {(shard.group, shard.number) for shard in shards[::4]}
    parts = [list(plan.shards_without(done, PlanPart(number, 3))) for number in (1, 2, 3)]
    assert sorted(shards.index(shard) for part in parts for shard in part) == [
        index for index in range(len(shards)) if index % 4
    ]
    assert all(
        shards.index(shard) % 3 == number for number, part in enumerate(parts) for shard in part
    )


EDIT = ("generator={kind: edit, split: validation}", "samples.candidates=2", "tokens=null")
CAPTIONED = ("generator.captioner=lab:captioner", "prompts.shifts.red.prompt='{caption}, red'")


def table_of(recipe: Recipe, caption: str | None = 'a coat, "found" {class}') -> RowTable:
    rows: RowsByCell = {
        (None, class_id): [PoolRow(7 * row + 1, caption=caption) for row in range(count)]
        for class_id, count in rows_wanted(recipe).items()
    }
    return RowTable.of(rows, "edited")


def test_a_table_reads_back_and_every_shift_of_a_row_edits_the_same() -> None:
    recipe = load_recipe("wardrobe-mini", [*EDIT, *CAPTIONED])
    edited = table_of(recipe)
    assert RowTable.read(edited.content, "rows.csv", "edited") == edited and not list(
        edited.problems(recipe)
    )
    plan = make_plan(recipe, edited=edited)
    bare = make_plan(recipe)
    samples = [sample for cell in plan.cells() for sample in plan.samples(cell)]
    assert {(s.pair, s.row) for s in samples} == {(s.pair, 7 * s.index + 1) for s in samples}
    names = {cls.id: cls.name for cls in recipe.classes}
    assert all(sample.base_prompt == f"a photo of a {names[sample.class_id]}" for sample in samples)
    # What is filled in is never read as a template.
    assert {s.prompt for s in samples if s.shift == "red"} == {'a coat, "found" {class}, red'}
    # Without its table all is planned but rows and captions.
    others = [sample for cell in bare.cells() for sample in bare.samples(cell)]
    assert [(s.key, s.seed) for s in others] == [
        (s.key, s.seed) for s in samples
    ] and bare.hash == plan.hash
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
    ("changed", "message"),
    [
        (lambda rows: {**rows, (None, "99"): rows[None, "00"]}, "'99' is not a class"),
        (lambda rows: {**rows, ("red", "00"): rows[None, "00"]}, "'00' is not a class"),
        (
            lambda rows: {**rows, (None, "00"): rows[None, "00"][:1]},
            "the class '00' has 1 rows, expected 2",
        ),
        (
            lambda rows: {**rows, (None, "00"): [rows[None, "00"][0]] * 2},
            "the class '00' has a row more than once",
        ),
        (lambda rows: {**rows, (None, "01"): [PoolRow(3), PoolRow(4)]}, "row 3 has no caption"),
    ],
)
def test_what_is_no_table_of_a_recipe_is_reported(changed, message: str) -> None:
    recipe = load_recipe("wardrobe-mini", [*EDIT, *CAPTIONED])
    problems = list(RowTable.of(changed(table_of(recipe).rows), "edited").problems(recipe))
    assert len(problems) == 1 and message in problems[0]


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
        RowTable.read(f"class_id,row,caption\n{line}\n".encode(), "rows.csv", "edited")
    with pytest.raises(UserError, match="first line"):
        RowTable.read(b"shift,class_id,row\n", "rows.csv", "edited")


SETTINGS = (
    "source.classes=[{id: '00', name: t-shirt, source_label: 0}, {id: '05', name: sandal,"
    " source_label: 5}]",
    "tokens=null",
    "prompts.shifts={}",
    "prompts.shifts.red={prompt: 'a red {class}', caption: 'red', kind: colour, classes: ['05']}",
    "samples={candidates: 2, noise: independent}",
    "generator={kind: retrieve, model: null, steps: null, guidance: null}",
)


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return load_recipe("wardrobe-mini", SETTINGS)


def table(recipe: Recipe) -> dict[tuple[str | None, str], list[PoolRow]]:
    cells = [
        (shift, recipe.classes[label].id)
        for shift in recipe.all_shifts()
        for label in shift.class_labels
    ]
    return {
        (shift.name, class_id): [
            PoolRow(10 * number + index, index + 1, 0.25) for index in range(shift.candidates)
        ]
        for number, (shift, class_id) in enumerate(cells)
    }


def retrieved_table(rows: RowsByCell) -> RowTable:
    return RowTable.of(rows, "retrieved")


@given(
    rows=st.lists(
        st.builds(
            PoolRow,
            st.integers(0, 10**12),
            st.integers(1, 10**12),
            st.floats(-1, 1, width=32, allow_nan=False),
        )
    )
)
def test_it_reads_back_to_the_bit(rows: list[PoolRow]) -> None:
    written = retrieved_table({("base", 'a, "b"'): rows} if rows else {})
    read = RowTable.read(written.content, "rows.csv", "retrieved")
    assert read == written and read.sha256 == written.sha256
    scores = [row.score for cell in read.rows.values() for row in cell]
    assert [struct.pack("f", score) for score in scores] == [
        struct.pack("f", row.score) for row in rows
    ]


@pytest.mark.parametrize(
    "line",
    ["base,00,1,1", "base,00,1,0,0.5", "base,00,-1,1,0.5", "base,00,1,1,nan", "base,00,1,1,1e99", "base,00,1,x,0.5",
     "base,00,1,1,0.5,6", "base,00,1,1,", "base,00,99999999999999999999,1,0.5"],
)  # fmt: skip
def test_a_line_that_is_none_is_reported_with_its_number(line: str) -> None:
    with pytest.raises(UserError, match="mine, line 3"):
        RowTable.read(
            f"shift,class_id,row,rank,score\nbase,00,7,1,0.5\n{line}\n".encode(),
            "mine",
            "retrieved",
        )


def test_samples_are_the_rows_of_their_cells(recipe: Recipe) -> None:
    retrieved = retrieved_table(table(recipe))
    assert not list(retrieved.problems(recipe))
    plan = make_plan(recipe, retrieved=retrieved)
    bare = make_plan(recipe)
    samples = [sample for cell in plan.cells() for sample in plan.samples(cell)]
    assert [sample.row for sample in samples] == [0, 1, 10, 11, 20, 21]
    assert samples[3].of_pool == {"source_row": 11, "retrieval_rank": 2, "retrieval_score": 0.25}
    assert [sample.prompt for sample in samples[-2:]] == ["a red sandal"] * 2
    # The choice of rows changes nothing else in the plan.
    others = [sample for cell in bare.cells() for sample in bare.samples(cell)]
    assert [(s.key, s.seed, s.prompt) for s in others] == [
        (s.key, s.seed, s.prompt) for s in samples
    ]
    assert bare.hash == plan.hash and [s.id for s in bare.shards] == [s.id for s in plan.shards]
    assert all(sample.of_pool == {} for sample in others)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.pop(("base", "00")), "'base' of class '00' has 0 rows, expected 2"),
        (
            lambda rows: rows.update({("red", "00"): rows["red", "05"]}),
            "'red' of class '00' is not a cell",
        ),
        (lambda rows: rows["base", "00"].pop(), "has 1 rows, expected 2"),
        (
            lambda rows: rows.update({("red", "05"): rows["base", "00"]}),
            "2 rows appear more than once",
        ),
        (
            lambda rows: rows.update({("rde", "05"): rows.pop(("red", "05"))}),
            "'rde' of class '05' is not a cell",
        ),
    ],
)
def test_a_table_of_another_recipe_is_none(recipe: Recipe, change, message: str) -> None:
    rows = table(recipe)
    change(rows)
    assert any(message in problem for problem in retrieved_table(rows).problems(recipe))
