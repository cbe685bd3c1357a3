"""Mending end to end: a real classifier and CLIP, on scenes where it is known what it fails on and what mends that."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from counterfoil.cli.main import app
from counterfoil.errors import UserError
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.mending.mend_models import mend, mend_steps
from counterfoil.mending.mended_files import MendResult
from counterfoil.models.classifiers import load_classifier
from counterfoil.models.classifiers.head import head_of
from mending.scenes_to_mend import IMAGES, MODEL, SPLITS, build_scenes, mined_layer, save_source, write_recipe
from shared_datasets import Once

GRID = (0.0, 0.5, 2.0)


@dataclass(frozen=True)
class World:
    recipe: Path
    built: Path


@pytest.fixture(scope="module")
def world(once_a_run: Once) -> World:
    def make(folder: Path) -> None:
        save_source(folder / "source")
        recipe = write_recipe(folder / "recipe.yaml")
        build_scenes(folder / "built", recipe, mined_layer())

    folder = once_a_run("scenes-to-mend", make)
    return World(folder / "recipe.yaml", folder / "built")


@pytest.fixture(scope="module")
def mended(world: World, tmp_path_factory: pytest.TempPathFactory) -> MendResult:
    out = tmp_path_factory.mktemp("mended") / "out"
    using = [str(world.built), "dfr:clip", "dfr:place"]
    return mend(MODEL, world.recipe, using, out, lambdas=GRID, effects=True, device="cpu")


def name_of(world: World, group: str = "contexts") -> str:
    return f"{world.built}:{group}"


def test_what_is_mended_gains_more_than_each_control(world: World, mended: MendResult) -> None:
    model = mended.mended.models[0]
    arm = model.arm(name_of(world))
    heldout = {one.against: one for one in arm.comparisons if one.set == "debug_heldout"}
    assert set(heldout) == {"lambda 0", "class_name", "random_contexts"}
    assert all(one.difference > 0.1 for one in heldout.values())
    inside = [one for one in arm.comparisons if one.set == "in_contexts"]
    assert len(inside) == 3 and all(one.difference > 0.3 and (one.low or 0) > 0 for one in inside)
    assert arm.verdict is not None and "on failures held out it gains more" in arm.verdict
    # Failures are all wrong before, and confirm rows are not only failures.
    before = {one.set: one.before for one in arm.measured}
    assert before["debug_seed"] == before["debug_heldout"] == 0.0
    assert 0 < (before["in_contexts"] or 0) < 1


def test_arms_of_a_comparison_have_equal_numbers_a_class(world: World, mended: MendResult) -> None:
    model = mended.mended.models[0]
    own = name_of(world)
    compared = [model.arm(name) for name in (own, f"class_name beside {own}", f"random_contexts beside {own}")]
    assert {arm.images for arm in compared} == {IMAGES} and compared[0].offered == 2 * IMAGES
    assert [arm.of for arm in compared] == [None, own, own]


def test_every_set_of_rows_is_told_and_adds_up(mended: MendResult) -> None:
    document = mended.mended
    retrained = document.models[0].arms[0]
    rows = {one.set: one.rows for one in retrained.measured}
    confirm = document.audited["confirm"]["rows"]
    assert rows["confirm"] == confirm and rows["test"] == SPLITS["test"][0]
    assert confirm + document.audited["discover"]["rows"] == SPLITS["validation"][0]
    assert sum(count for name, count in rows.items() if name.startswith("class:")) == confirm
    contexts = {name: count for name, count in rows.items() if name.startswith("context:")}
    assert sum(contexts.values()) == rows["in_contexts"] > 0
    assert {one.name: one.confirm for one in document.contexts} == {
        name.removeprefix("context:"): count for name, count in contexts.items()
    }


def test_the_lambda_is_the_best_of_the_discover_half(world: World, mended: MendResult) -> None:
    arm = mended.mended.models[0].arm(name_of(world))
    allowed = [point for point in arm.curve if point.allowed]
    assert [point.value for point in arm.curve] == list(GRID)
    assert arm.within_bound and arm.lam in {point.value for point in allowed}
    worst = {point.value: point.worst_context or 0.0 for point in allowed}
    assert worst[arm.lam or 0.0] == max(worst.values())


def test_the_folder_is_the_model_that_was_measured(world: World, mended: MendResult) -> None:
    folder = mended.models[MODEL]
    loaded = load_classifier(f"local-dir:{folder}")
    about = json.loads((folder / "mended.json").read_text())
    assert about["model"]["name"] == MODEL and about["datasets"][0]["content"] == open_dataset(world.built).content
    assert about["datasets"][0]["seed"] == 77 and about["lambda"] == mended.mended.models[0].arms[1].lam
    before, after = head_of(load_classifier(MODEL)), head_of(loaded)
    assert not np.allclose(before.weight, after.weight)
    again = mend(
        f"local-dir:{folder}", world.recipe, str(world.built), folder.parent.parent / "again", save="none", device="cpu"
    )
    was = mended.mended.models[0].arm(name_of(world)).of_set("test")
    now = again.mended.models[0].arms[0].of_set("test")
    assert was is not None and now is not None and was.after == now.before
    assert again.models == {} and not (again.directory / "model").exists()


def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(world: World, mended: MendResult, tmp_path: Path) -> None:
    using = [str(world.built), "dfr:clip", "dfr:place"]
    steps = mend_steps(MODEL, world.recipe, using, tmp_path / "out", lambdas=GRID, effects=True, device="cpu")
    for stage in steps:
        if stage.name.endswith("heads") and stage.done == 2:
            break
    steps.close()
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / ".mend").iterdir()}
    assert kept and not (tmp_path / "out" / "mend.json").exists()
    again = mend(MODEL, world.recipe, using, tmp_path / "out", lambdas=GRID, effects=True, device="cpu")
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    for name in ("mend.json", "mend.csv", "report.html", "model/model.safetensors", "model/README.md"):
        assert (again.directory / name).read_bytes() == (mended.directory / name).read_bytes(), name


def test_balanced_groups_by_truth_and_by_clip_stand_beside(mended: MendResult) -> None:
    model = mended.mended.models[0]
    assert [model.arm(name).role for name in ("dfr:clip", "dfr:place")] == ["rival", "bound"]
    truth = model.arm("dfr:place")
    assert truth.lam is None and [one.against for one in truth.comparisons if one.set == "test"] == ["lambda 0"]
    assert model.saved not in ("dfr:clip", "dfr:place")


def test_effects_end_at_the_whole_arm(world: World, mended: MendResult) -> None:
    arm = mended.mended.models[0].arm(name_of(world))
    assert [point.value for point in arm.by_k] == [1, 2]
    for points in (arm.by_k, arm.by_images):
        counts = [point.images for point in points]
        assert counts == sorted(counts) and counts[-1] == arm.images
        heldout = arm.of_set("debug_heldout")
        assert heldout is not None and points[-1].heldout == heldout.after


def test_the_table_has_a_line_for_every_number(mended: MendResult) -> None:
    with (mended.directory / "mend.csv").open() as file:
        lines = list(csv.DictReader(file))
    model = mended.mended.models[0]
    assert len(lines) == sum(len(arm.measured) + len(arm.comparisons) for arm in model.arms)
    one = next(line for line in lines if line["against"] == "class_name" and line["set"] == "debug_heldout")
    assert one["model"] == MODEL and one["low"] < one["gain"] < one["high"]
    assert json.loads((mended.directory / "mend.json").read_text()) == json.loads(json.dumps(mended.mended.to_json()))


def test_weights_of_training_rows_mend_too(world: World, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = SPLITS["train"][0]
    weights = [2.0 if row % 3 == 0 else 1.0 for row in range(rows)]
    table = pa.table({"key": [f"{row}" for row in range(rows)], "row": range(rows), "weight": weights})
    pq.write_table(table, tmp_path / "w.parquet")
    found = mend(
        MODEL, world.recipe, str(tmp_path / "w.parquet"), tmp_path / "out", lambdas=GRID, per_class=20, device="cpu"
    )
    arm = found.mended.models[0].arms[1]
    assert (arm.role, arm.images) == ("upweighted", 0) and len(arm.curve) == len(GRID)
    assert found.mended.train["rows"] == 60
    retrained = found.mended.models[0].arms[0].of_set("test")
    assert retrained is not None and arm.curve[0].test == retrained.after  # λ = 0 is no weight
    assert arm.verdict is not None and ("is the head retrained alone" in arm.verdict) == (arm.lam == 0)


def test_models_of_one_run_are_compared(world: World, tmp_path: Path) -> None:
    own = f"{world.built}:random_contexts"
    found = mend(
        [MODEL, "lab:lcnet_035"], world.recipe, str(world.built), tmp_path / "out", own={"lab:lcnet_035": own},
        lambdas=(0.0, 1.0), device="cpu",
    )  # fmt: skip
    collective = found.mended.collective
    assert collective is not None and collective.models == (MODEL, "lab:lcnet_035")
    (one, other), (back, same) = collective.overlap
    assert one == same == 1.0 and other == back and 0 <= (other or 0) < 1
    kept = [(row["model"], row["arm"], row["own"]) for row in collective.kept]
    shared = name_of(world)
    assert kept == [(MODEL, shared, False), ("lab:lcnet_035", shared, False), ("lab:lcnet_035", own, True)]
    assert collective.kept[0]["kept"] is None  # nothing is its own
    assert collective.kept[2]["kept"] == 1.0
    folders = {path.name for path in found.models.values()}
    assert folders == {"lab_resnet10t", "lab_lcnet_035"}


def test_the_page_stands_alone_and_says_what_was_found(mended: MendResult) -> None:
    page = (mended.directory / "report.html").read_text()
    arm = next(arm for arm in mended.mended.models[0].arms if arm.name == mended.mended.models[0].saved)
    assert arm.verdict is not None and arm.verdict in page
    assert "<script" not in page and "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    for words in ("debug heldout", "retrained, λ = 0", "What was looked at", "sandal"):
        assert words in page


def refused(world: World, tmp_path: Path, *using: str, models: Any = MODEL, **more: Any) -> UserError:
    with pytest.raises(UserError) as error:
        mend(models, more.pop("on", world.recipe), using or [str(world.built)], tmp_path / "out", device="cpu", **more)
    assert not (tmp_path / "out" / "mend.json").exists()
    return error.value


def test_contexts_that_judging_rows_named_are_refused(world: World, tmp_path: Path) -> None:
    """A dataset that was mined on this validation split, but with other halves: with the same ones it is taken."""
    audited = mend(MODEL, world.recipe, str(world.built), tmp_path / "first", lambdas=[0.0], save="none", device="cpu")
    told = audited.mended.audited
    for seed, half, wanted in ((1, "0" * 64, False), (0, told["discover"]["sha256"], True)):
        on = [{"name": "validation", "content": told["on"][0]["content"]}]
        record = {"on": on, "discover_sha256": half, "seed": seed}
        built = build_scenes(tmp_path / f"built{seed}", world.recipe, mined_layer(record, ["contexts"]))
        if wanted:
            mend(MODEL, world.recipe, str(built), tmp_path / "taken", lambdas=[0.0], save="none", device="cpu")
            continue
        error = refused(world, tmp_path, str(built))
        assert "than the discover half here" in error.problems[0]
    record = {"on": [{"name": "test", "content": audited.mended.test["content"]}], "discover_sha256": "1" * 64}
    built = build_scenes(tmp_path / "tested", world.recipe, mined_layer(record, ["contexts"]))
    assert "which is the test here" in refused(world, tmp_path, str(built)).problems[0]


def test_images_on_both_sides_are_refused(world: World, tmp_path: Path) -> None:
    """A recipe whose test split holds garments of training, and a dataset that is audited and learned from."""
    import shutil

    shutil.copytree(world.recipe.parent / "source", tmp_path / "source")
    shutil.copy(tmp_path / "source" / "train.parquet", tmp_path / "source" / "test.parquet")
    error = refused(world, tmp_path, on=write_recipe(tmp_path / "recipe.yaml"))
    assert any("are the same" in one for one in error.problems) and any("unit" in one for one in error.problems)
    error = refused(world, tmp_path, audited=[str(world.built)])
    assert any("began with the noise" in one for one in error.problems)


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
        (["dfr:clip"], {}, "so there are no groups"),
        (["dfr:weather"], {}, "has no column 'weather'"),
        (["dfr:"], {}, "balanced by what?"),
        (["nowhere.parquet"], {}, "there is no such file"),
        (["{built}"], {"own": {"lab:other": "x"}}, "it is no model that is mended"),
        (["{built}"], {"on": "wardrobe-star", "audited": ["train"]}, "the split that classifiers learn from"),
    ],
)
def test_bad_input_is_told_in_words(
    world: World, tmp_path: Path, using: list[str], more: dict[str, Any], says: str
) -> None:
    given = [one.format(built=world.built) for one in using]
    assert says in str(refused(world, tmp_path, *given, **more))


def test_an_empty_group_and_classes_of_another_recipe_are_refused_together(world: World, tmp_path: Path) -> None:
    empty = build_scenes(tmp_path / "empty", world.recipe, mined_layer(), accept="class")
    error = refused(world, tmp_path, str(empty), "dfr:weather")
    assert "not one image of the group 'contexts' was accepted" in error.problems[0] and "weather" in error.problems[1]


def test_another_run_in_the_same_folder_is_not_written_over(world: World, mended: MendResult) -> None:
    with pytest.raises(UserError, match="holds what came of mending"):
        mend("lab:lcnet_035", world.recipe, str(world.built), mended.directory, device="cpu")


def test_the_command_prints_heads_beside_controls(world: World, mended: MendResult) -> None:
    words = ["--model", MODEL, "--on", str(world.recipe), "--with", str(world.built), "dfr:clip", "dfr:place"]
    words += ["--lambda", "0,0.5,2", "--effects", "--device", "cpu", "--out", str(mended.directory)]
    done = CliRunner().invoke(app, ["mend", *words])
    assert done.exit_code == 0, done.output
    for text in ("as it was", "retrained, λ = 0", "on failures held out", "in_the_snow", "report:", "model:"):
        assert text in done.output
    assert json.loads(CliRunner().invoke(app, ["mend", *words, "--json"]).stdout)["version"] == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "--model is missing"),
        (["--model", "a", "--on", "b", "--with", "c", "--out", "d", "--lambda", "0,x"], "found 'x'"),
        (["--model", "a", "--on", "b", "--with", "c", "--out", "d", "--own", "a"], "expected MODEL=DATASET"),
    ],
)
def test_the_command_refuses_in_words(words: list[str], says: str) -> None:
    done = CliRunner().invoke(app, ["mend", *words])
    assert isinstance(done.exception, UserError) and says in str(done.exception)
