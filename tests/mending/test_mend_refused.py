"""Refusals of the whole command's function, and what edits of rows may teach."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import datasets
import pytest
from PIL import Image

from counterfoil.building.build_dataset import build
from counterfoil.errors import RunFailure, UserError
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.dataset import open_dataset, rows_in_pool
from counterfoil.mending import mend_models
from counterfoil.mending.mend_models import MendResult, mend
from counterfoil.models.mended import MendedNote, read_mended
from counterfoil.recipe import load_recipe
from counterfoil.store.decoding import pixels_sha256
from mending.scenes_to_mend import (
    IMAGES,
    MODEL,
    World,
    build_scenes,
    mend_scenes,
    mined_layer,
    write_recipe,
)

GRID = (0.0, 0.5, 2.0)
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


def test_contexts_that_judging_rows_named_are_refused(world: World, tmp_path: Path) -> None:
    """Images mined on other halves of this validation split are refused; with the same halves they
    are taken."""
    taken: dict[str, Any] = {"lambdas": [0.0], "save": "none"}
    first = mend_scenes(world, tmp_path / "first", **taken).mended
    audited = first.audited
    on = [{"name": "validation", "content": audited.on[0].content}]

    def built(name: str, **record: Any) -> str:
        layer = mined_layer(record, ["contexts"])
        return str(build_scenes(tmp_path / name, world.recipe, layer))

    same = built("same", on=on, discover_sha256=audited.discover.sha256, seed=0)
    mend_scenes(world, tmp_path / "taken", same, **taken)
    other = built("other", on=on, discover_sha256="0" * 64, seed=1)
    assert "than the discover half here" in refused(world, tmp_path, other).problems[0]
    on = [{"name": "test", "content": first.test.content}]
    tested = built("tested", on=on, discover_sha256="1" * 64)
    assert "which is the test here" in refused(world, tmp_path, tested).problems[0]


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
    for path in (str(world.built), f"~/{world.built.name}"):
        error = refused(world, tmp_path, audited=[path])
        assert any("come from the same noise" in problem for problem in error.problems), path


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
        (["dfr:weather"], {}, "has no column 'weather'"),
        (["dfr:"], {}, "expected groups to balance by"),
        (["nowhere.parquet"], {}, "there is no such file"),
        ([""], {}, "--with: found nothing"),
        (["{built}"], {"own": {"lab:other": "x"}}, "it is not a model to mend"),
        (
            ["{built}"],
            {"on": "wardrobe-star", "audited": ["train"]},
            "the split that classifiers learn from",
        ),
    ],
)
def test_bad_input_is_told_in_words(
    world: World, tmp_path: Path, using: list[str], more: dict[str, Any], says: str
) -> None:
    given = [word.format(built=world.built) for word in using]
    assert says in str(refused(world, tmp_path, *given, **more))


def test_a_class_that_a_control_lacks_is_told(world: World, tmp_path: Path) -> None:
    layer = mined_layer()
    for shift in layer["prompts"]["shifts"].values():
        if shift is not None and shift["group"] != "random_contexts":
            shift["classes"] = ["05", "07"]
    layer["prompts"]["base"]["classes"] = ["05", "07"]
    built = build_scenes(tmp_path / "built", world.recipe, layer)
    document = mend_scenes(world, tmp_path / "out", str(built), lambdas=[0.0], save="none").mended
    variant = document.models[0].variant("./built:contexts")
    assert variant.images == IMAGES and variant.offered == 4 * IMAGES
    (note,) = [note for note in document.notes if "equal numbers" in note]
    assert note.startswith("There is no image of random contexts for sneaker.")


def test_an_empty_group_and_classes_of_another_recipe_are_refused_together(
    world: World, tmp_path: Path
) -> None:
    empty = build_scenes(tmp_path / "empty", world.recipe, mined_layer(), accept="class")
    error = refused(world, tmp_path, str(empty), "dfr:weather")
    assert (
        "no image of the group 'contexts' was accepted" in error.problems[0]
        and "weather" in error.problems[1]
    )


def test_no_model_of_another_run_stands_beside_a_document(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Remove the model of an earlier run, whose numbers differ from the document, and the document
    before another model is written."""
    out = tmp_path / "out"

    def mended(save: str) -> MendResult:
        return mend_scenes(world, out, lambdas=[0.0], save=save)

    mended("best")
    assert (out / "model" / "mended.json").exists()
    result = mended("none")
    assert not (out / "model").exists() and result.models == {} and (out / "mend.json").exists()

    def ended(*_: object, **__: object) -> str:
        raise RunFailure("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(mend_models, "write_with_head", ended)
        with pytest.raises(RunFailure, match="disk is full"):
            mended("best")
    assert not (out / "mend.json").exists()
    # Without a mended.json the folder is the user's own.
    (out / "model").mkdir(exist_ok=True)
    (out / "model" / "config.json").write_text("{}")
    mended("none")
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


def spare_rows(recipe: Path) -> datasets.Dataset:
    splits = datasets.load_from_disk(str(recipe.parent / "source"))
    assert isinstance(splits, datasets.DatasetDict)
    return splits["spare"]


def edits(recipe: Path, out: Path, candidates: int, seed: int) -> Path:
    """Build edits of so many sandals, which the model does not know in the snow."""
    base = {"prompt": "a photo of a {class}", "classes": ["05"]}
    shift = {"prompt": "a photo of a {class} in the snow", "kind": "background", "classes": ["05"]}
    others = dict.fromkeys(load_recipe(recipe).prompts.shifts)
    layer = {
        "extends": str(recipe),
        "prompts": {"base": base, "shifts": {**others, "in_the_snow": shift}},
        "screen": {"object_threshold": -1, "shift_threshold": -1},
        "samples": {"candidates": candidates, "seed": seed},
        "generator": {
            "kind": "edit",
            "split": "spare",
            "steps": 3,
            "guidance": 3.0,
            "batch_size": 4,
        },
    }
    (path := out.with_suffix(".yaml")).write_text(json.dumps(layer))
    build(path, out, device="cpu", workers=1)
    return out


@pytest.fixture(scope="module")
def drawn(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return edits(recipe, tmp_path_factory.mktemp("drawn") / "drawn", 4, 0)


@pytest.fixture(scope="module")
def model(recipe: Path, drawn: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("mended") / "out"
    using = f"{drawn}:in_the_snow"
    result = mend(
        MODEL,
        recipe,
        using,
        out,
        lambdas=(0.5, 2.0),
        per_class=5,
        save=using,
        device="cpu",
    )
    return f"local-dir:{result.models[MODEL]}"


def note_of(model: str) -> MendedNote:
    note = read_mended(Path(model.removeprefix("local-dir:")), "m")
    assert note is not None
    return note


def edited_rows(built: Path) -> set[int]:
    opened = open_dataset(str(built))
    return set(rows_in_pool(opened.directory, opened.recipe, opened.keys))


def test_it_tells_which_rows(model: str, drawn: Path, recipe: Path) -> None:
    note = note_of(model)
    (used,) = note.datasets
    assert used.edits is not None and used.seed is None
    assert set(used.edits.rows) == edited_rows(drawn) and used.edits.split == "spare"
    rows = spare_rows(recipe)["image"]
    pixels = {row: pixels_sha256(picture.convert("RGB")) for row, picture in enumerate(rows)}
    assert {row for row, digest in pixels.items() if digest in note.train_content} == edited_rows(
        drawn
    )


def test_it_is_measured_on_other_rows_alone(
    model: str, drawn: Path, recipe: Path, tmp_path: Path
) -> None:
    rows = spare_rows(recipe)
    photos = tmp_path / "photos"
    for row in range(SPARE):
        name = f"{rows[row]['label']:02}"
        (photos / name).mkdir(parents=True, exist_ok=True)
        picture = rows[row]["image"]
        assert isinstance(picture, Image.Image)
        picture.save(photos / name / f"{row}.png")
    edited = edited_rows(drawn)
    with pytest.raises(
        UserError, match=f"fitted to {len(edited)} of the {SPARE} images of .*, or to edits of them"
    ):
        evaluate(photos, [model], recipe=recipe, out=tmp_path / "report", device="cpu")
    for row in edited:
        (photos / f"{rows[row]['label']:02}" / f"{row}.png").unlink()
    assert evaluate(photos, [model], recipe=recipe, out=tmp_path / "report", device="cpu").scores


def test_it_is_measured_on_edits_of_other_rows_alone(
    model: str, drawn: Path, recipe: Path, tmp_path: Path
) -> None:
    for seed in range(1, 9):  # the seed chooses the rows
        other = edits(recipe, tmp_path / f"{seed}", 4, seed)
        common = edited_rows(other) & edited_rows(drawn)
        if common:
            with pytest.raises(
                UserError,
                match=rf"has edits of {len(common)} of the same rows, such as row {min(common)}",
            ):
                evaluate(other, [model], out=tmp_path / "report", device="cpu")
            break
    else:
        pytest.fail("no seed chose a row twice")
