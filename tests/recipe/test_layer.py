"""A written layer says what it changes and of what; loaded over another recipe than that one, it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.errors import UserError
from counterfoil.recipe import dump_recipe, layer_text, load_own_recipe, load_recipe
from counterfoil.recipe.strict_yaml import read_yaml
from support.files import write

# A change of these refuses every layer that was written before it; the changelog tells.
PINNED = {
    "wardrobe-mini": "f47ad3d38caac4cbc7bc14dcb17a3194db3a885a3b84f741752e403657a14c42",
    "imagenet-star": "d512560e7bc04e6a559222cf019d77756b098a44a0bead81974c1d2e1700a7b5",
}
MINED = {
    "name": "mini-mined",
    "prompts": {
        "shifts": {
            **dict.fromkeys(load_recipe("wardrobe-mini").prompts.shifts),
            "found_1": {
                "kind": "mined",
                "prompt": "a photo of a {class}, dotted: 'twice'",
                "caption": "a photo dotted",
                "classes": ("06", "08"),
                "group": "mined_1",
                "mined_from": {"target": "lab:resnet10t", "rate": 0.31, "rows": ["ab", None]},
            },
        }
    },
}


def problems(path: Path) -> list[str]:
    with pytest.raises(UserError) as refused:
        load_recipe(path)
    assert refused.value.exit_code == 2
    return list(refused.value.problems)


@pytest.mark.parametrize("name", PINNED)
def test_the_hash_of_a_bundled_recipe_stands(name: str) -> None:
    assert load_recipe(name).recipe_hash == PINNED[name]


def test_a_layer_is_read_as_it_was_meant(tmp_path: Path) -> None:
    mini = load_recipe("wardrobe-mini")
    text = layer_text(MINED, mini, "wardrobe-mini")
    read = read_yaml(text, "layer")
    assert list(read) == ["extends", "extends_sha256", "name", "prompts"], "what a reviewer asks first stands first"
    assert read["extends_sha256"] == mini.recipe_hash
    recipe = load_recipe(write(tmp_path / "mined.yaml", text))
    assert list(recipe.prompts.shifts) == ["found_1"]
    found = recipe.prompts.shifts["found_1"]
    assert (found.kind, found.classes) == ("mined", ("06", "08"))
    assert found.prompt == "a photo of a {class}, dotted: 'twice'"
    assert recipe.generator == mini.generator
    assert dump_recipe(load_recipe(write(tmp_path / "whole.yaml", dump_recipe(recipe)))) == dump_recipe(recipe)


words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
changes = st.fixed_dictionaries(
    {},
    optional={
        "description": words | st.none(),
        "samples": st.fixed_dictionaries({"seed": st.integers(0, 2**53 - 1)}),
        "evaluate": st.fixed_dictionaries({"models": st.lists(st.just("resnet50"), max_size=2)}),
        "prompts": st.fixed_dictionaries(
            {"shifts": st.dictionaries(st.sampled_from(["red", "at_night"]), st.none(), max_size=2)}
        ),
    },
)


@given(changes)
def test_any_changes_read_back_as_those_changes(made: dict[str, Any]) -> None:
    read = read_yaml(layer_text(made, load_recipe("wardrobe-mini"), "./a folder/x.yaml"), "layer")
    assert {key: read[key] for key in read if not key.startswith("extends")} == made
    assert read["extends"] == "./a folder/x.yaml"


def test_a_parent_that_has_changed_is_told_with_both_hashes_and_a_way_out(tmp_path: Path) -> None:
    parent = write(tmp_path / "parent.yaml", "extends: wardrobe-mini\nname: parent\n")
    before = load_recipe(parent).recipe_hash
    layer = write(tmp_path / "layer.yaml", layer_text({"name": "mined"}, load_recipe(parent), "./parent.yaml"))
    assert load_recipe(layer).name == "mined"
    write(parent, "extends: wardrobe-mini\nname: parent\nsamples: {seed: 9}\n")
    after = load_recipe(parent).recipe_hash
    (said,) = problems(layer)
    assert said.startswith("extends_sha256 (") and "layer.yaml:3" in said
    assert "./parent.yaml has changed" in said and before in said and after in said
    text = layer.read_text()
    assert load_recipe(write(layer, text.replace(before, after))).samples.seed == 9
    assert load_recipe(write(layer, text.replace(f"extends_sha256: {before}\n", ""))).samples.seed == 9
    assert load_recipe(write(layer, text.replace(before, "null"))).samples.seed == 9


@pytest.mark.parametrize(
    "change",
    [
        "prompts.shifts.red.prompt=one red {class}",
        "screen.shift_threshold=0.3",
        "source.dataset=./photos",
        "source.validation_split=test",
        "source.revision=abc",
        "tokens.path=./mine",
        "tokens={path: null, learn: {}}",
        "source.classes=[{id: '00', name: t-shirt, source_label: 4}]",
        "generator.guidance=2",
    ],
)
def test_whatever_decides_images_or_rows_is_another_recipe(change: str) -> None:
    assert load_recipe("wardrobe-mini", [change]).recipe_hash != load_recipe("wardrobe-mini").recipe_hash


@pytest.mark.parametrize(
    "change",
    [
        "name=other",
        "description=other",
        "evaluate.models=[resnet50]",
        "publish.repo=me/mine",
        "prompts.shifts.red.mined_from={a: 1}",
        "source.train_split=train",  # a default, written out
        "tokens.revision=null",
    ],
)
def test_what_decides_neither_is_the_same_recipe(change: str) -> None:
    assert load_recipe("wardrobe-mini", [change]).recipe_hash == load_recipe("wardrobe-mini").recipe_hash


def test_a_recipe_is_the_same_wherever_its_folders_lie(tmp_path: Path) -> None:
    hashes = set()
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        text = "extends: wardrobe-mini\nsource: {dataset: ./photos}\ntokens: {path: ./tokens}\n"
        hashes.add(load_recipe(write(tmp_path / name / "a.yaml", text)).recipe_hash)
        own = load_recipe(tmp_path / name / "a.yaml").portable_yaml
        hashes.add(load_own_recipe(tmp_path / name, text=own).recipe_hash)
    assert len(hashes) == 1


def test_every_layer_of_a_chain_is_asked(tmp_path: Path) -> None:
    lowest = write(tmp_path / "a.yaml", "extends: wardrobe-mini\n")
    write(tmp_path / "b.yaml", layer_text({"name": "b"}, load_recipe(lowest), "./a.yaml"))
    write(tmp_path / "c.yaml", layer_text({"name": "c"}, load_recipe(tmp_path / "b.yaml"), "./b.yaml"))
    plain = write(tmp_path / "d.yaml", "extends: ./c.yaml\n")
    assert load_recipe(plain).name == "c"
    write(lowest, "extends: wardrobe-mini\nsamples: {seed: 1}\n")
    said = problems(plain)
    assert len(said) == 2 and "b.yaml:3" in said[0] and "c.yaml:3" in said[1]


def test_a_parent_that_is_no_recipe_any_more_is_told(tmp_path: Path) -> None:
    parent = write(tmp_path / "parent.yaml", "extends: wardrobe-mini\n")
    layer = write(tmp_path / "layer.yaml", layer_text({"name": "x"}, load_recipe(parent), "./parent.yaml"))
    write(parent, "extends: wardrobe-mini\nsamples: {sed: 1}\n")
    (said,) = problems(layer)
    assert "layer.yaml:3" in said and "parent.yaml:2" in said and "did you mean 'seed'" in said


@pytest.mark.parametrize("written", ["abc", "3", "[a]", "'" + "g" * 64 + "'"])
def test_what_is_no_sha256_is_told(tmp_path: Path, written: str) -> None:
    (said,) = problems(write(tmp_path / "a.yaml", f"extends: wardrobe-mini\nextends_sha256: {written}\n"))
    assert "a.yaml:2" in said and "64 digits" in said


def test_a_sha256_of_nothing_is_told(tmp_path: Path) -> None:
    (said,) = problems(write(tmp_path / "a.yaml", f"name: x\nextends_sha256: {'a' * 64}\n"))
    assert "a.yaml:2" in said and "expected `extends` beside it" in said


def test_a_datasets_own_recipe_has_none(tmp_path: Path) -> None:
    text = load_recipe("wardrobe-mini").portable_yaml + f"extends_sha256: {'a' * 64}\n"
    with pytest.raises(UserError, match=r"extends_sha256 .*unknown key"):
        load_own_recipe(tmp_path, text=text)


def test_changes_cannot_extend_anything_themselves() -> None:
    for key in ("extends", "extends_sha256"):
        with pytest.raises(ValueError, match="cannot say what it extends"):
            layer_text({key: "x"}, load_recipe("wardrobe-mini"))


def test_a_layer_that_extends_nothing_names_its_recipe_in_a_comment() -> None:
    mini = load_recipe("wardrobe-mini")
    text = layer_text({"prompts": {"shifts": {"red": {"threshold": 0.2}}}}, mini)
    head, _, rest = text.partition("\n")
    assert head.startswith("# ") and "wardrobe-mini" in head and mini.recipe_hash in head
    assert rest == "prompts:\n  shifts:\n    red:\n      threshold: 0.2\n"
