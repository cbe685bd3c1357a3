"""The recipe that a dataset brings comes from anybody: it names nothing of this machine and reads no file of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from counterfoil.errors import UserError
from counterfoil.recipe import Recipe, dump_recipe, load_own_recipe, load_recipe
from counterfoil.recipe.names import is_local

FOLDERS = ["./evil", "../evil", "/evil", "~/evil", "~root/evil", ".", "..", ".hidden/evil", "local-dir:./evil",
           "local-dir:evil", "local-dir:/evil", "local-dir:data/../../evil"]  # fmt: skip
KEYS = ["source.dataset", "generator.model", "screen.model", "screen.judge"]


def own(directory: Path, *overrides: str, text: str | None = None) -> Recipe:
    """The recipe of a dataset directory, as a stranger may have written it."""
    directory.mkdir(exist_ok=True)
    (directory / "lock.json").write_text("{}")
    written = text if text is not None else dump_recipe(load_recipe("wardrobe-mini", overrides))
    (directory / "recipe.yaml").write_text(written)
    return load_own_recipe(directory)


def names_of(recipe: Recipe) -> list[str]:
    tokens = [recipe.tokens.path] if recipe.tokens is not None and recipe.tokens.path is not None else []
    judge = [] if recipe.screen.judge is None else [recipe.screen.judge]
    return [
        recipe.source.dataset,
        recipe.generator.model,
        recipe.screen.clip,
        *judge,
        *recipe.evaluate.models,
        *tokens,
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_of_a_dataset_is_a_name_that_opens_nothing(tmp_path: Path, folder: str) -> None:
    (tmp_path / "dataset" / "evil").mkdir(parents=True)
    text = dump_recipe(load_recipe("wardrobe-mini")).replace("lab:wardrobe", folder).replace("lab:sd", folder)
    text = text.replace("lab:clip", folder).replace("lab:resnet10t", folder)
    recipe = own(tmp_path / "dataset", text=text)
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
    assert f"elsewhere:{name.rpartition(':')[0]}:./{Path(name).name.rpartition(':')[2]}" in names_of(
        own(tmp_path, text=text)
    )


@pytest.mark.parametrize("name", ["transformers:google/vit", "open_clip:ViT-B-32/openai", "open_clip:lab:clip"])
def test_a_classifier_of_the_hub_or_the_lab_keeps_its_name(tmp_path: Path, name: str) -> None:
    # As the second judge too, which the model that screens cannot be.
    text = dump_recipe(load_recipe("wardrobe-mini")).replace("lab:clip", "hf-hub:someone/clip")
    text = text.replace("lab:resnet10t", name)
    assert name in names_of(own(tmp_path, text=text)) and not is_local(name)


@pytest.mark.parametrize("key", KEYS)
def test_the_person_at_the_keyboard_may_say_where_it_lies(tmp_path: Path, key: str) -> None:
    own(tmp_path / "dataset", f"{key}=./evil")
    (tmp_path / "mine").mkdir()
    recipe = load_own_recipe(tmp_path / "dataset", [f"{key}={tmp_path / 'mine'}"])
    assert str(tmp_path / "mine") in names_of(recipe)


def test_hashes_and_the_portable_recipe_do_not_know_of_it(tmp_path: Path) -> None:
    mine = load_recipe("wardrobe-mini", ["generator.model=./sd", "screen.model=local-dir:./clip", "tokens={path: ./t}"])
    there = own(tmp_path / "dataset", text=mine.portable_yaml)
    assert (there.plan_hash, there.screen_hash) == (mine.plan_hash, mine.screen_hash)
    assert there.portable_yaml == mine.portable_yaml


def test_its_own_tokens_are_those_in_the_directory_and_no_others(tmp_path: Path) -> None:
    inside = own(tmp_path / "dataset", "tokens={path: ./tokens}")
    assert inside.tokens is not None
    # What `--set` made absolute here is a folder of the machine that wrote it.
    assert inside.tokens.path == "elsewhere:./tokens"
    text = load_recipe("wardrobe-mini", ["tokens={path: ./tokens}"]).portable_yaml
    inside = own(tmp_path / "dataset", text=text)
    assert inside.tokens is not None and inside.tokens.path == str(tmp_path / "dataset" / "tokens")
    for other in ("./tokens/../../x", "../tokens", "/tokens", "./other"):
        outside = own(tmp_path / "dataset", text=text.replace("path: ./tokens", f"path: {other}"))
        assert outside.tokens is not None and outside.tokens.path is not None
        assert outside.tokens.path.startswith("elsewhere:")


@pytest.mark.parametrize("parent", ["wardrobe-mini", "./other.yaml", "/dev/zero", "/etc/passwd"])
def test_it_extends_nothing(tmp_path: Path, parent: str) -> None:
    with pytest.raises(UserError, match=r"extends \(.*recipe\.yaml:1\): a dataset's own recipe stands alone"):
        own(tmp_path / "dataset", text=f"extends: {parent}\nname: mine\n")


def test_it_lists_its_classes(tmp_path: Path) -> None:
    text = dump_recipe(load_recipe("wardrobe-mini"))
    head, _, rest = text.partition("  classes:\n")
    rest = rest[rest.index("generator:") :]
    with pytest.raises(UserError, match=r"source\.classes .* found a path; a dataset's own recipe lists its classes"):
        own(tmp_path / "dataset", text=f"{head}  classes: ./classes.yaml\n{rest}")


@pytest.mark.parametrize("source", [".", "./recipe.yaml"])
def test_whoever_names_the_directory_or_its_file_reads_a_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    text = dump_recipe(load_recipe("wardrobe-mini")).replace("lab:sd", "./evil")
    own(tmp_path / "dataset", text=text)
    monkeypatch.chdir(tmp_path / "dataset")
    assert load_recipe(source).generator.model == "elsewhere:./evil"
    # So does a recipe that extends the dataset's.
    (tmp_path / "child.yaml").write_text("extends: ./dataset\nname: child\n")
    assert load_recipe(tmp_path / "child.yaml").generator.model == "elsewhere:./evil"


@pytest.mark.parametrize("kind", ["/dev/zero", "fifo", "folder", "large"])
def test_only_regular_files_of_bounded_size_are_read(tmp_path: Path, kind: str) -> None:
    parent = tmp_path / "parent.yaml"
    expected = "is a pipe"
    match kind:
        case "/dev/zero":
            parent, expected = Path("/dev/zero"), "is a device"
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
@pytest.mark.parametrize("key", ["extends", "source.dataset", "source.classes", "generator.model", "tokens.path"])
def test_names_that_no_path_can_have_are_told_in_words(tmp_path: Path, key: str, name: str, expected: str) -> None:
    section, _, inner = key.partition(".")
    value = f'{{{inner}: "{name}"}}' if inner else f'"{name}"'
    head = "" if key == "extends" else "extends: wardrobe-mini\n"
    (tmp_path / "mine.yaml").write_text(f"{head}{section}: {value}\n")
    with pytest.raises(UserError, match=expected):
        load_recipe(tmp_path / "mine.yaml")
    if key != "extends":
        with pytest.raises(UserError, match=expected):
            load_recipe("wardrobe-mini", [f'{key}="{name}"'])
