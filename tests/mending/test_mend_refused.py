"""What `mend` refuses, and what it leaves where it ends: in words, before anything is lost."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from counterfoil.errors import RunFailure, UserError
from counterfoil.mending import mend_models
from counterfoil.mending.mend_models import mend
from mending.scenes_to_mend import (
    IMAGES,
    MODEL,
    World,
    build_scenes,
    mined_layer,
    write_recipe,
)

GRID = (0.0, 0.5, 2.0)


def refused(world: World, tmp_path: Path, *using: str, models: Any = MODEL, **more: Any) -> UserError:
    with pytest.raises(UserError) as error:
        mend(models, more.pop("on", world.recipe), using or [str(world.built)], tmp_path / "out", device="cpu", **more)
    assert not (tmp_path / "out" / "mend.json").exists()
    return error.value


def test_contexts_that_judging_rows_named_are_refused(world: World, tmp_path: Path) -> None:
    """A dataset that was mined on this validation split, but with other halves: with the same ones it is taken."""
    audited = mend(MODEL, world.recipe, str(world.built), tmp_path / "first", lambdas=[0.0], save="none", device="cpu")
    told = audited.mended.audited
    for seed, half, wanted in ((1, "0" * 64, False), (0, told.discover.sha256, True)):
        on = [{"name": "validation", "content": told.on[0].content}]
        record = {"on": on, "discover_sha256": half, "seed": seed}
        built = build_scenes(tmp_path / f"built{seed}", world.recipe, mined_layer(record, ["contexts"]))
        if wanted:
            mend(MODEL, world.recipe, str(built), tmp_path / "taken", lambdas=[0.0], save="none", device="cpu")
            continue
        error = refused(world, tmp_path, str(built))
        assert "than the discover half here" in error.problems[0]
    record = {"on": [{"name": "test", "content": audited.mended.test.content}], "discover_sha256": "1" * 64}
    built = build_scenes(tmp_path / "tested", world.recipe, mined_layer(record, ["contexts"]))
    assert "which is the test here" in refused(world, tmp_path, str(built)).problems[0]


def test_images_on_both_sides_are_refused(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe whose test split holds garments of training, and a dataset that is audited and learned from."""
    shutil.copytree(world.recipe.parent / "source", tmp_path / "source")
    shutil.copy(tmp_path / "source" / "train.parquet", tmp_path / "source" / "test.parquet")
    error = refused(world, tmp_path, on=write_recipe(tmp_path / "recipe.yaml"))
    assert any("are the same" in one for one in error.problems) and any("unit" in one for one in error.problems)
    monkeypatch.setenv("HOME", str(world.built.parent))
    for place in (str(world.built), f"~/{world.built.name}"):
        error = refused(world, tmp_path, audited=[place])
        assert any("began with the noise" in one for one in error.problems), place


@pytest.mark.parametrize(
    ("using", "more", "says"),
    [
        (["{built}:nothing"], {}, "has no group 'nothing'"),
        (["{built}"], {"lambdas": [-1.0]}, "λ: found -1"),
        (["{built}"], {"models": "lab:resnet99"}, "lab:resnet99"),
        (["{built}"], {"models": "lab:clip"}, "lab:clip"),
        (["{built}"], {"test": "train"}, "the head learns from it"),
        (["{built}"], {"test": "nowhere"}, "no split 'nowhere'"),
        (["{built}"], {"fit": "adam"}, "--fit: found 'adam'"),
        (["{built}"], {"save": "worst"}, "--save: found 'worst'"),
        (["{built}", "dfr:place"], {"save": "dfr:place"}, "its head is a bound"),
        (["dfr:clip"], {}, "so there are no groups"),
        (["dfr:weather"], {}, "has no column 'weather'"),
        (["dfr:"], {}, "balanced by what?"),
        (["nowhere.parquet"], {}, "there is no such file"),
        ([""], {}, "--with: found nothing"),
        (["{built}"], {"own": {"lab:other": "x"}}, "it is no model that is mended"),
        (["{built}"], {"on": "wardrobe-star", "audited": ["train"]}, "the split that classifiers learn from"),
    ],
)
def test_bad_input_is_told_in_words(
    world: World, tmp_path: Path, using: list[str], more: dict[str, Any], says: str
) -> None:
    given = [one.format(built=world.built) for one in using]
    assert says in str(refused(world, tmp_path, *given, **more))


def test_a_class_that_a_control_lacks_is_told(world: World, tmp_path: Path) -> None:
    layer = mined_layer()
    for shift in layer["prompts"]["shifts"].values():
        if shift is not None and shift["group"] != "random_contexts":
            shift["classes"] = ["05", "07"]
    layer["prompts"]["base"]["classes"] = ["05", "07"]
    built = build_scenes(tmp_path / "built", world.recipe, layer)
    found = mend(MODEL, world.recipe, str(built), tmp_path / "out", lambdas=[0.0], save="none", device="cpu").mended
    arm = found.models[0].arm("./built:contexts")
    assert arm.images == IMAGES and arm.offered == 4 * IMAGES
    (note,) = [one for one in found.notes if "equal numbers" in one]
    assert note.startswith("Of sneaker there is no image of random contexts beside those of contexts")


def test_an_empty_group_and_classes_of_another_recipe_are_refused_together(world: World, tmp_path: Path) -> None:
    empty = build_scenes(tmp_path / "empty", world.recipe, mined_layer(), accept="class")
    error = refused(world, tmp_path, str(empty), "dfr:weather")
    assert "not one image of the group 'contexts' was accepted" in error.problems[0] and "weather" in error.problems[1]


def test_what_ends_while_a_model_is_written_leaves_no_document_of_another(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    mend(MODEL, world.recipe, str(world.built), out, lambdas=GRID, save="none", device="cpu")

    def ended(*_: object, **__: object) -> str:
        raise RunFailure("the disk is full")

    monkeypatch.setattr(mend_models, "write_with_head", ended)
    with pytest.raises(RunFailure, match="disk is full"):
        mend(MODEL, world.recipe, str(world.built), out, lambdas=(0.0, 5.0), save="best", device="cpu")
    assert not (out / "mend.json").exists()


def test_a_model_that_this_run_does_not_leave_is_removed(world: World, tmp_path: Path) -> None:
    """That of an earlier run: its numbers are no more those of the document beside it."""
    out = tmp_path / "out"
    mend(MODEL, world.recipe, str(world.built), out, lambdas=[0.0], save="best", device="cpu")
    assert (out / "model" / "mended.json").exists()
    found = mend(MODEL, world.recipe, str(world.built), out, lambdas=[0.0], save="none", device="cpu")
    assert not (out / "model").exists() and found.models == {} and (out / "mend.json").exists()
    # Without a mended.json it is somebody's own.
    (out / "model").mkdir()
    (out / "model" / "config.json").write_text("{}")
    mend(MODEL, world.recipe, str(world.built), out, lambdas=[0.0], save="none", device="cpu")
    assert (out / "model" / "config.json").exists()


@pytest.mark.parametrize("kind", ["pipe", "deep", "strange model", "link"])
def test_what_lies_in_the_folder_and_is_none_of_ours_is_left_and_told(world: World, tmp_path: Path, kind: str) -> None:
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
        "deep": "is not a mended document",
        "link": "it is a link",
        "strange model": "it holds thesis.txt",
    }
    with pytest.raises(UserError, match=says[kind]):
        mend(MODEL, world.recipe, str(world.built), folder, device="cpu")
    assert not list(folder.glob(".mend/*"))


def test_a_base_that_does_not_show_the_model_its_classes_is_refused(world: World, tmp_path: Path) -> None:
    """Images of boots called sandals: what the model would learn from them is not what it fails on."""
    built = build_scenes(tmp_path / "built", world.recipe, mined_layer(), of_class=2)
    error = refused(world, tmp_path, str(built), save="none")
    (said,) = error.problems
    assert said.startswith("lab:resnet10t is near chance on the base of ./built: ")
    assert "% of 8 images right, and a guess 10.0 %" in said
    assert "(classes near chance: sandal)" in said and "counterfoil evaluate" in str(error.hint)
    assert not (tmp_path / "out" / "mend.json").exists()
