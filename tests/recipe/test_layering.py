"""`extends`, `--set` and relative paths."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.errors import UserError
from counterfoil.recipe import load_recipe, load_recipe_text
from counterfoil.recipe.layering import lay_over, with_overrides
from counterfoil.recipe.names import without_folders
from counterfoil.recipe.strict_yaml import LocatedMapping, Origin
from support.files import write


def located(value: object) -> object:
    if isinstance(value, dict):
        return LocatedMapping({k: located(v) for k, v in value.items()}, dict.fromkeys(value, Origin("x", 1)))
    return value


def plain_merge(lower: dict, upper: dict) -> dict:
    """The rule of the design, written the obvious way."""
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
    below, above = located(lower), located(upper)
    assert isinstance(below, LocatedMapping) and isinstance(above, LocatedMapping)
    merged = lay_over(below, above)
    assert merged == plain_merge(lower, upper)
    assert merged.keys() == merged.origins.keys()
    assert below == lower and above == upper, "the layers themselves stay as they were"


def test_extends_goes_through_a_chain_of_names_and_paths(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", "extends: wardrobe-mini\nname: a\nsamples: {candidates: 7}\n")
    write(tmp_path / "deep" / "b.yaml", "extends: ../a.yaml\nname: b\nprompts: {shifts: {red: null}}\n")
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
def test_a_parent_that_is_not_there_is_reported_where_it_is_named(tmp_path: Path, extends: str, message: str) -> None:
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
    assert recipe.generator.guidance == 0.5
    threshold = recipe.prompts.shifts["red"].threshold
    assert threshold is not None and threshold.percentile == 10
    assert "at_night" not in recipe.prompts.shifts
    assert recipe.evaluate.models == ("lab:resnet10t", "on")
    assert recipe.generator.scheduler == "DDIM"
    assert recipe.description == "a = b"


def test_null_drops_what_is_inherited_so_that_a_mode_can_change() -> None:
    overrides = ["samples.candidates=null", "samples.accepted=5", "samples.at_most=20"]
    assert load_recipe("wardrobe-mini", overrides).samples.accepted == 5


def test_null_is_as_if_not_written() -> None:
    assert load_recipe("wardrobe-mini", ["output.split=null", "samples.seed="]) == load_recipe("wardrobe-mini")


def test_every_override_that_is_wrong_is_reported() -> None:
    with pytest.raises(UserError) as caught:
        with_overrides(LocatedMapping(), ["a", "=1", "a..b=1", "a=[", "a.b=1"])
    assert len(caught.value.problems) == 4
    assert all(problem.startswith("--set") for problem in caught.value.problems)


def test_paths_are_relative_to_the_file_that_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert recipe.generator.model == str(tmp_path / "sd")
    assert recipe.screen.model == f"local-dir:{tmp_path / 'lib' / 'clip'}"
    assert recipe.evaluate.models == (f"local-dir:{tmp_path / 'lib' / 'net'}", "resnet50")
    here = load_recipe(child, ["generator.model=./other"])
    assert here.generator.model == str(tmp_path / "lib" / "other")


def test_names_that_are_no_paths_are_left_alone() -> None:
    for name in ("lab:sd", "stabilityai/sd-turbo", "ViT-H-14", "hf-hub:a/b"):
        assert without_folders(name) == name
    assert without_folders("local-dir:here") == without_folders("local-dir:a/b/here") == "local-dir:./here"
    assert without_folders("local-dir:/a/b/clip") == "local-dir:./clip"
    assert without_folders("/a/b/sd/") == "./sd"


def test_a_folder_and_a_text_give_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
