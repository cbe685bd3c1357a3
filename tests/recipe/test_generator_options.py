"""A generator's options: plain values within bounds, laid over others, in the plan's hash only where there are any."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from counterfoil.errors import UserError
from counterfoil.recipe import Recipe, dump_recipe, load_recipe, load_recipe_text
from counterfoil.recipe.schema_inputs import LONGEST_LIST, LONGEST_OPTION_NAME, LONGEST_TEXT, MOST_OPTIONS

OPTIONS = (
    "generator.options={max_sequence_length: 256, true_cfg_scale: 4.0, clip_skip: null, layers: [9, 18], fast: false}"
)


def recipe(*overrides: str) -> Recipe:
    return load_recipe("wardrobe-mini", overrides)


def refused(options: str) -> str:
    with pytest.raises(UserError) as caught:
        recipe(f"generator.options={options}")
    assert "generator.options" in str(caught.value)
    return str(caught.value)


def test_plain_values_of_every_kind_are_kept_as_they_were_written() -> None:
    found = recipe(OPTIONS).generator.options
    assert found == {
        "max_sequence_length": 256,
        "true_cfg_scale": 4.0,
        "clip_skip": None,
        "layers": (9, 18),
        "fast": False,
    }
    assert isinstance(found["true_cfg_scale"], float) and isinstance(found["max_sequence_length"], int)


def test_they_load_back_from_every_text_that_is_written_of_a_recipe() -> None:
    with_options = recipe(OPTIONS)
    assert load_recipe_text(dump_recipe(with_options)) == with_options
    portable = load_recipe_text(with_options.portable_yaml)
    assert portable.generator.options == with_options.generator.options
    assert portable.plan_hash == with_options.plan_hash
    assert with_options.portable.generator.options == with_options.generator.options


def test_a_datasets_recipe_says_what_came_later_only_where_it_is_said() -> None:
    later = ("options", "offload", "compile")
    plain, said = recipe(), recipe(OPTIONS, "generator.offload=model", "generator.compile=true")
    written = [yaml.safe_load(one.portable_yaml)["generator"] for one in (plain, said)]
    assert not written[0].keys() & set(later)
    assert written[1].keys() >= set(later)
    for one in (plain, said):
        assert load_recipe_text(one.portable_yaml).generator == one.generator == one.portable.generator


def test_the_recipe_of_rows_is_written_as_well() -> None:
    rows = "generator={kind: rows, model: null, steps: null, guidance: null, rows: {base: {'00': [0]}}}"
    assert "offload" not in recipe(rows, "tokens=null", "samples.noise=independent").portable_yaml


def test_options_are_of_the_plan_and_none_of_them_of_no_hash() -> None:
    plain, long, longer = (
        recipe(),
        recipe("generator.options={max_sequence_length: 256}"),
        recipe("generator.options={max_sequence_length: 512}"),
    )
    assert len({plain.plan_hash, long.plan_hash, longer.plan_hash}) == 3
    assert recipe("generator.options={}").plan_hash == plain.plan_hash
    assert {plain.screen_hash} == {long.screen_hash, longer.screen_hash}
    order = [recipe(f"generator.options={{{text}}}").plan_hash for text in ("a: 1, b: 2", "b: 2, a: 1")]
    assert order[0] == order[1]


def test_fewer_bits_are_another_plan_and_weights_that_wait_are_not() -> None:
    assert recipe("generator.quantize=torchao-int8").plan_hash != recipe().plan_hash
    assert recipe("generator.offload=sequential").plan_hash == recipe().plan_hash


def test_a_layer_adds_replaces_and_drops_single_options() -> None:
    def laid(*upper: str) -> dict[str, Any]:
        return recipe("generator.options={a: 1, b: 2}", *upper).generator.options

    assert laid("generator.options={b: 3, c: 4}") == {"a": 1, "b": 3, "c": 4}
    assert laid("generator.options.a=null") == {"b": 2}
    assert laid("generator.options=null") == {}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("{a: {b: 1}}", "a: found a mapping"),
        ("{a: [[1]]}", "a: found a list in a list"),
        ("{a: [1, {b: 2}]}", "a: found a mapping"),
        ("{a: .nan}", "a: found nan, expected finite"),
        ("{a: [.inf]}", "a: found inf, expected finite"),
        (
            "{max_sequence_length: 4097}",
            "max_sequence_length: found 4,097, expected whole numbers from -4,096",
        ),
        (f"{{tokenizer_max_length: {2**40}}}", "tokenizer_max_length: found 1,099,511,627,776, expected"),
        (f"{{a: {10**400}}}", "a: found a whole number of many digits, expected"),
        ("{a: -4097}", "a: found -4,097, expected"),
        ("{original_size: [1024, 1000000]}", "original_size: found 1,000,000, expected"),
        (f"{{max_area: {4096**2 + 1}}}", "max_area: found 16,777,217, expected"),
        ("{view_batch_size: 65}", "view_batch_size: found 65, expected"),
        ("{parallel: 129}", "parallel: found 129, expected"),
        (f"{{a: {'x' * (LONGEST_TEXT + 1)}}}", "a: found 1,001 characters"),
        (f"{{a: [{', '.join(['1'] * (LONGEST_LIST + 1))}]}}", f"a: found a list of {LONGEST_LIST + 1}"),
        ("{__class__: 1}", "found the name '__class__'"),
        ("{a__b: 1}", "found the name 'a__b'"),
        ("{'a b': 1}", "found the name 'a b'"),
        ("{'': 1}", "found the name ''"),
        (f"{{{'x' * (LONGEST_OPTION_NAME + 1)}: 1}}", "found the name"),
        (f"{{{', '.join(f'o{n}: 1' for n in range(MOST_OPTIONS + 1))}}}", f"found {MOST_OPTIONS + 1} options"),
        ("[a]", "expected"),
    ],
)
def test_what_is_no_plain_value_or_too_much_is_refused(options: str, told: str) -> None:
    assert told in refused(options)


def test_what_pipelines_take_unless_told_is_within_the_bounds() -> None:
    known = (
        "max_sequence_length: 3000, max_area: 1048576, view_batch_size: 1, parallel: 10, original_size: [1024, 1024]"
    )
    assert recipe(f"generator.options={{{known}, scale: 5.0e+12}}").generator.options["max_area"] == 1048576


def test_all_that_is_wrong_is_told_at_once() -> None:
    told = refused("{a: {}, b: .nan, c: 1}")
    assert "a: found a mapping" in told and "b: found nan" in told and "c: found" not in told


def test_only_what_renders_takes_options() -> None:
    with pytest.raises(UserError, match="and options, expected none with kind rows"):
        recipe("generator={kind: rows, model: null, rows: {base: {'00': [0]}}, options: {a: 1}}")
