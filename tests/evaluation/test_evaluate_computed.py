"""Computed shifts: base images prepared otherwise, or corrupted at the model's size, in the tables
of any shift."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from colour_world import NAMES
from counterfoil.building.build_dataset import build
from counterfoil.errors import UserError
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.dataset import open_dataset, open_subject
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.tasks.classes.computed import with_computed
from counterfoil.models.preparation import Preparation
from counterfoil.prediction.changes import ChangedPreparation
from counterfoil.recipe import load_recipe
from counterfoil.recipe.preprocessing import preprocessing_names
from support.measured import measured
from support.refusals import refuses
from tiny_builds import CLASSES


@pytest.fixture(scope="module")
def changed(photos: Path, named: str, tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    """Evaluate a model that reads colours, and a function that does so, under two changes."""

    def reads_colours(batch: Any) -> Any:
        return np.asarray(batch).mean(axis=(2, 3))

    reads_colours.label_names = list(NAMES)  # type: ignore[attr-defined]
    models = {"sharp": named, "function": reads_colours}
    return evaluate(
        photos,
        models,
        preprocessing=["bgr", "squash", "exif_applied"],
        gate=["accuracy(bgr) >= 5", "drop(squash) <= 60"],
        allow_undecided=True,
        out=tmp_path_factory.mktemp("changed"),
        device="cpu",
    )


def test_exchanged_channels_cost_red_and_blue(changed: Evaluation) -> None:
    # Red looks blue and blue red; 4 of 6 greens are green before and after. The drop leaves out
    # green, which is near chance on so few images.
    rows = changed.results.rows
    for model in ("sharp", "function"):
        assert rows.value("drop", model=model, group="bgr") == pytest.approx(1)
        assert rows.value("accuracy", model=model, group="bgr") == pytest.approx(4 / 18)
    (group,) = [group for group in changed.results.groups if group.name == "bgr"]
    assert group.kind == "preprocessing" and group.candidates is None


def test_a_model_that_cannot_be_prepared_otherwise_has_no_row(changed: Evaluation) -> None:
    rows = changed.results.rows.where("drop", group="squash")
    assert [row.model for row in rows if not row.class_id] == ["sharp"]
    models = {}
    for row in changed.results.rows.where("impact"):
        if not row.class_id:
            models[row.group] = row.n
    assert models == {"bgr": 2, "squash": 1}
    why = "function has no row for squash: how images are prepared for it is not known."
    assert why in changed.notes
    assert changed.gate is not None
    verdicts = {(line.model, line.group): line.verdict for line in changed.gate.judged}
    assert verdicts["function", "squash"] == "undecided"


def test_a_change_of_no_image_is_left_out(changed: Evaluation) -> None:
    assert "exif_applied is left out: no image has an EXIF tag that turns it." in changed.notes
    assert "exif_applied" not in [group.name for group in changed.results.groups]


def test_pages_say_that_no_image_is_stored(changed: Evaluation) -> None:
    assert "No image of them is stored" in changed.files["report"].read_text()
    frame = pd.read_parquet(changed.files["predictions"])
    base = frame[~frame.key.str.contains("/")]
    assert set(frame[frame["shift"] == "bgr"].key) == {f"bgr/{key}" for key in base.key}
    assert changed.files["failures"].exists()


def test_an_unreadable_image_is_counted_once(changed: Evaluation) -> None:
    # red/cut.png is no image, under two changes as in the base.
    assert len(changed.unreadable) == changed.results.unreadable == 1
    assert changed.unreadable_paths == ("red/cut.png",)


_SHIFTS = """
extends: wardrobe-corrupt
name: at-model-size
prompts:
  shifts: {%s}
samples: {candidates: 4}
evaluate:
  models: ["lab:mobilenetv3_small_050"]
  corrupted:
    noise: {corruption: gaussian_noise, severity: {by: corruption, levels: [1, 3, 5]}}
    cold: {corruption: frost, severity: 4}
"""


@pytest.fixture(scope="module")
def corrupted(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    """Evaluate stored corruptions beside the same ones that are computed at the model's size, 64
    pixels, which is that of the stored images."""
    kept = "gaussian_noise motion_blur defocus_blur fog snow darker contrast jpeg_compression"
    kept += " low_resolution greyscale rotation occlusion"
    none = ", ".join(f"{name}: null" for name in kept.split() if name != "gaussian_noise")
    stored = (
        "gaussian_noise: {corruption: gaussian_noise, severity: {by: corruption, levels: [1, 3, 5]}},"
        f" stored_cold: {{corruption: frost, severity: 4}}, {none}"
    )
    folder = tmp_path_factory.mktemp("corrupted")
    recipe = folder / "recipe.yaml"
    recipe.write_text(_SHIFTS % stored)
    build(recipe, folder / "dataset", overrides=[CLASSES], device="cpu", workers=1)
    return measured(folder / "dataset")


def test_at_the_stored_size_answers_are_those_to_stored_images(corrupted: Evaluation) -> None:
    assert corrupted.task is not None
    frame = pd.read_parquet(io.BytesIO(corrupted.task.predictions(None)))
    answers = [name for name in frame.columns if name.startswith(("answer.", "confidence."))]
    names = {"noise_1": "gaussian_noise_1", "noise_3": "gaussian_noise_3"}
    names |= {"noise": "gaussian_noise", "cold": "stored_cold"}
    for computed, stored in names.items():
        left = frame[frame["shift"] == computed].sort_values("key")
        right = frame[frame["shift"] == stored].sort_values("key")
        assert len(left) == 12 and len(answers) == 2
        # The last bits of a confidence depend on the other images of a batch.
        np.testing.assert_allclose(left[answers], right[answers], rtol=1e-6)
    base = frame[frame["shift"] == "base"][answers].to_numpy()
    assert not np.array_equal(base, frame[frame["shift"] == "noise"][answers].to_numpy())


def test_at_the_stored_size_pixels_are_those_that_a_build_stores(corrupted: Evaluation) -> None:
    assert corrupted.directory is not None
    dataset = open_dataset(corrupted.directory)
    stored = dict(dataset.images())
    subject, _ = with_computed(dataset, dataset.recipe, None)
    own_size = Preparation(64, (64, 64))
    compared = 0
    for part in subject.parts[1:]:
        assert part.change is not None and part.images.seeds is not None
        name = {"cold": "stored_cold"}.get(part.change.name, part.change.name)
        name = name.replace("noise", "gaussian_noise")
        transform = ChangedPreparation(part.change, own_size).transform("mine", lambda image: image)
        for (key, file), seed in zip(part.images.images(), part.images.seeds, strict=True):
            picture = part.images.decoded(file)
            assert picture is not None and file is not None
            levels = (transform(picture, file, int(seed)) * 255).round().permute(1, 2, 0)
            expected = part.images.decoded(stored[key.replace("base", name)])
            np.testing.assert_array_equal(levels.numpy(), np.array(expected))
            compared += 1
    assert compared == 4 * 12


def test_numbers_over_kinds_say_how_many_are_computed(corrupted: Evaluation) -> None:
    # Both kinds are stored too, at the same severities.
    (stored,) = corrupted.results.rows.where("mPC")
    assert stored.at == "2" and "model's own size" not in (stored.note or "")


def test_computed_severities_have_a_curve(corrupted: Evaluation) -> None:
    curves = {curve.shift: curve for curve in corrupted.results.severity}
    assert [level.group for level in curves["noise"].levels] == ["noise_1", "noise_3", "noise"]
    kinds = {group.name: group.kind for group in corrupted.results.groups}
    assert kinds["noise"] == kinds["gaussian_noise"] == "noise"


def test_answers_under_a_change_are_kept(
    photos: Path, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ask nothing in a second run, and make another entry for another change."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def entries(*changes: str) -> int:
        measured(photos, [named], preprocessing=changes)
        return len(list((tmp_path / "cache").rglob("predictions/*.parquet")))

    assert entries("bgr") == 2
    assert entries("bgr") == 2
    assert entries("bgr", "not_normalised") == 3


def test_an_earlier_evaluation_may_have_other_computed_shifts(
    photos: Path, named: str, tmp_path: Path
) -> None:
    """Compare where both have answers. bilinear is left out for all models, because it is theirs."""
    before = ["bilinear", "bgr", "half_mean"]
    earlier = evaluate(photos, [named], preprocessing=before, out=tmp_path, device="cpu")
    gate = measured(
        photos,
        [named],
        preprocessing=["bilinear", "squash", "bgr"],
        gate=[f"worse_than({earlier.files['document']}, any) <= 5"],
        allow_undecided=True,
    ).gate
    assert gate is not None
    shown = {}
    for line in gate.judged:
        shown[line.group] = None if line.estimate is None else line.estimate.value
        if line.group == "squash":
            assert line.reason.endswith("results.json has no answers under squash")
    assert shown == {"all": 0.0, "squash": None, "bgr": 0.0}


REFUSED = {
    "unknown": (["bilinaer"], {}, "there is no 'bilinaer'; did you mean 'bilinear'?"),
    "on a card": (["bgr"], {"into_card": True}, "into_card: stores the results"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_asked_is_refused(photos: Path, named: str, name: str) -> None:
    changes, given, message = REFUSED[name]
    options: dict[str, Any] = given
    with pytest.raises(UserError, match=message):
        measured(photos, [named], preprocessing=changes, **options)


def test_a_name_alone_is_one_change() -> None:
    assert preprocessing_names("bgr") == ("bgr",)
    assert preprocessing_names("all") == preprocessing_names(["all"])


def test_images_beside_are_no_group_of_the_dataset(photos: Path) -> None:
    beside = open_subject(photos, None, None, None, {"v2": photos})
    subject, _ = with_computed(beside, None, ["bgr"])
    assert [group.name for group in subject.groups] == ["all", "v2", "bgr"] and subject.base


def test_without_a_base_shifts_of_a_recipe_are_left_out(weather: Path) -> None:
    corrupted = ["evaluate.corrupted={mist: {corruption: fog}}"]
    recipe = load_recipe("wardrobe-mini", corrupted)
    groups = open_subject(weather, recipe, None, "weather", {})
    subject, notes = with_computed(groups, recipe, None)
    assert subject is groups and len(subject.groups) == 2
    assert notes == ("Computed shifts of the recipe are left out, because no group is the base.",)


def test_several_groups_need_a_base(weather: Path) -> None:
    with refuses("nothing-to-measure", weather, "2 groups, and no base"):
        measured(weather, ["lab:resnet10t"], groups="weather", preprocessing=["bgr"])
