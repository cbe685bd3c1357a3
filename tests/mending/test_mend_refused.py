"""Refusals of the whole command's function, and what edits of rows may teach."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import datasets
import pytest

from counterfoil.building.build_dataset import build
from counterfoil.errors import RunFailure, UserError
from counterfoil.evaluation.dataset import open_dataset, rows_in_pool
from counterfoil.mending import mend_models
from counterfoil.mending.mend_models import MendResult, mend
from counterfoil.models.classifiers.head import remove_mended
from counterfoil.models.mended import read_mended
from counterfoil.store.decoding import pixels_sha256
from mending.scenes_to_mend import (
    GRID,
    IMAGES,
    MODEL,
    World,
    build_scenes,
    mend_scenes,
    mined_layer,
    write_recipe,
)

SPARE = 18  # the last rows of the test are a split of their own


def refused(
    world: World, tmp_path: Path, *using: str, models: Any = MODEL, **more: Any
) -> UserError:
    with pytest.raises(UserError) as error:
        on = more.pop("on", world.recipe)
        given = using or [str(world.built)]
        mend(models, on, given, tmp_path / "out", device="cpu", **more)
    assert not (tmp_path / "out" / "mend.json").exists()
    return error.value


def test_contexts_that_judging_rows_named_are_refused(
    world: World, mended: MendResult, tmp_path: Path
) -> None:
    """Refuse images mined on other halves of this validation split, and take those of the same
    halves, with a note on a class that a control lacks."""
    audited = mended.mended.audited
    on = [{"name": "validation", "content": audited.on[0].content}]

    def built(name: str, layer: dict[str, Any]) -> str:
        return str(build_scenes(tmp_path / name, world.recipe, layer))

    layer = mined_layer({"on": on, "discover_sha256": audited.discover.sha256, "seed": 0})
    for shift in layer["prompts"]["shifts"].values():
        if shift is not None and shift["group"] != "random_contexts":
            shift["classes"] = ["05", "07"]
    layer["prompts"]["base"]["classes"] = ["05", "07"]
    same = built("same", layer)
    document = mend_scenes(world, tmp_path / "taken", same, lambdas=[0.0], save="none").mended
    variant = document.models[0].variant("./same:contexts")
    assert variant.images == IMAGES and variant.offered == 4 * IMAGES
    (note,) = [note for note in document.notes if "equal numbers" in note]
    assert note.startswith("There is no image of random contexts for sneaker.")
    other = {"on": on, "discover_sha256": "0" * 64, "seed": 1}
    using = built("other", mined_layer(other, ["contexts"]))
    assert "than the discover half here" in refused(world, tmp_path, using).problems[0]


def test_images_on_both_sides_are_refused(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refuse a test split with garments of training, and a dataset that is audited and learned
    from."""
    shutil.copytree(world.recipe.parent / "source", tmp_path / "source")
    shutil.copy(tmp_path / "source" / "train.parquet", tmp_path / "source" / "test.parquet")
    error = refused(world, tmp_path, on=write_recipe(tmp_path / "recipe.yaml"))
    assert any("are the same" in problem for problem in error.problems) and any(
        "unit" in problem for problem in error.problems
    )
    monkeypatch.setenv("HOME", str(world.built.parent))
    error = refused(world, tmp_path, audited=[f"~/{world.built.name}"])
    assert any("come from the same noise" in problem for problem in error.problems)


@pytest.mark.parametrize(
    ("using", "more", "says"),
    [
        (["{built}"], {"lambdas": [-1.0]}, "λ: found -1"),
        (["{built}"], {"models": "lab:resnet99"}, "lab:resnet99"),
        (["{built}"], {"models": "lab:clip"}, "lab:clip"),
        (["{built}"], {"test": "train"}, "the head learns from it"),
        (["{built}"], {"test": "nowhere"}, "no split 'nowhere'"),
        (["{built}"], {"fit": "adam"}, "--fit: found 'adam'"),
        (["{built}"], {"save": "worst"}, "--save: found 'worst'"),
        (["{built}", "dfr:place"], {"save": "dfr:place"}, "its head is an upper bound"),
        (["dfr:clip"], {}, "so there are no groups"),
        (
            ["dfr:place"],
            {"fit": "network"},
            "dfr:place does not go with --fit network, which refits no head",
        ),
        (["early:test"], {}, "early:test does not go with --fit lbfgs, which trains no network"),
        (["lff:test"], {"fit": "sgd"}, "trains no network"),
        (["confidence:test"], {"fit": "network", "epochs": 0}, "epochs is 0: expected 1 or more"),
        (["confidence:train"], {}, "from the split 'train': the head learns from it"),
        (["domino:validation"], {}, "from the split 'validation': it is audited"),
        (["direction:nowhere"], {}, "from the split 'nowhere': there is none of that name"),
        (["confidence:test"], {"test": "test"}, "images are chosen from it"),
        (["dfr:"], {}, "expected groups to balance by"),
        ([""], {}, "--with: found nothing"),
        (["{built}"], {"own": {"lab:other": "x"}}, "it is not a model to mend"),
    ],
)
def test_bad_input_is_told_in_words(
    world: World, tmp_path: Path, using: list[str], more: dict[str, Any], says: str
) -> None:
    given = [word.format(built=world.built) for word in using]
    assert says in str(refused(world, tmp_path, *given, **more))


def test_datasets_that_cannot_teach_are_refused_together(world: World, tmp_path: Path) -> None:
    empty = build_scenes(tmp_path / "empty", world.recipe, mined_layer(), accept="class")
    using = (str(empty), "dfr:weather", f"{world.built}:nothing", "nowhere.parquet")
    problems = refused(world, tmp_path, *using).problems
    says = ("no image of the group 'contexts' was accepted", "has no column 'weather'")
    says += ("has no group 'nothing'", "there is no such file")
    assert [words in problem for words, problem in zip(says, problems, strict=True)] == [True] * 4


def test_no_model_of_another_run_stands_beside_a_document(
    world: World, mended: MendResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Remove the model of an earlier run, whose numbers differ from the document, and the document
    before another model is written."""
    out = Path(shutil.copytree(mended.directory, tmp_path / "out"))

    def mended_again(save: str) -> MendResult:
        return mend_scenes(world, out, world.using, lambdas=GRID, save=save)

    assert (out / "model" / "mended.json").exists()
    result = mended_again("none")
    assert not (out / "model").exists() and result.models == {} and (out / "mend.json").exists()

    def ended(*_: object, **__: object) -> str:
        raise RunFailure("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(mend_models, "write_with_head", ended)
        with pytest.raises(RunFailure, match="disk is full"):
            mended_again("best")
    assert not (out / "mend.json").exists()
    # Without a mended.json the folder is the user's own.
    (out / "model").mkdir()
    (out / "model" / "config.json").write_text("{}")
    remove_mended(out / "model")
    assert (out / "model" / "config.json").exists()


@pytest.mark.parametrize("kind", ["pipe", "deep", "strange model", "link"])
def test_what_lies_in_the_folder_and_is_none_of_ours_is_left_and_told(
    world: World, tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    if kind == "pipe":
        os.mkfifo(folder / "mend.json")
    elif kind == "deep":
        (folder / "mend.json").write_text("[" * 200_000)
    elif kind == "link":
        (folder / "model").symlink_to(tmp_path)
    else:
        (folder / "model").mkdir()
        (folder / "model" / "thesis.txt").write_text("mine")
    says = {
        "pipe": "is a pipe",
        "deep": "is damaged: it is nested too deeply",
        "link": "it is a link",
        "strange model": "it holds thesis.txt",
    }
    with pytest.raises(UserError, match=says[kind]):
        mend_scenes(world, folder)
    assert not list(folder.glob(".mend/*"))


def test_a_base_that_does_not_show_the_model_its_classes_is_refused(
    world: World, tmp_path: Path
) -> None:
    """Images of boots called sandals: what the model would learn from them is not what it fails
    on."""
    built = build_scenes(tmp_path / "built", world.recipe, mined_layer(), of_class=2)
    error = refused(world, tmp_path, str(built), save="none")
    (problem,) = error.problems
    assert problem.startswith("lab:resnet10t is near chance on the base of ./built: ")
    assert "% of 8 images right; guessing gets 10.0 %" in problem
    assert "(classes near chance: sandal)" in problem and "counterfoil evaluate" in str(error.hint)
    assert not (tmp_path / "out" / "mend.json").exists()


@pytest.fixture(scope="module")
def recipe(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("edits")
    files = {
        name: str(world.recipe.parent / "source" / f"{name}.parquet")
        for name in ("train", "validation", "test")
    }
    splits = datasets.load_dataset("parquet", data_files=files, cache_dir=str(folder / "cache"))
    assert isinstance(splits, datasets.DatasetDict)
    validation: Any = splits["validation"]
    test: Any = splits["test"]
    splits["validation"] = validation.select(range(60))
    splits["test"] = test.select(range(len(test) - SPARE))
    splits["spare"] = test.select(range(len(test) - SPARE, len(test)))
    splits.save_to_disk(str(folder / "source"))
    return write_recipe(folder / "recipe.yaml")


@pytest.fixture(scope="module")
def changed(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build foggy copies of four rows of `spare`."""
    out = tmp_path_factory.mktemp("changed") / "changed"
    layer = json.loads(recipe.read_text())
    layer = {"recipe": 1, "name": "fog", "license": "mit", "source": layer["source"]} | {
        "generator": {"kind": "corrupt", "split": "spare"},
        "prompts": {"shifts": {"fog": {"corruption": "fog"}}},
        "samples": {"candidates": 4},
    }
    (path := out.with_suffix(".yaml")).write_text(json.dumps(layer))
    build(path, out, device="cpu", workers=1)
    return out


def test_a_model_tells_which_rows_it_learned_changes_of(
    recipe: Path, changed: Path, tmp_path: Path
) -> None:
    using = str(changed)
    given: dict[str, Any] = {"lambdas": (0.5, 2.0), "per_class": 1, "save": using}
    result = mend(MODEL, recipe, using, tmp_path / "out", device="cpu", **given)
    note = read_mended(result.models[MODEL], "m")
    assert note is not None
    (used,) = note.datasets
    opened = open_dataset(using)
    edited = set(rows_in_pool(opened.directory, opened.recipe, opened.keys))
    assert used.edits is not None and used.seed is None
    assert set(used.edits.rows) == edited and used.edits.split == "spare"
    splits: Any = datasets.load_from_disk(str(recipe.parent / "source"))
    pixels = [pixels_sha256(picture.convert("RGB")) for picture in splits["spare"]["image"]]
    assert {row for row, digest in enumerate(pixels) if digest in note.train_content} == edited
