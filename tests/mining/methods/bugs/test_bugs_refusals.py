"""Mistakes in a search for bugs are refused in words before anything is drawn, and change no
file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from small_search import RECIPE, SANDAL_CLASS, TARGET, World, run_of, searched

from counterfoil import mine
from counterfoil.errors import RunFailure, UserError
from counterfoil.mining.findings_layer import _plain
from counterfoil.mining.methods.bugs.drawing import RoundDrawer
from counterfoil.mining.methods.bugs.search import FailedImages, refuse_small_search, search_bugs
from counterfoil.prediction.class_map import ClassMap
from counterfoil.prediction.failures import refuse_unanswered
from counterfoil.recipe import load_recipe
from counterfoil.recipe.names import without_folders
from support.refusals import problems_of
from tiny_captioners import llava, vision_encoder_decoder

IN_ROWS = (
    "generator={kind: rows, model: null, steps: null, guidance: null, scheduler: null, dtype: null,"
    " rows: {base: {'05': [0]}}}"
)


@pytest.fixture(autouse=True)
def nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(*_: Any) -> Any:
        raise AssertionError("something was drawn")

    monkeypatch.setattr(RoundDrawer, "__call__", drawn)


def left_in(folder: Path) -> list[str]:
    """Return the files of a folder, without the lock and the index page."""
    paths = (
        [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
        if folder.exists()
        else []
    )
    return sorted(path for path in paths if not path.startswith((".counterfoil", "index.html")))


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["captioner=null"], r"mine\.settings\.captioner: missing, expected text"),
        (["captioner=lab:captoner"], r"the lab has no 'captoner'; did you mean 'captioner'"),
        (["captioner=lab:resnet10t"], r"transformers has no captioner of that kind"),
        (["captioner=local-dir:/nowhere/at-all"], r"there is no folder /nowhere/at-all"),
        (
            ["examples=[{image: ./none.png, text: a boot}]"],
            r"examples: lab:captioner takes no examples",
        ),
        (["examples=[{image: ./none.png}]"], r"mine\.settings\.examples\[0\]\.text: missing"),
        (['classes=["5"]'], r"no class of the id '5'; did you mean '05'\?"),
        (['classes=["sandal", "05"]'], r"no class of the id 'sandal'; did you mean '05'\?"),
        (["classes=[]"], r"found an empty list"),
        (
            ["base=a photo"],
            r"mine\.settings\.base: found 'a photo', expected it to contain '\{class\}'",
        ),
        (["base=a photo of a {clas}"], r"unknown placeholder '\{clas\}'.*did you mean '\{class\}'"),
        (
            ["base='a {class} ({parent})'"],
            r"the class 't-shirt' has no words for 'a \{class\} \(\{parent\}\)'",
        ),
        (
            ["adversarial=101", "at_most=100"],
            r"mine\.settings: at_most is 100, expected at least adversarial \(101\)",
        ),
        (["batch=16"], r"mine\.settings: batch is 16, expected at most pairs \(8\)"),
        (["images=100", "baseline=64"], r"100 images are too few: the base of 2 classes takes 128"),
        (["seeds=validation"], r"mine\.settings\.seeds: found 'validation', expected a list"),
        (["seeds=[valid]"], r"'lab:wardrobe': has no split 'valid'"),
        (
            ["seeds=[train]"],
            r"mine\.settings\.seeds: 'train' is the split that classifiers learn from",
        ),
        (["seeds=[./none]"], r"/none: there is no such dataset"),
        (
            ["pairs=many", "captoner=x", "rank=best"],
            r"(?s)rank: found 'best', expected product or likelihood or contrast.*pairs: found"
            r" 'many'.*"
            r"captoner: unknown key; did you mean 'captioner'",
        ),
    ],
)
def test_wrong_settings_are_told_before_anything_is_drawn(
    sets: Sequence[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        searched(tmp_path / "out", *(f"mine.settings.{setting}" for setting in sets))
    assert left_in(tmp_path / "out") == []


STRIPES = ", ".join(
    f"{{id: c{label}, name: {name}, source_label: {label}}}"
    for label, name in enumerate(("striped", "no stripes"))
)


@pytest.mark.parametrize(
    ("sets", "options", "message"),
    [
        (
            ["mine.fdr=0.001"],
            {},
            r"8 pairs cannot confirm any of 1 hypotheses: it takes at least 12",
        ),
        (
            ["mine.failure=parent"],
            {},
            r"the rule 'parent' needs the parent of every class, and 10 have none",
        ),
        (["mine.failure=answered:5"], {}, r"no class has the id '5'; did you mean '05'"),
        (["mine.failure=top2"], {}, r"found 'top2', expected top1, top3, parent"),
        (
            [IN_ROWS, "samples.noise=independent"],
            {},
            r"'bugs' draws images, and generator\.kind is 'rows'",
        ),
        (
            [f"source.classes=[{STRIPES}]", "source.conditions={columns: [Striped]}"],
            {},
            r"'bugs' draws images of one class each, and rows here have conditions",
        ),
        (
            [],
            {"target": "predictions:answers.csv"},
            r"asks the target about new images, and predictions:.* has none",
        ),
        ([], {"target": "lab:resnet10"}, r"the lab has no 'resnet10'; did you mean 'resnet10t'"),
        (
            [],
            {"pool": "audit", "weights": True},
            r"--pool and --weights: the method 'bugs' gives rows no score",
        ),
        ([], {"on": ["audit"]}, r"--on: the method 'bugs' draws the images that it audits"),
        (
            [],
            {"confirm": "rendered", "pool_rows": 3},
            r"--confirm and --pool-rows: the method 'bugs' draws the images",
        ),
    ],
)
def test_recipes_and_options_that_allow_no_search_are_refused(
    sets: Sequence[str], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        searched(tmp_path / "out", *sets, **options)
    assert left_in(tmp_path / "out") == []


def test_a_recipe_without_a_target_or_of_another_method_says_what_is_missing(
    tmp_path: Path,
) -> None:
    with pytest.raises(UserError, match=r"mine\.target is not set"):
        mine(RECIPE, tmp_path, device="cpu")
    with pytest.raises(UserError, match=r"mine\.settings\.captioner: missing"):
        mine(
            "wardrobe-mini",
            tmp_path,
            method="bugs",
            target=TARGET,
            device="cpu",
        )
    assert left_in(tmp_path) == []


def test_a_captioner_whose_weights_are_cut_short_is_no_traceback(tmp_path: Path) -> None:
    folder = vision_encoder_decoder(tmp_path / "captioner")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:2000])
    with pytest.raises((UserError, RunFailure), match="captioner"):
        searched(tmp_path / "out", f"mine.settings.captioner=local-dir:{folder}")
    assert left_in(tmp_path / "out") == []


def test_an_example_that_is_no_image_is_named(tmp_path: Path) -> None:
    (tmp_path / "words.png").write_text("no image")
    Image.fromarray(np.zeros((4, 4, 3), dtype=np.uint8)).save(tmp_path / "black.png")
    examples = [
        {"image": str(tmp_path / name), "text": "a boot"}
        for name in ("words.png", "black.png", "none.png")
    ]
    sets = (
        f"mine.settings.captioner=local-dir:{llava(tmp_path / 'chat')}",
        f"mine.settings.examples={examples}",
    )
    problems = problems_of(searched, tmp_path / "out", *sets)
    assert problems == tuple(
        f"mine.settings.examples: {tmp_path / name} is not a readable image"
        for name in ("words.png", "none.png")
    )
    assert left_in(tmp_path / "out") == []


def test_paths_in_the_settings_are_from_the_recipe_that_names_them_and_told_by_their_names(
    tmp_path: Path,
) -> None:
    settings = {
        "captioner": "local-dir:./models/captioner",
        "seeds": ["./built"],
        "examples": [{"image": "photos/boot.png", "text": "a boot"}],
    }
    (tmp_path / "own.yaml").write_text(
        yaml.safe_dump({"extends": RECIPE, "mine": {"settings": settings}})
    )
    recipe = load_recipe(tmp_path / "own.yaml")
    assert recipe.mine is not None
    resolved = recipe.mine.settings
    assert resolved["captioner"] == f"local-dir:{tmp_path / 'models' / 'captioner'}"
    assert list(resolved["seeds"]) == [str(tmp_path / "built")]
    assert [example["image"] for example in resolved["examples"]] == [
        str(tmp_path / "photos" / "boot.png")
    ]
    # Neither the published recipe nor the record in a mined shift names a folder of this machine.
    for text in (recipe.portable_yaml, json.dumps(_plain(resolved, without_folders))):
        assert str(tmp_path) not in text and "boot.png" in text and "./built" in text


def test_a_rule_that_reads_three_answers_needs_a_target_that_ranks_more() -> None:
    classes = load_recipe(RECIPE).classes
    two = ClassMap("source labels", 3, tuple((label % 3,) for label in range(len(classes))))
    with pytest.raises(UserError, match="the rule 'top3' reads the first 3 answers"):
        refuse_unanswered("top3", classes, two)
    ten = ClassMap("source labels", 10, tuple((label,) for label in range(len(classes))))
    refuse_unanswered("top3", classes, ten)
    refuse_unanswered("top1", classes, two)


def test_a_budget_that_just_suffices_is_none_that_is_refused() -> None:
    run = run_of(baseline=40, images=102, pairs=16)
    refuse_small_search(1, run)
    with pytest.raises(UserError, match=r"Set mine\.settings\.images to|too few"):
        refuse_small_search(3, run)


def test_failures_that_make_no_cluster_are_told() -> None:
    world = World(lambda *_: 0.0)
    keys = [f"seeds/0/{row}" for row in range(4)]
    world.seen.update(dict.fromkeys(keys, ("in the snow", "red")))
    failed = np.asarray([True, False, False, False], np.bool_)
    seeds = FailedImages(
        tuple(keys), np.zeros(4, dtype=np.int64), failed, np.ones(4, dtype=np.int64)
    )
    run = run_of(seeds=("validation",))
    search = search_bugs(
        [SANDAL_CLASS],
        world.draw,
        world.look,
        world.describe,
        run,
        seeds,
    )
    assert [audit.reason for audit in search.baseline] == [
        "1 of its images of mine.settings.seeds fails, but a cluster needs 2"
        " (mine.settings.fewest_failures)"
    ]
