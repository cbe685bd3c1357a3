"""Shifts that are drawn from image embeddings, as recipes say it: what enters which hash, and which file is meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from counterfoil.errors import UserError
from counterfoil.recipe import drawn_from, dump_recipe, load_own_recipe, load_recipe
from counterfoil.recipe.names import EMBEDDINGS

DRAWN = "prompts.shifts.red.embedding={file: hard.safetensors, key: '{class_id}_hard'}"


def test_a_shift_may_have_a_prompt_an_embedding_or_both() -> None:
    beside = load_recipe("wardrobe-mini", [DRAWN])
    alone = load_recipe("wardrobe-mini", [DRAWN, "prompts.shifts.red.prompt=null"])
    both, only = (next(s for s in recipe.all_shifts() if s.name == "red") for recipe in (beside, alone))
    assert drawn_from(only) == "an image embedding"
    assert drawn_from(both) == f"{both.prompt} and an image embedding"
    hashes = {recipe.plan_hash for recipe in (beside, alone, load_recipe("wardrobe-mini"))}
    assert len(hashes) == 3


def test_neither_is_told_for_every_shift_at_once() -> None:
    with pytest.raises(UserError) as refused:
        load_recipe("wardrobe-mini", ["prompts.base.prompt=null", "prompts.shifts.red.prompt=null"])
    told = "\n".join(refused.value.problems)
    assert "prompts.base.prompt" in told and "prompts.shifts.red.prompt" in told
    assert told.count("missing, expected a prompt with '{class}', or an `embedding`") == 2


def test_file_and_key_name_an_input_and_enter_no_hash_of_a_directory() -> None:
    one = load_recipe("wardrobe-mini", [DRAWN])
    for change in ("key=x_{class_id}", "file=/elsewhere/easy.safetensors"):
        other = load_recipe("wardrobe-mini", [DRAWN, f"prompts.shifts.red.embedding.{change}"])
        assert (other.plan_hash, other.screen_hash) == (one.plan_hash, one.screen_hash)
        assert other.recipe_hash != one.recipe_hash, "a layer was written for the vectors that its author saw"


def test_an_adapter_is_of_the_plan_and_a_folder_enters_by_its_name() -> None:
    plain = load_recipe("wardrobe-mini")
    here, there = (load_recipe("wardrobe-mini", [f"generator.adapter={p}/ip"]) for p in ("/a", "/b"))
    assert here.plan_hash == there.plan_hash != plain.plan_hash
    assert "adapter: ./ip" in here.portable_yaml


@pytest.mark.parametrize("key", ["", " ", "{class}", "{class_id", "a\nb", "{class_id}" * 30])
def test_a_key_that_no_class_fills_is_refused(key: str) -> None:
    with pytest.raises(UserError, match=r"embedding\.key"):
        load_recipe("wardrobe-mini", [DRAWN, f"prompts.shifts.red.embedding.key={json.dumps(key)}"])


def test_the_file_is_relative_to_the_recipe_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mined").mkdir()
    layer = tmp_path / "mined" / "layer.yaml"
    layer.write_text("extends: wardrobe-mini\nprompts: {shifts: {red: {embedding: {file: vectors.safetensors}}}}\n")
    monkeypatch.chdir(tmp_path)
    embedding = load_recipe(layer).prompts.shifts["red"].embedding
    assert embedding is not None
    assert (embedding.file, embedding.key) == (str(tmp_path / "mined" / "vectors.safetensors"), "{class_id}")
    changed = load_recipe(layer, ["prompts.shifts.red.embedding.file=mine.safetensors"]).prompts.shifts["red"].embedding
    assert changed is not None and changed.file == str(tmp_path / "mine.safetensors")


def test_a_datasets_own_recipe_names_its_own_copy_by_shift(tmp_path: Path) -> None:
    recipe = load_recipe("wardrobe-mini", [DRAWN, "prompts.base.embedding={file: /a/b.safetensors, key: all}"])
    (tmp_path / "recipe.yaml").write_text(recipe.portable_yaml)
    (tmp_path / "lock.json").write_text("{}")
    own = load_own_recipe(tmp_path)
    found = [spec.embedding for spec in (own.prompts.base, own.prompts.shifts["red"])]
    assert [one.key for one in found if one] == ["base", "red/{class_id}"]
    assert {one.file for one in found if one} == {str(tmp_path / EMBEDDINGS)}
    assert own.plan_hash == recipe.plan_hash and own.portable_yaml == recipe.portable_yaml
    assert str(tmp_path) not in own.portable_yaml


@pytest.mark.parametrize("file", ["/etc/passwd", "../v.safetensors", "v.safetensors", f"./x/{EMBEDDINGS}"])
def test_a_strangers_recipe_opens_no_other_file(tmp_path: Path, file: str) -> None:
    text = dump_recipe(load_recipe("wardrobe-mini", [DRAWN, f"prompts.base.embedding.file={file}"]))
    (tmp_path / "recipe.yaml").write_text(text)
    (tmp_path / "lock.json").write_text("{}")
    with pytest.raises(UserError) as refused:
        load_recipe(tmp_path)
    assert len(refused.value.problems) == 2
    assert all(f"a dataset's own are in ./{EMBEDDINGS}" in problem for problem in refused.value.problems)


def test_rows_of_a_pool_are_not_drawn_from_embeddings() -> None:
    with pytest.raises(UserError, match=r"prompts\.shifts\.red\.embedding.*rows of a pool are not drawn"):
        load_recipe(
            "wardrobe-mini",
            [DRAWN, "tokens=null", "samples.noise=independent", "generator={kind: rows, rows: {base: {}}, model: null,"
             " steps: null, guidance: null, scheduler: null}"],
        )  # fmt: skip
