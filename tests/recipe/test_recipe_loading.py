"""Recipes are found, laid over one another and validated: layers, a dataset's own recipe, cuts,
plain texts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.errors import UserError
from counterfoil.recipe import (
    Recipe,
    dump_recipe,
    layer_text,
    load_own_recipe,
    load_recipe,
    load_recipe_text,
)
from counterfoil.recipe.layering import class_slug, lay_over, text_layers, with_overrides
from counterfoil.recipe.loader import load_cut, with_classes
from counterfoil.recipe.names import is_local, without_folders
from counterfoil.recipe.strict_yaml import LocatedMapping, Origin, read_yaml
from support.files import write
from support.recipes import problems as refused_for
from support.recipes import says
from support.refusals import problems_of


def located(value: object) -> object:
    if isinstance(value, dict):
        return LocatedMapping(
            {k: located(v) for k, v in value.items()}, dict.fromkeys(value, Origin("x", 1))
        )
    return value


def plain_merge(lower: dict, upper: dict) -> dict:
    """Merge by the rule of the design, written the obvious way."""
    merged = dict(lower)
    for key, value in upper.items():
        if value is None and key in lower:
            merged.pop(key)
        elif isinstance(value, dict) and isinstance(lower.get(key), dict):
            merged[key] = plain_merge(lower[key], value)
        else:
            merged[key] = value
    return merged


trees = st.recursive(
    st.none() | st.integers() | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=10,
).filter(lambda value: isinstance(value, dict))


@given(trees, trees)
def test_mappings_merge_deeply_lists_replace_and_null_deletes(lower: dict, upper: dict) -> None:
    below = located(lower)
    above = located(upper)
    assert isinstance(below, LocatedMapping) and isinstance(above, LocatedMapping)
    merged = lay_over(below, above)
    assert merged == plain_merge(lower, upper)
    assert merged.keys() == merged.origins.keys()
    assert below == lower and above == upper, "the layers themselves stay as they were"


def test_extends_goes_through_a_chain_of_names_and_paths(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", "extends: wardrobe-mini\nname: a\nsamples: {candidates: 7}\n")
    write(
        tmp_path / "deep" / "b.yaml",
        "extends: ../a.yaml\nname: b\nprompts: {shifts: {red: null}}\n",
    )
    recipe = load_recipe(tmp_path / "deep" / "b.yaml")
    mini = load_recipe("wardrobe-mini")
    assert recipe.name == "b"
    assert recipe.samples.candidates == 7
    assert recipe.generator == mini.generator
    assert list(recipe.prompts.shifts) == [name for name in mini.prompts.shifts if name != "red"]


def test_a_cycle_is_refused_and_shown(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", "extends: ./b.yaml\n")
    write(tmp_path / "b.yaml", "extends: ./a.yaml\n")
    with pytest.raises(UserError, match=r"extends itself: .*a\.yaml -> .*b\.yaml -> .*a\.yaml"):
        load_recipe(tmp_path / "a.yaml")


@pytest.mark.parametrize(
    ("extends", "message"),
    [
        ("wardrobe-mimi", "did you mean 'wardrobe-mini'"),
        ("./b.yaml", "no such recipe"),
        ("[a]", "one bundled name"),
    ],
)
def test_a_parent_that_is_not_there_is_reported_where_it_is_named(
    tmp_path: Path, extends: str, message: str
) -> None:
    path = write(tmp_path / "a.yaml", f"name: x\nextends: {extends}\n")
    with pytest.raises(UserError, match=message) as caught:
        load_recipe(path)
    assert "a.yaml:2" in caught.value.problems[0]


def test_overrides_come_after_extends_and_read_yaml() -> None:
    recipe = load_recipe(
        "wardrobe-mini",
        [
            "samples.candidates=3",
            "generator.guidance=5e-1",
            "prompts.shifts.red.threshold={percentile: 10}",
            "prompts.shifts.at_night=null",
            "evaluate.models=[lab:resnet10t, on]",
            "generator.scheduler=DDIM",
            "description=a = b",
        ],
    )
    assert recipe.samples.candidates == 3
    assert recipe.drawing.guidance == 0.5
    threshold = recipe.prompts.shifts["red"].threshold
    assert threshold is not None and threshold.percentile == 10
    assert "at_night" not in recipe.prompts.shifts
    assert recipe.evaluate.models == ("lab:resnet10t", "on")
    assert recipe.drawing.scheduler == "DDIM"
    assert recipe.description == "a = b"


def test_null_drops_what_is_inherited_so_that_a_mode_can_change() -> None:
    overrides = ["samples.candidates=null", "samples.accepted=5", "samples.at_most=20"]
    assert load_recipe("wardrobe-mini", overrides).samples.accepted == 5


def test_null_is_as_if_not_written() -> None:
    assert load_recipe("wardrobe-mini", ["output.split=null", "samples.seed="]) == load_recipe(
        "wardrobe-mini"
    )


def test_every_override_that_is_wrong_is_reported() -> None:
    with pytest.raises(UserError) as caught:
        with_overrides(LocatedMapping(), ["a", "=1", "a..b=1", "a=[", "a.b=1"])
    assert len(caught.value.problems) == 4
    assert all(problem.startswith("--set") for problem in caught.value.problems)


def test_recipes_of_one_file_of_classes_can_be_changed_alone(tmp_path: Path) -> None:
    write(tmp_path / "classes.yaml", "- {name: seven, aliases: [sept]}\n- eight\n")
    text = "source: {classes: ./classes.yaml}\n"
    first = text_layers(text, "recipe.yaml", tmp_path).laid["source"]["classes"]
    origins = [entry.origins["name"].line for entry in first]
    first[0]["name"] = "nine"
    first[0]["aliases"].append("neuf")
    first[0].origins.clear()
    first.pop()
    first.origins.pop()
    second = text_layers(text, "recipe.yaml", tmp_path).laid["source"]["classes"]
    assert [(entry["id"], entry["name"]) for entry in second] == [
        ("seven", "seven"),
        ("eight", "eight"),
    ]
    assert second[0]["aliases"] == ["sept"]
    assert [entry.origins["name"].line for entry in second] == origins == [1, 2]
    assert [origin.line for origin in second.origins] == [1, 2]


def test_paths_are_relative_to_the_file_that_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "lib" / "classes.yaml", '- {id: "7", name: seven, source_label: 7}\n')
    write(
        tmp_path / "lib" / "parent.yaml",
        "extends: wardrobe-mini\n"
        "source: {dataset: ./images, classes: classes.yaml}\n"
        "tokens: {path: ../tokens}\n"
        "screen: {model: 'local-dir:./clip'}\n"
        "evaluate: {models: ['local-dir:./net', resnet50]}\n",
    )
    child = write(tmp_path / "child.yaml", "extends: lib/parent.yaml\ngenerator: {model: ./sd}\n")
    monkeypatch.chdir(tmp_path / "lib")
    recipe = load_recipe(child, ["evaluate.min_images_per_class=2"])
    assert recipe.source.dataset == str(tmp_path / "lib" / "images")
    assert [cls.name for cls in recipe.classes] == ["seven"]
    assert recipe.tokens is not None and recipe.tokens.path == str(tmp_path / "tokens")
    assert recipe.drawing.model == str(tmp_path / "sd")
    assert recipe.screen.model == f"local-dir:{tmp_path / 'lib' / 'clip'}"
    assert recipe.evaluate.models == (f"local-dir:{tmp_path / 'lib' / 'net'}", "resnet50")
    overridden = load_recipe(child, ["generator.model=./other"])
    assert overridden.drawing.model == str(tmp_path / "lib" / "other")


def test_names_that_are_no_paths_are_left_alone() -> None:
    for name in ("lab:sd", "stabilityai/sd-turbo", "ViT-H-14", "hf-hub:a/b"):
        assert without_folders(name) == name
    assert (
        without_folders("local-dir:here")
        == without_folders("local-dir:a/b/here")
        == "local-dir:./here"
    )
    assert without_folders("local-dir:/a/b/clip") == "local-dir:./clip"
    assert without_folders("/a/b/sd/") == "./sd"


def test_a_folder_and_a_text_give_the_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "extends: wardrobe-mini\nname: mine\ntokens: {path: ./tokens}\n"
    write(tmp_path / "out" / "recipe.yaml", text)
    recipe = load_recipe(tmp_path / "out")
    monkeypatch.chdir(tmp_path / "out")
    assert recipe == load_recipe_text(text)
    assert recipe.tokens is not None and recipe.tokens.path == str(tmp_path / "out" / "tokens")


def test_a_bare_name_means_the_bundled_recipe_even_beside_a_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "wardrobe-mini" / "recipe.yaml", "extends: wardrobe-mini\nname: built\n")
    monkeypatch.chdir(tmp_path)
    assert load_recipe("wardrobe-mini").name == "wardrobe-mini"
    assert load_recipe("./wardrobe-mini").name == "built"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("wardrobe-mimi", "did you mean 'wardrobe-mini'"),
        ("./nothing.yaml", "no such recipe"),
        ("./recipee.yaml", "did you mean 'recipe.yaml'"),
        (".", "did you mean"),
        ("./empty", "without recipe.yaml"),
        ("./latin.yaml", "not UTF-8"),
        ("./list.yaml", "expected a mapping"),
    ],
)
def test_a_recipe_that_cannot_be_read_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    if source != ".":
        write(tmp_path / "recipe.yaml", "extends: wardrobe-mini\n")
    else:
        write(tmp_path / "recipe.yaml", "nmae: x\n")
    write(tmp_path / "list.yaml", "- 1\n")
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        load_recipe(source)


@pytest.mark.parametrize("key", ["generator.model", "screen.model", "source.dataset"])
@pytest.mark.parametrize("path", ["/", "//", "local-dir:/"])
def test_a_folder_has_a_name_by_which_it_is_known(key: str, path: str) -> None:
    with pytest.raises(UserError, match="expected a folder that has a name"):
        load_recipe("wardrobe-mini", [f"{key}={path}"])


# Changing one of these hashes refuses every layer written before; say so in the changelog.
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
    assert list(read) == ["extends", "extends_sha256", "name", "prompts"], (
        "what a reviewer asks first stands first"
    )
    assert read["extends_sha256"] == mini.recipe_hash
    recipe = load_recipe(write(tmp_path / "mined.yaml", text))
    assert list(recipe.prompts.shifts) == ["found_1"]
    shift = recipe.prompts.shifts["found_1"]
    assert (shift.kind, shift.classes) == ("mined", ("06", "08"))
    assert shift.prompt == "a photo of a {class}, dotted: 'twice'"
    assert recipe.generator == mini.generator
    assert dump_recipe(
        load_recipe(write(tmp_path / "whole.yaml", dump_recipe(recipe)))
    ) == dump_recipe(recipe)


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


def test_a_parent_that_has_changed_is_reported_with_both_hashes_and_a_way_out(
    tmp_path: Path,
) -> None:
    parent = write(tmp_path / "parent.yaml", "extends: wardrobe-mini\nname: parent\n")
    before = load_recipe(parent).recipe_hash
    layer = write(
        tmp_path / "layer.yaml", layer_text({"name": "mined"}, load_recipe(parent), "./parent.yaml")
    )
    assert load_recipe(layer).name == "mined"
    write(parent, "extends: wardrobe-mini\nname: parent\nsamples: {seed: 9}\n")
    after = load_recipe(parent).recipe_hash
    (problem,) = problems(layer)
    assert problem.startswith("extends_sha256 (") and "layer.yaml:3" in problem
    assert "./parent.yaml has changed" in problem and before in problem and after in problem
    text = layer.read_text()
    assert load_recipe(write(layer, text.replace(before, after))).samples.seed == 9
    assert (
        load_recipe(write(layer, text.replace(f"extends_sha256: {before}\n", ""))).samples.seed == 9
    )
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
    assert (
        load_recipe("wardrobe-mini", [change]).recipe_hash
        != load_recipe("wardrobe-mini").recipe_hash
    )


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
    assert (
        load_recipe("wardrobe-mini", [change]).recipe_hash
        == load_recipe("wardrobe-mini").recipe_hash
    )


def test_every_layer_of_a_chain_is_asked(tmp_path: Path) -> None:
    lowest = write(tmp_path / "a.yaml", "extends: wardrobe-mini\n")
    write(tmp_path / "b.yaml", layer_text({"name": "b"}, load_recipe(lowest), "./a.yaml"))
    write(
        tmp_path / "c.yaml", layer_text({"name": "c"}, load_recipe(tmp_path / "b.yaml"), "./b.yaml")
    )
    plain = write(tmp_path / "d.yaml", "extends: ./c.yaml\n")
    assert load_recipe(plain).name == "c"
    write(lowest, "extends: wardrobe-mini\nsamples: {seed: 1}\n")
    lines = problems(plain)
    assert len(lines) == 2 and "b.yaml:3" in lines[0] and "c.yaml:3" in lines[1]


def test_a_parent_that_is_no_recipe_any_more_is_reported(tmp_path: Path) -> None:
    parent = write(tmp_path / "parent.yaml", "extends: wardrobe-mini\n")
    layer = write(
        tmp_path / "layer.yaml", layer_text({"name": "x"}, load_recipe(parent), "./parent.yaml")
    )
    write(parent, "extends: wardrobe-mini\nsamples: {sed: 1}\n")
    (problem,) = problems(layer)
    assert (
        "layer.yaml:3" in problem
        and "parent.yaml:2" in problem
        and "did you mean 'seed'" in problem
    )


@pytest.mark.parametrize("written", ["abc", "3", "[a]", "'" + "g" * 64 + "'"])
def test_what_is_no_sha256_is_reported(tmp_path: Path, written: str) -> None:
    (problem,) = problems(
        write(tmp_path / "a.yaml", f"extends: wardrobe-mini\nextends_sha256: {written}\n")
    )
    assert "a.yaml:2" in problem and "64 digits" in problem


def test_a_sha256_of_nothing_is_reported(tmp_path: Path) -> None:
    (problem,) = problems(write(tmp_path / "a.yaml", f"name: x\nextends_sha256: {'a' * 64}\n"))
    assert "a.yaml:2" in problem and "expected `extends` too" in problem


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


FOLDERS = ["./evil", "../evil", "/evil", "~/evil", "~root/evil", ".", "..", ".hidden/evil", "local-dir:./evil",
           "local-dir:evil", "local-dir:/evil", "local-dir:data/../../evil"]  # fmt: skip
KEYS = ["source.dataset", "generator.model", "screen.model", "screen.judge"]


def dataset_recipe(directory: Path, *overrides: str, text: str | None = None) -> Recipe:
    """Write the recipe of a dataset directory, as a stranger may have done, and load it."""
    directory.mkdir(exist_ok=True)
    (directory / "lock.json").write_text("{}")
    written = text if text is not None else dump_recipe(load_recipe("wardrobe-mini", overrides))
    (directory / "recipe.yaml").write_text(written)
    return load_own_recipe(directory)


def names_of(recipe: Recipe) -> list[str]:
    tokens = (
        [recipe.tokens.path] if recipe.tokens is not None and recipe.tokens.path is not None else []
    )
    judge = [] if recipe.screen.judge is None else [recipe.screen.judge]
    return [
        recipe.source.dataset,
        recipe.drawing.model,
        recipe.screen.clip,
        *judge,
        *recipe.evaluate.models,
        *tokens,
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_of_a_dataset_is_a_name_that_opens_nothing(tmp_path: Path, folder: str) -> None:
    (tmp_path / "dataset" / "evil").mkdir(parents=True)
    text = (
        dump_recipe(load_recipe("wardrobe-mini"))
        .replace("lab:wardrobe", folder)
        .replace("lab:sd", folder)
    )
    text = text.replace("lab:clip", folder).replace("lab:resnet10t", folder)
    recipe = dataset_recipe(tmp_path / "dataset", text=text)
    local = [name for name in names_of(recipe) if is_local(name)]
    assert len(local) == 4
    assert all(name.startswith("elsewhere:") for name in local)
    assert not any(Path(name).exists() for name in local)


@pytest.mark.parametrize(
    "name", ["transformers:./evil", "transformers:/evil", "transformers:local-dir:evil", "open_clip:local-dir:evil",
             "open_clip:~/evil", "predictions:evil.csv", "predictions:/evil.csv", "predictions:../evil.csv"],
)  # fmt: skip
def test_a_classifier_of_any_kind_opens_no_file_of_this_machine(tmp_path: Path, name: str) -> None:
    text = dump_recipe(load_recipe("wardrobe-mini")).replace("lab:resnet10t", name)
    assert (
        f"elsewhere:{name.rpartition(':')[0]}:./{Path(name).name.rpartition(':')[2]}"
        in names_of(dataset_recipe(tmp_path, text=text))
    )


def test_the_address_of_a_datasets_chat_model_is_a_name_that_contacts_nobody(
    tmp_path: Path,
) -> None:
    name = "chat:qwen@http://evil.test:8000/v1"
    text = dump_recipe(load_recipe("wardrobe-mini", ["screen.judge=null"]))
    text = text.replace("lab:resnet10t", name)
    assert f"elsewhere:{name}" in names_of(dataset_recipe(tmp_path, text=text))


@pytest.mark.parametrize(
    "name", ["transformers:google/vit", "open_clip:ViT-B-32/openai", "open_clip:lab:clip"]
)
def test_a_classifier_of_the_hub_or_the_lab_keeps_its_name(tmp_path: Path, name: str) -> None:
    # As the second judge too, which the model that screens cannot be.
    text = dump_recipe(load_recipe("wardrobe-mini")).replace("lab:clip", "hf-hub:someone/clip")
    text = text.replace("lab:resnet10t", name)
    assert name in names_of(dataset_recipe(tmp_path, text=text)) and not is_local(name)


@pytest.mark.parametrize("key", KEYS)
def test_the_person_at_the_keyboard_may_say_where_it_lies(tmp_path: Path, key: str) -> None:
    dataset_recipe(tmp_path / "dataset", f"{key}=./evil")
    (tmp_path / "mine").mkdir()
    recipe = load_own_recipe(tmp_path / "dataset", [f"{key}={tmp_path / 'mine'}"])
    assert str(tmp_path / "mine") in names_of(recipe)


def test_its_own_tokens_are_those_in_the_directory_and_no_others(tmp_path: Path) -> None:
    inside = dataset_recipe(tmp_path / "dataset", "tokens={path: ./tokens}")
    assert inside.tokens is not None
    # What `--set` made absolute here is a folder of the machine that wrote it.
    assert inside.tokens.path == "elsewhere:./tokens"
    text = load_recipe("wardrobe-mini", ["tokens={path: ./tokens}"]).portable_yaml
    inside = dataset_recipe(tmp_path / "dataset", text=text)
    assert inside.tokens is not None and inside.tokens.path == str(tmp_path / "dataset" / "tokens")
    for other in ("./tokens/../../x", "../tokens", "/tokens", "./other"):
        outside = dataset_recipe(
            tmp_path / "dataset", text=text.replace("path: ./tokens", f"path: {other}")
        )
        assert outside.tokens is not None and outside.tokens.path is not None
        assert outside.tokens.path.startswith("elsewhere:")


@pytest.mark.parametrize("parent", ["wardrobe-mini", "./other.yaml", "/dev/zero", "/etc/passwd"])
def test_it_extends_nothing(tmp_path: Path, parent: str) -> None:
    with pytest.raises(
        UserError,
        match=r"extends \(.*recipe\.yaml:1\): a dataset's own recipe cannot extend another",
    ):
        dataset_recipe(tmp_path / "dataset", text=f"extends: {parent}\nname: mine\n")


def test_it_lists_its_classes(tmp_path: Path) -> None:
    text = dump_recipe(load_recipe("wardrobe-mini"))
    head, _, rest = text.partition("  classes:\n")
    rest = rest[rest.index("generator:") :]
    with pytest.raises(
        UserError,
        match=r"source\.classes .* found a path; a dataset's own recipe lists its classes",
    ):
        dataset_recipe(tmp_path / "dataset", text=f"{head}  classes: ./classes.yaml\n{rest}")


@pytest.mark.parametrize("source", [".", "./recipe.yaml"])
def test_whoever_names_the_directory_or_its_file_reads_a_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    text = dump_recipe(load_recipe("wardrobe-mini")).replace("lab:sd", "./evil")
    dataset_recipe(tmp_path / "dataset", text=text)
    monkeypatch.chdir(tmp_path / "dataset")
    assert load_recipe(source).drawing.model == "elsewhere:./evil"
    # So does a recipe that extends the dataset's.
    (tmp_path / "child.yaml").write_text("extends: ./dataset\nname: child\n")
    assert load_recipe(tmp_path / "child.yaml").drawing.model == "elsewhere:./evil"


@pytest.mark.parametrize("kind", ["/dev/zero", "fifo", "folder", "large"])
def test_only_regular_files_of_bounded_size_are_read(tmp_path: Path, kind: str) -> None:
    parent = tmp_path / "parent.yaml"
    expected = "is a pipe"
    match kind:
        case "/dev/zero":
            parent = Path("/dev/zero")
            expected = "is a device"
        case "fifo":
            os.mkfifo(parent)
        case "folder":
            parent.mkdir()
            expected = "a folder without recipe.yaml"
        case "large":
            parent.write_text("#" * 1_000_001)
            expected = "has 1,000,001 bytes, expected at most 1,000,000"
    child = tmp_path / "child.yaml"
    child.write_text(f"extends: {parent}\n")
    with pytest.raises(UserError, match=expected):
        load_recipe(child)
    if kind != "folder":
        child.write_text(f"extends: wardrobe-mini\nsource: {{classes: {parent}}}\n")
        with pytest.raises(UserError, match=expected):
            load_recipe(child)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("/" + "x/" * 2500, "too long for a path"),
        ("./" + "x" * 300, "too long for a path"),
        ("~nosuchuser/x", "there is no user ~nosuchuser"),
        ("./a\\0b", "holds a NUL character"),
        ("./a\\ud800b", "not valid YAML|holds half a character"),
    ],
)
@pytest.mark.parametrize(
    "key", ["extends", "source.dataset", "source.classes", "generator.model", "tokens.path"]
)
def test_names_that_no_path_can_have_are_reported_in_words(
    tmp_path: Path, key: str, name: str, expected: str
) -> None:
    section, _, inner = key.partition(".")
    value = f'{{{inner}: "{name}"}}' if inner else f'"{name}"'
    head = "" if key == "extends" else "extends: wardrobe-mini\n"
    (tmp_path / "mine.yaml").write_text(f"{head}{section}: {value}\n")
    with pytest.raises(UserError, match=expected):
        load_recipe(tmp_path / "mine.yaml")
    if key != "extends":
        with pytest.raises(UserError, match=expected):
            load_recipe("wardrobe-mini", [f'{key}="{name}"'])


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(dump_recipe(load_recipe("wardrobe-mini", ["output.row_version=2"])))
    return path


def cut(recipe: Path, text: str | bytes):
    layer = recipe.with_name("cut.yaml")
    layer.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_cut(recipe, layer)


def test_a_cut_lies_over_the_recipe(recipe: Path) -> None:
    before = load_recipe(recipe)
    after = cut(
        recipe, "prompts: {shifts: {red: {threshold: 0.3}}}\nscreen: {keep_rejected: true}\n"
    )
    assert after == load_recipe(
        recipe, ["prompts.shifts.red.threshold=0.3", "screen.keep_rejected=true"]
    )
    assert after.plan_hash == before.plan_hash
    assert after.screen_hash != before.screen_hash


def test_percentile_and_value_replace_each_other(recipe: Path) -> None:
    after = cut(
        recipe,
        "prompts: {base: {object_threshold: 0.1}, shifts: {red: {threshold: {percentile: 20}}}}",
    )
    red = next(shift for shift in after.all_shifts() if shift.name == "red")
    assert red.threshold is not None
    assert red.threshold.percentile == 20
    recipe.write_text(dump_recipe(after))
    red = next(
        s
        for s in cut(recipe, "prompts: {shifts: {red: {threshold: 0.2}}}").all_shifts()
        if s.name == "red"
    )
    assert red.threshold is not None
    assert red.threshold.value == 0.2
    recipe.write_text(
        dump_recipe(load_recipe("wardrobe-mini", ["prompts.shifts.red.threshold=0.2"]))
    )
    cut(recipe, "prompts: {shifts: {red: {threshold: {percentile: 3}}}}")
    assert cut(recipe, "screen: {object_threshold: 0.2}").screen.object_threshold.value == 0.2


def test_all_that_is_wrong_is_said_at_once(recipe: Path) -> None:
    text = """
nme: x
screen: {model: other, keep_rejcted: true}
prompts:
  base: {prompt: "a {class}"}
  shifts:
    reed: {threshold: 0.1}
    red: {caption: red, threshold: 0.2}
"""
    with pytest.raises(UserError) as refused:
        cut(recipe, text)
    lines = refused.value.problems
    assert refused.value.exit_code == 2
    keys = (
        "nme",
        "screen.model",
        "screen.keep_rejcted",
        "base.prompt",
        "shifts.reed",
        "shifts.red.caption",
    )
    assert len(lines) == len(keys)
    for key, line in zip(keys, lines, strict=True):
        assert key in line
        assert "cut.yaml:" in line
    assert "did you mean 'keep_rejected'" in lines[2]
    assert "did you mean 'red'" in lines[4]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        "- a",
        "prompts: null",
        "prompts: {shifts: [red]}",
        "prompts: {shifts: {red: 0.2}}",
        "prompts: {shifts: {red: {threshold: 2}}}",
        "prompts: {shifts: {red: {threshold: .nan}}}",
        "prompts: {shifts: {red: {threshold: {value: 0.1, percentile: 5}}}}",
        "prompts: {shifts: {red: {threshold: 0.1}, red: {threshold: 0.2}}}",
        "extends: wardrobe-star",
        "screen: !!python/object/apply:os.system [ls]",
        b"\xff\xfe",
        "prompts: {",
    ],
)
def test_what_is_no_cut_is_a_users_mistake(recipe: Path, text: str | bytes) -> None:
    with pytest.raises(UserError):
        cut(recipe, text)


def test_a_file_that_is_not_there_is_said(recipe: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.yaml"):
        load_cut(recipe, recipe.with_name("nowhere.yaml"))


def test_an_open_shift_and_a_quota_exclude_each_other() -> None:
    quota = ["samples=null", "samples={accepted: 2, at_most: 6}"]
    load_recipe("wardrobe-mini", quota)
    (problem,) = problems_of(
        load_recipe, "wardrobe-mini", [*quota, "prompts.shifts.red.threshold={percentile: 5}"]
    )
    assert "prompts.shifts.red.threshold" in problem
    assert "quota" in problem
    every = load_recipe("wardrobe-mini").prompts.shifts
    inherited = [f"prompts.shifts.{name}.threshold=null" for name in every]
    with pytest.raises(UserError, match=r"screen\.shift_threshold"):
        load_recipe("wardrobe-mini", [*quota, "screen.shift_threshold={percentile: 5}", *inherited])
    load_recipe("wardrobe-mini", ["screen.shift_threshold={percentile: 5}", *inherited])


HEAD = "recipe: 1\nname: things\n"
REST = """
generator: {model: "lab:sd"}
screen: {model: "lab:clip", object_threshold: 0.2, shift_threshold: 0.3}
samples: {candidates: 2}
"""
BASE = '\nprompts: {base: "a photo of a {class}"}'


def recipe_text(classes: str = "[mug, star]", prompts: str = BASE) -> str:
    return f'{HEAD}source: {{dataset: "lab:wardrobe", classes: {classes}}}{prompts}{REST}'


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("mug", "mug"),
        ("Ankle Boot", "ankle-boot"),
        ("coffee_mug", "coffee_mug"),
        ("  Café (au lait) ", "cafe-au-lait"),
        ("v1.5", "v1-5"),
        ("杯", ""),
    ],
)
def test_an_id_is_made_of_the_name(name: str, slug: str) -> None:
    assert class_slug(name) == slug


def test_a_plain_text_is_the_name_of_a_class_beside_mappings_of_any_keys() -> None:
    recipe = load_recipe_text(
        recipe_text('[mug, {name: Red Star}, {id: "07", name: ladder, source_label: 2}]')
    )
    classes = [(entry.id, entry.name, entry.source_label) for entry in recipe.source.classes or ()]
    assert classes == [("mug", "mug", None), ("red-star", "Red Star", None), ("07", "ladder", 2)]


def test_a_plain_text_is_the_prompt_of_the_base_and_of_a_shift() -> None:
    prompts = (
        '\nprompts: {base: "a photo of a {class}", shifts: {snow: "a photo of a {class} in'
        ' the snow"}}'
    )
    recipe = load_recipe_text(recipe_text(prompts=prompts))
    snow = recipe.prompts.shifts["snow"]
    assert recipe.prompts.base.prompt == "a photo of a {class}"
    assert (snow.prompt, snow.caption) == ("a photo of a {class} in the snow", None)


def test_a_plain_prompt_over_a_whole_shift_changes_its_prompt_alone() -> None:
    below = load_recipe("wardrobe-mini")
    recipe = load_recipe(
        "wardrobe-mini", ["prompts.shifts.red=a bright red {class}", "prompts.base=one {class}"]
    )
    assert recipe.prompts.shifts["red"].prompt == "a bright red {class}"
    assert recipe.prompts.shifts["red"].caption == below.prompts.shifts["red"].caption
    assert recipe.prompts.base.prompt == "one {class}"


def test_the_short_forms_mean_what_the_long_ones_do() -> None:
    short = load_recipe_text(
        recipe_text("[{name: mug, source_label: 0}, {name: star, source_label: 1}]")
    )
    long = load_recipe_text(
        recipe_text(
            "[{id: mug, name: mug, source_label: 0}, {id: star, name: star, source_label: 1}]",
            '\nprompts: {base: {prompt: "a photo of a {class}"}}',
        )
    )
    assert short == long
    assert short.recipe_hash == long.recipe_hash


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            recipe_text("[mug, 3]"),
            ("source.classes[1]", "wrong-type"),
        ),
        (
            recipe_text("[Mug, mug]"),
            ("source.classes[1].id", "duplicate"),
        ),
        (recipe_text("[mug, 杯]"), ("source.classes[1].id", "missing-key")),
        (recipe_text("[]"), ("source.classes", "out-of-range")),
        (
            recipe_text(prompts="\nprompts: {base: 3}"),
            ("prompts.base", "wrong-type"),
        ),
        (
            recipe_text(prompts="\nprompts: {base: a photo}"),
            ("prompts.base.prompt", "missing-class"),
        ),
    ],
)
def test_what_is_no_class_and_no_prompt_is_reported(text: str, expected: tuple[str, ...]) -> None:
    lines = refused_for(load_recipe_text, text)
    assert says(lines, *expected), lines


def test_a_recipe_whose_labels_are_open_says_so_and_dumps_as_it_was_written() -> None:
    for classes in ("null", "[mug, star]"):
        recipe = load_recipe_text(recipe_text(classes))
        assert not recipe.names_every_label
        for attribute in ("classes", "plan_hash", "screen_hash", "recipe_hash"):
            with pytest.raises(UserError, match="they must be read from lab:wardrobe") as refused:
                getattr(recipe, attribute)
            assert "counterfoil.resolve_classes(recipe)" in (refused.value.hint or "")
        assert load_recipe_text(dump_recipe(recipe)) == recipe


def test_a_dataset_s_own_recipe_leaves_no_label_open(tmp_path: Path) -> None:
    for classes in ("null", "[mug, star]"):
        with pytest.raises(UserError, match="each with its source_label"):
            load_own_recipe(tmp_path, text=recipe_text(classes))


def _with_labels(text: str) -> str:
    """Write the labels of the source into the recipe's text."""
    return text.replace("mug,", "{id: mug, name: mug, source_label: 4},").replace(
        "star]", "{id: star, name: star, source_label: 7}]"
    )


def test_a_layer_holds_the_classes_that_were_found_and_knows_when_they_were_others(
    tmp_path: Path,
) -> None:
    """`extends_sha256` is of the recipe with its labels, written or read from the source."""
    below = tmp_path / "below.yaml"
    below.write_text(recipe_text())
    whole = load_recipe_text(_with_labels(recipe_text()))
    classes = [
        entry.model_dump(mode="json", exclude_defaults=True) for entry in whole.source.classes or ()
    ]
    text = layer_text({"source": {"classes": classes}, "name": "other"}, whole, "./below.yaml")
    layer = tmp_path / "layer.yaml"
    layer.write_text(text)
    loaded = load_recipe(layer)
    assert loaded.names_every_label
    assert loaded.classes == whole.classes
    below.write_text(recipe_text("null"))
    assert load_recipe(layer) == loaded
    for changed in (
        recipe_text("[mug, sun]"),
        recipe_text("[mug, star, ladder]"),
        recipe_text() + "license: mit\n",
    ):
        below.write_text(changed)
        if "license" in changed:  # no image and no row depends on it
            assert load_recipe(layer).classes == whole.classes
        else:
            with pytest.raises(UserError, match="have changed since this layer was written"):
                load_recipe(layer)
    below.write_text(recipe_text().replace("candidates: 2", "candidates: 3"))
    with pytest.raises(UserError, match="has changed since this layer was written"):
        load_recipe(layer)


def test_classes_that_are_filled_in_are_checked_as_written_ones_are() -> None:
    """Shifts of unknown classes can be refused only once the classes are known."""
    prompts = (
        '\nprompts: {base: "a {class}", shifts: {snow: {prompt: "a {class} in snow",'
        " classes:"
        " [sun]}}}"
    )
    open_recipe = load_recipe_text(recipe_text("null", prompts))
    whole = load_recipe_text(_with_labels(recipe_text()))
    with pytest.raises(UserError, match="found 'sun', expected the id of a class"):
        with_classes(open_recipe, whole.source.classes or ())
