"""Inputs of a recipe: options of generators, rows that are edited or corrupted, embeddings,
pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from counterfoil.errors import ProblemLine, UserError
from counterfoil.recipe import Recipe, dump_recipe, load_own_recipe, load_recipe, load_recipe_text
from counterfoil.recipe.kinds.drawing import (
    LONGEST_LIST,
    LONGEST_OPTION_NAME,
    LONGEST_TEXT,
    MOST_OPTIONS,
)
from counterfoil.recipe.names import EMBEDDINGS
from counterfoil.recipe.schema_output import PAIRED_BY
from support.recipes import assert_refused, mini, says
from support.recipes import problems as refused_for

OPTIONS = (
    "generator.options={max_sequence_length: 256, true_cfg_scale: 4.0, clip_skip: null,"
    " layers: [9, 18], fast: false}"
)


def recipe(*overrides: str) -> Recipe:
    return load_recipe("wardrobe-mini", overrides)


def refused(options: str) -> str:
    with pytest.raises(UserError) as caught:
        recipe(f"generator.options={options}")
    assert "generator.options" in str(caught.value)
    return str(caught.value)


def test_plain_values_of_every_kind_are_kept_as_they_were_written() -> None:
    options = recipe(OPTIONS).drawing.options
    assert options == {
        "max_sequence_length": 256,
        "true_cfg_scale": 4.0,
        "clip_skip": None,
        "layers": (9, 18),
        "fast": False,
    }
    assert isinstance(options["true_cfg_scale"], float) and isinstance(
        options["max_sequence_length"], int
    )


def test_they_load_back_from_every_text_that_is_written_of_a_recipe() -> None:
    with_options = recipe(OPTIONS)
    assert load_recipe_text(dump_recipe(with_options)) == with_options
    portable = load_recipe_text(with_options.portable_yaml)
    assert portable.drawing.options == with_options.drawing.options
    assert portable.plan_hash == with_options.plan_hash
    assert with_options.portable.drawing.options == with_options.drawing.options


def test_a_datasets_recipe_says_what_came_later_only_where_it_is_said() -> None:
    later = ("options", "offload", "compile")
    plain = recipe()
    changed = recipe(OPTIONS, "generator.offload=model", "generator.compile=true")
    written = [yaml.safe_load(loaded.portable_yaml)["generator"] for loaded in (plain, changed)]
    assert not written[0].keys() & set(later)
    assert written[1].keys() >= set(later)
    for loaded in (plain, changed):
        assert (
            load_recipe_text(loaded.portable_yaml).generator
            == loaded.generator
            == loaded.portable.generator
        )


def test_a_retrieved_datasets_recipe_says_that_rows_repeat_only_if_they_do() -> None:
    plain = load_recipe("wardrobe-retrieved")
    repeating = load_recipe("wardrobe-retrieved", ["generator.repeats=true"])
    assert "repeats" not in plain.portable_yaml and "repeats: true" in repeating.portable_yaml


def test_the_order_of_options_enters_no_hash() -> None:
    first, second = (
        recipe(f"generator.options={{{text}}}").plan_hash for text in ("a: 1, b: 2", "b: 2, a: 1")
    )
    assert first == second


def test_a_layer_adds_replaces_and_drops_single_options() -> None:
    def laid(*upper: str) -> dict[str, Any]:
        return recipe("generator.options={a: 1, b: 2}", *upper).drawing.options

    assert laid("generator.options={b: 3, c: 4}") == {"a": 1, "b": 3, "c": 4}
    assert laid("generator.options.a=null") == {"b": 2}
    assert laid("generator.options=null") == {}


@pytest.mark.parametrize(
    ("options", "message"),
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
        (
            f"{{tokenizer_max_length: {2**40}}}",
            "tokenizer_max_length: found 1,099,511,627,776, expected",
        ),
        (f"{{a: {10**400}}}", "a: found a whole number of many digits, expected"),
        ("{a: -4097}", "a: found -4,097, expected"),
        ("{original_size: [1024, 1000000]}", "original_size: found 1,000,000, expected"),
        (f"{{max_area: {4096**2 + 1}}}", "max_area: found 16,777,217, expected"),
        ("{view_batch_size: 65}", "view_batch_size: found 65, expected"),
        ("{parallel: 129}", "parallel: found 129, expected"),
        (f"{{a: {'x' * (LONGEST_TEXT + 1)}}}", "a: found 1,001 characters"),
        (
            f"{{a: [{', '.join(['1'] * (LONGEST_LIST + 1))}]}}",
            f"a: found a list of {LONGEST_LIST + 1}",
        ),
        ("{__class__: 1}", "found the name '__class__'"),
        ("{a__b: 1}", "found the name 'a__b'"),
        ("{'a b': 1}", "found the name 'a b'"),
        ("{'': 1}", "found the name ''"),
        (f"{{{'x' * (LONGEST_OPTION_NAME + 1)}: 1}}", "found the name"),
        (
            f"{{{', '.join(f'o{n}: 1' for n in range(MOST_OPTIONS + 1))}}}",
            f"found {MOST_OPTIONS + 1} options",
        ),
        ("[a]", "expected"),
    ],
)
def test_what_is_no_plain_value_or_too_much_is_refused(options: str, message: str) -> None:
    assert message in refused(options)


def test_only_what_renders_takes_options() -> None:
    with pytest.raises(UserError, match="found options, expected none with kind rows"):
        recipe("generator={kind: rows, model: null, rows: {base: {'00': [0]}}, options: {a: 1}}")


EDIT = "generator={kind: edit, split: validation}"
ASKS = "prompts.shifts.red.prompt='{caption}, red'"


@pytest.mark.parametrize(
    "case",
    [
        ("generator.split training-split", "generator={kind: edit}"),
        ("samples.noise wrong-kind", EDIT, "samples.noise=independent"),
        ("generator.dataset wrong-kind", EDIT, "generator.dataset=./photos"),
        ("generator.compile wrong-kind", EDIT, "generator.compile=true"),
        ("generator.guidance_interval wrong-kind", EDIT, "generator.guidance_interval=[0.2, 0.8]"),
        ("generator.model missing-key", EDIT, "generator.model=null"),
        ("prompts.shifts.red.prompt missing-word", EDIT, ASKS),
        ("prompts.shifts.red.prompt wrong-kind", ASKS),
        ("generator.captioner conflicting-keys", EDIT, "generator.captioner=lab:captioner"),
        (
            "generator conflicting-keys",
            EDIT,
            ASKS,
            "generator.captioner=lab:captioner",
            "generator.caption_column=text",
        ),
        ("prompts.shifts.red.prompt missing-class", EDIT, "prompts.shifts.red.prompt=red"),
        ("screen.object_caption unknown-placeholder", EDIT, "screen.object_caption='{caption}'"),
        ("screen.keep wrong-kind", "screen.keep=[thresholds, {same_image: {}}]"),
        (
            "generator.captioner wrong-kind",
            "generator={kind: retrieve, model: null, captioner: 'lab:captioner'}",
        ),
    ],
)
def test_what_cannot_be_edited_is_refused(case: tuple[str, ...]) -> None:
    assert_refused("wardrobe-mini", *case)


def test_it_draws_from_rows_and_other_kinds_say_nothing_of_its_keys() -> None:
    edit = load_recipe("wardrobe-edited")
    drawn = load_recipe("wardrobe-mini")
    assert edit.kind.draws and edit.kind.takes_rows and "source_row" in edit.added_columns
    assert (
        drawn.kind.draws and not drawn.kind.takes_rows and "source_row" not in drawn.added_columns
    )
    assert not {"captioner", "caption_column", "split"} & set(drawn.generator.model_dump())
    assert [(s.name, s.prompt, s.caption) for s in edit.all_shifts()] == [
        (s.name, s.prompt, s.caption) for s in drawn.all_shifts()
    ]
    assert edit.plan_hash != load_recipe("wardrobe-edited", ["generator.split=audit"]).plan_hash


def test_lance_has_its_five_perturbations() -> None:
    lance = load_recipe("wardrobe-lance")
    groups = list(dict.fromkeys(shift.group for shift in lance.all_shifts()))
    assert groups == ["base", "subject", "object", "background", "adjective", "domain"]
    assert lance.all_shifts()[0].prompt == "{caption}" and lance.generator.get("captioner")


def test_a_datasets_own_recipe_names_no_folder_of_a_captioner(tmp_path) -> None:
    recipe = load_recipe("wardrobe-lance", ["generator.captioner=local-dir:/somewhere/blip"])
    assert "/somewhere" not in recipe.portable_yaml
    (tmp_path / "recipe.yaml").write_text(recipe.portable_yaml)
    stored = load_own_recipe(tmp_path)
    assert stored.plan_hash == recipe.plan_hash and "elsewhere" in stored.generator.get("captioner")


CORRUPT = "wardrobe-corrupt"


@pytest.mark.parametrize(
    "case",
    [
        (
            "prompts.shifts.fog.corruption invalid-value did you mean 'fog'?",
            CORRUPT,
            "prompts.shifts.fog.corruption=fogg",
        ),
        ("prompts.shifts.fog.severity out-of-range", CORRUPT, "prompts.shifts.fog.severity=6"),
        (
            "prompts.shifts.fog.corruption missing-key",
            CORRUPT,
            "prompts.shifts.fog={severity: 2, corruption: null}",
        ),
        (
            "prompts.shifts.fog.prompt wrong-kind",
            CORRUPT,
            "prompts.shifts.fog.prompt=a {class} in fog",
        ),
        ("prompts.base.prompt wrong-kind", CORRUPT, "prompts.base=a photo of a {class}"),
        ("tokens wrong-kind", CORRUPT, "tokens={path: 'lab:tokens'}"),
        ("generator.split training-split", CORRUPT, "generator.split=train"),
        ("samples.noise wrong-kind", CORRUPT, "samples.noise=independent"),
        ("samples.pairs wrong-kind", CORRUPT, "samples.pairs=attention"),
        ("generator.model wrong-kind", CORRUPT, "generator.model=lab:sd"),
        ("screen.shift_threshold screen-needed", CORRUPT, "screen.shift_threshold=0.2"),
        (
            "screen.object_threshold screen-needed",
            CORRUPT,
            "screen.object_threshold={percentile: 5}",
        ),
        ("prompts.shifts.fog.caption screen-needed", CORRUPT, "prompts.shifts.fog.caption=fog"),
        (
            "prompts.shifts.fog.object_threshold screen-needed",
            CORRUPT,
            "prompts.shifts.fog.object_threshold={percentile: 5}",
        ),
        (
            "prompts.base.object_threshold screen-needed",
            CORRUPT,
            "prompts.base={object_threshold: 0.2}",
        ),
        ("screen.keep screen-needed", CORRUPT, "screen.keep=[{top: {k: 2, by: object}}]"),
        ("screen.store_embeddings screen-needed", CORRUPT, "screen.store_embeddings=true"),
        (
            "prompts.shifts.red.corruption wrong-kind",
            "wardrobe-mini",
            "prompts.shifts.red.corruption=fog",
        ),
        (
            "prompts.shifts.red.severity wrong-kind",
            "wardrobe-mini",
            "prompts.shifts.red.severity=2",
        ),
        ("screen.model missing-key", "wardrobe-mini", "screen.model=null"),
        (
            "screen invalid-value missing object_threshold",
            "wardrobe-mini",
            "screen.object_threshold=null",
        ),
        (
            "evaluate.corrupted.fog.severity invalid-value write `severity: 1`, or `severity: 5`",
            "wardrobe-corrupt",
            "evaluate.corrupted={fog: {corruption: fog, severity: {levels: [1]}}}",
        ),
        (
            "evaluate.preprocessing invalid-value found it with the task objects",
            "wardrobe-boxes",
            "evaluate.preprocessing=[bgr]",
        ),
        ("screen.model missing-key", "wardrobe-mini", "screen=null"),
        ("prompts.base.prompt missing-key", "wardrobe-mini", "prompts.base=null"),
    ],
)
def test_what_cannot_be_corrupted_is_refused(case: tuple[str, ...]) -> None:
    expected, name, *changes = case
    assert_refused(name, expected, *changes)


def test_it_takes_rows_draws_nothing_and_needs_no_screen(tmp_path: Path) -> None:
    recipe = load_recipe(CORRUPT, ["prompts.shifts.fog.severity=5"])
    assert recipe.kind.takes_rows and recipe.kind.alters_rows and not recipe.kind.draws
    assert list(recipe.added_columns) == ["source_row", "license", "severity", "unit"]
    shifts = {shift.name: shift for shift in recipe.all_shifts()}
    assert [shifts[name].severity for name in ("base", "fog", "snow")] == [0, 5, 3]
    assert (shifts["fog"].kind, shifts["snow"].kind, shifts["darker"].kind) == (
        "weather",
        "weather",
        "camera",
    )
    again = tmp_path / "again.yaml"
    again.write_text(dump_recipe(recipe))
    assert load_recipe(again) == recipe
    assert load_recipe(CORRUPT).plan_hash != recipe.plan_hash
    assert "severity" not in load_recipe("wardrobe-edited").added_columns


def test_a_split_of_its_own_may_be_the_only_one() -> None:
    """For photographs without splits, a recipe can name one split for training and validation."""
    alone = ["generator.split=train", "source.validation_split=train"]
    assert load_recipe(CORRUPT, alone).generator.get("split") == "train"


VECTORED = "prompts.shifts.red.embedding={file: hard.safetensors, key: '{class_id}_hard'}"


def test_a_shift_may_have_a_prompt_an_embedding_or_both() -> None:
    beside = load_recipe("wardrobe-mini", [VECTORED])
    alone = load_recipe("wardrobe-mini", [VECTORED, "prompts.shifts.red.prompt=null"])
    both, only = (
        next(s for s in recipe.all_shifts() if s.name == "red") for recipe in (beside, alone)
    )
    assert alone.kind.made_by(only) == "an image embedding"
    assert beside.kind.made_by(both) == f"{both.prompt} and an image embedding"
    hashes = {recipe.plan_hash for recipe in (beside, alone, load_recipe("wardrobe-mini"))}
    assert len(hashes) == 3


def test_neither_is_reported_for_every_shift_at_once() -> None:
    lines = refused_for(mini, "prompts.base.prompt=null", "prompts.shifts.red.prompt=null")
    assert [(line.path, line.code) for line in lines] == [
        ("prompts.base.prompt", "missing-key"),
        ("prompts.shifts.red.prompt", "missing-key"),
    ]


def test_file_and_key_name_an_input_and_enter_no_hash_of_a_directory() -> None:
    vectored = load_recipe("wardrobe-mini", [VECTORED])
    for change in ("key=x_{class_id}", "file=/elsewhere/easy.safetensors"):
        other = load_recipe("wardrobe-mini", [VECTORED, f"prompts.shifts.red.embedding.{change}"])
        assert (other.plan_hash, other.screen_hash) == (vectored.plan_hash, vectored.screen_hash)
        assert other.recipe_hash != vectored.recipe_hash, (
            "a layer was written for the vectors that its author saw"
        )


LORA = "generator.lora.snow={path: /a/snow.safetensors, scale: 0.5}"


def test_the_scale_of_lora_weights_is_of_the_plan_and_a_folder_enters_by_its_name() -> None:
    plain = load_recipe("wardrobe-mini")
    adapted = load_recipe("wardrobe-mini", [LORA])
    same = load_recipe("wardrobe-mini", [LORA, "generator.lora.snow.path=/b/snow.safetensors"])
    assert (
        adapted.plan_hash == same.plan_hash == load_recipe("wardrobe-mini", [LORA, LORA]).plan_hash
    )
    for change in ("scale=0.6", "revision=main", "path=/a/other.safetensors"):
        assert (
            load_recipe("wardrobe-mini", [LORA, f"generator.lora.snow.{change}"]).plan_hash
            != adapted.plan_hash
        )
    dropped = load_recipe("wardrobe-mini", [LORA, "generator.lora.snow=null"])
    assert dropped.plan_hash == plain.plan_hash != adapted.plan_hash
    assert (
        dropped.portable_yaml == plain.portable_yaml
        and "path: ./snow.safetensors" in adapted.portable_yaml
    )


@pytest.mark.parametrize(
    "case",
    [
        ("generator.lora.snow.scale out-of-range", "generator.lora.snow.scale=.inf"),
        ("generator.lora.snow.scale out-of-range", "generator.lora.snow.scale=21"),
        ("generator.lora invalid-name", "generator.lora.snow.path=/"),
        ("generator.lora.fog.path missing-key", "generator.lora.fog={scale: 1}"),
        ("generator.lora invalid-name", 'generator.lora={"a b": {path: user/name}}'),
        (
            "generator.lora invalid-value at most 16",
            "generator.lora={" + ", ".join(f"n{n}: {{path: user/name}}" for n in range(17)) + "}",
        ),
        (
            "prompts.shifts.red.severity.lora conflicting-keys",
            "prompts.shifts.red.severity={by: lora, levels: [1]}",
        ),
        (
            "prompts.shifts.red.severity.lora conflicting-keys",
            "prompts.shifts.red.severity={by: prompt, lora: snow, levels: [1]}",
        ),
        (
            "prompts.shifts.red.severity.lora unknown-name snow",
            "prompts.shifts.red.severity={by: lora, lora: snwo, levels: [1]}",
        ),
        (
            "prompts.shifts.red.severity pairs-conflict",
            "prompts.shifts.red.severity={by: lora, lora: snow, levels: [1]}",
            "samples.pairs=attention",
        ),
        ("generator.lora wrong-kind", "generator={kind: corrupt, model: null}"),
    ],
)
def test_lora_weights_that_a_recipe_names_in_vain_are_refused(case: tuple[str, ...]) -> None:
    expected, *changes = case
    assert_refused("wardrobe-mini", expected, LORA, *changes)


@pytest.mark.parametrize("key", ["", " ", "{class}", "{class_id", "a\nb", "{class_id}" * 30])
def test_a_key_that_no_class_fills_is_refused(key: str) -> None:
    change = f"prompts.shifts.red.embedding.key={json.dumps(key)}"
    lines = refused_for(mini, VECTORED, change)
    assert says(lines, "prompts.shifts.red.embedding.key", "invalid-text"), lines


def test_the_file_is_relative_to_the_recipe_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mined").mkdir()
    layer = tmp_path / "mined" / "layer.yaml"
    layer.write_text(
        "extends: wardrobe-mini\nprompts: {shifts: {red: {embedding: {file:"
        " vectors.safetensors}}}}\n"
    )
    monkeypatch.chdir(tmp_path)
    embedding = load_recipe(layer).prompts.shifts["red"].embedding
    assert embedding is not None
    assert (embedding.file, embedding.key) == (
        str(tmp_path / "mined" / "vectors.safetensors"),
        "{class_id}",
    )
    changed = (
        load_recipe(layer, ["prompts.shifts.red.embedding.file=mine.safetensors"])
        .prompts.shifts["red"]
        .embedding
    )
    assert changed is not None and changed.file == str(tmp_path / "mine.safetensors")


def test_a_datasets_own_recipe_names_its_own_copy_by_shift(tmp_path: Path) -> None:
    recipe = load_recipe(
        "wardrobe-mini", [VECTORED, "prompts.base.embedding={file: /a/b.safetensors, key: all}"]
    )
    (tmp_path / "recipe.yaml").write_text(recipe.portable_yaml)
    (tmp_path / "lock.json").write_text("{}")
    stored = load_own_recipe(tmp_path)
    embeddings = [spec.embedding for spec in (stored.prompts.base, stored.prompts.shifts["red"])]
    assert [embedding.key for embedding in embeddings if embedding] == ["base", "red/{class_id}"]
    assert {embedding.file for embedding in embeddings if embedding} == {str(tmp_path / EMBEDDINGS)}
    assert stored.plan_hash == recipe.plan_hash and stored.portable_yaml == recipe.portable_yaml
    assert str(tmp_path) not in stored.portable_yaml


@pytest.mark.parametrize(
    "file", ["/etc/passwd", "../v.safetensors", "v.safetensors", f"./x/{EMBEDDINGS}"]
)
def test_a_strangers_recipe_opens_no_other_file(tmp_path: Path, file: str) -> None:
    text = dump_recipe(
        load_recipe("wardrobe-mini", [VECTORED, f"prompts.base.embedding.file={file}"])
    )
    (tmp_path / "recipe.yaml").write_text(text)
    (tmp_path / "lock.json").write_text("{}")
    lines = refused_for(load_recipe, tmp_path)
    assert [(line.code, line.values["expected"]) for line in lines] == [
        ("not-in-a-dataset", f"./{EMBEDDINGS}")
    ] * 2


def test_rows_of_a_pool_are_not_drawn_from_embeddings() -> None:
    rows = (
        "generator={kind: rows, rows: {base: {}}, model: null, steps: null, guidance: null,"
        " scheduler: null}"
    )
    lines = refused_for(mini, VECTORED, "tokens=null", "samples.noise=independent", rows)
    assert says(lines, "prompts.shifts.red.embedding", "wrong-kind"), lines


BESIDE = "samples.pairs=attention"
DRAWN = "prompts.shifts.red.embedding={file: hard.safetensors, key: '{class_id}_hard'}"


def problems(*changes: str) -> list[ProblemLine]:
    return refused_for(mini, BESIDE, *changes)


@pytest.mark.parametrize(
    "case",
    [
        ("samples.noise pairs-conflict", "samples.noise=independent"),
        ("generator.batch_size pairs-conflict 4 or 6", "generator.batch_size=5"),
        ("generator.batch_size pairs-conflict such as 2", "generator.batch_size=1"),
        ("generator.compile pairs-conflict", "generator.compile=true"),
        ("generator.adapter pairs-conflict", "generator.adapter=lab:decoder"),
        (
            "prompts.base.embedding pairs-conflict",
            "prompts.base.embedding={file: a.safetensors, key: '{class_id}'}",
        ),
        ("prompts.shifts.red.embedding pairs-conflict", DRAWN),
        (
            "samples.pairs wrong-kind retrieve",
            "generator={kind: retrieve, model: null, steps: null, guidance: null}",
            "tokens=null",
        ),
    ],
)
def test_what_does_not_go_with_it_is_reported_by_its_key(case: tuple[str, ...]) -> None:
    expected, *changes = case
    assert_refused("wardrobe-mini", expected, BESIDE, *changes)


def test_all_of_it_is_reported_at_once() -> None:
    changes = ("samples.noise=independent", "generator.batch_size=3", "generator.compile=true")
    keys = {problem.path for problem in problems(*changes)}
    assert keys == {"samples.noise", "generator.batch_size", "generator.compile"}


def test_what_is_held_of_a_base_is_of_the_plan_and_of_nothing_where_pairs_share_noise_alone() -> (
    None
):
    plain = load_recipe("wardrobe-mini")
    beside = load_recipe("wardrobe-mini", [BESIDE])
    default = ["samples.held={share: 0.4, until: 0.6}"]
    less = ["samples.held.share=0.25"]
    assert load_recipe("wardrobe-mini", [BESIDE, *default]).plan_hash == beside.plan_hash
    assert load_recipe("wardrobe-mini", default).plan_hash == plain.plan_hash
    assert load_recipe("wardrobe-mini", [BESIDE, *less]).plan_hash != beside.plan_hash
    assert says(refused_for(mini, *less), "samples.held", "conflicting-keys")


def test_rows_tell_what_pairs_share_only_where_a_recipe_asks_for_more_than_noise() -> None:
    plain = load_recipe("wardrobe-mini")
    beside = load_recipe("wardrobe-mini", [BESIDE])
    assert PAIRED_BY not in plain.added_columns and beside.added_columns[PAIRED_BY].type == "string"
    assert set(beside.added_columns) == {*plain.added_columns, PAIRED_BY}
    assert all(plain.given(shift) == {} for shift in plain.all_shifts())
    shared = {shift.name: beside.given(shift)[PAIRED_BY] for shift in beside.all_shifts()}
    assert shared.pop("base") is None and set(shared.values()) == {"attention"}


@pytest.mark.parametrize(
    ("steps", "held", "ends", "least"),
    [
        (12, "{until: 0.1}", "2 of 12 ends", 0.167),
        (2, "{until: 0.4}", "1 of 2 ends", 0.5),
        (7, "{share: 0.2, until: 0.28}", "2 of 7 ends", 0.286),
        (1, "{share: 1}", "one ends", 1),
    ],
)
def test_a_part_that_no_step_would_hold_is_refused_and_what_is_expected_is_held(
    steps: int, held: str, ends: str, least: float
) -> None:
    changes = [BESIDE, f"generator.steps={steps}", f"samples.held={held}"]
    (line,) = refused_for(mini, *changes)
    assert (line.path, line.code) == ("samples.held.until", "out-of-range")
    assert (line.values["ends"], line.values["least"]) == (ends, least)
    recipe = load_recipe("wardrobe-mini", [*changes, f"samples.held.until={least}"])
    assert recipe.samples.held.holds(steps)


@pytest.mark.parametrize(
    "held", ["{until: 0}", "{share: 0, until: 0.01}", "{share: 0.4, until: 0.6}", "{until: 1}"]
)
@pytest.mark.parametrize("steps", [1, 2, 12])
def test_nothing_is_held_where_nothing_is_asked_for_and_by_default_as_far_as_steps_go(
    steps: int, held: str
) -> None:
    recipe = load_recipe(
        "wardrobe-mini", [BESIDE, f"generator.steps={steps}", f"samples.held={held}"]
    )
    asks = "0" not in held or "0.6" in held
    assert recipe.samples.held.holds(steps) == (asks and (steps > 1 or "1}" in held))
