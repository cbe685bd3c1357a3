"""A dataset is compared with its source, whole and by shift; near is near, and what cannot be
compared is reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from colour_world import COLOURS, NAMES, SIZE, build_colours, painted, save_colour_model
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.errors import UserError
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.tasks.classes.measures import source as measure_distances
from counterfoil.feature_stats import (
    FEWEST_IMAGES,
    IMAGES_A_FEATURE,
    LARGEST_SUBSET,
    kernel_distance,
)
from counterfoil.models.classifiers.of_timm import TimmClassifier
from counterfoil.plan.layout import Sample
from counterfoil.report.distances import Distances, ImageSet
from counterfoil.report.results import NESTED, Results
from counterfoil.stats import Estimate
from counterfoil.store.manifest import verify_files
from counterfoil.store.sealed_folder import read_results
from support.estimates import interval_of
from support.images import encoded
from support.measured import measured as measured_alone
from support.refusals import refuses, succeed
from support.reports import evaluation_html
from support.tables import csv_rows

EACH = 24
LONE_RED = (
    "prompts.shifts.lone={prompt: 'a photo of a {class} alone', caption: 'alone', classes:"
    " ['00'], kind: light}"
)


def noisy(colour: tuple[int, int, int], seed: int) -> Image.Image:
    """Draw a colour with noise, so that no two pictures are equal."""
    noise = np.random.default_rng(seed).normal(0, 25, (SIZE, SIZE, 3))
    return Image.fromarray((np.array(colour) + noise).clip(0, 255).astype(np.uint8))


def picture(sample: Sample) -> bytes:
    shift = ("base", "dusk", "swap", "lone").index(sample.shift)
    return encoded(noisy(painted(sample), 10_000 * (shift + 1) + 100 * sample.label + sample.index))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save images that are like those of the base, but not equal."""
    root = tmp_path_factory.mktemp("photos")
    for label, name in enumerate(NAMES):
        (root / name).mkdir()
        for number in range(EACH):
            noisy(COLOURS[label], 1000 * label + number).save(root / name / f"{number:02d}.png")
    return root


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return (
        f"local-dir:{save_colour_model(tmp_path_factory.mktemp('models') / 'sharp', labels=True)}"
    )


@pytest.fixture(scope="module")
def noisy_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build 24 candidates a cell, and a shift of one class with few candidates."""
    folder = tmp_path_factory.mktemp("noisy") / "dataset"
    return build_colours(folder, f"samples.candidates={EACH}", LONE_RED, image=picture)


@pytest.fixture(scope="module")
def measured(
    noisy_dataset: Path, model: str, photos: Path, tmp_path_factory: pytest.TempPathFactory
) -> Evaluation:
    out = tmp_path_factory.mktemp("out")
    options: Any = {"against": photos, "out": out, "device": "cpu", "reference": False}
    return evaluate(noisy_dataset, [model], distances=["clip", model], **options)


def kid_of(results: Results, distances: Distances, images: ImageSet) -> Estimate:
    estimate = results.rows.estimate("kid", **distances.key(images))
    assert estimate is not None
    return estimate


def test_images_like_the_source_are_as_near_as_it_is_to_itself_and_a_shift_is_far(
    measured: Evaluation, model: str
) -> None:
    assert [distance.features for distance in measured.distances] == ["lab:clip", model]
    for distance in measured.distances:
        sets = {images.name: images for images in distance.sets}
        assert (
            list(sets)[:-1] == ["colours", "base", "dusk", "swap", "lone"]
            and distance.sets[-1].what == "source"
        )
        assert (sets["colours"].what, sets["base"].what) == ("dataset", "group")
        assert (sets["base"].images, sets["base"].source_images) == (3 * EACH, 3 * EACH)
        base, dusk, near = (
            kid_of(measured.results, distance, images)
            for images in (sets["base"], sets["dusk"], distance.sets[-1])
        )
        assert base.low is not None and base.high is not None and dusk.low is not None
        assert near.low is not None and near.high is not None
        assert base.low <= 0 <= base.high and near.low <= 0 <= near.high
        assert dusk.low > max(base.high, near.high)
        fids = [
            measured.results.rows.value("fid", **distance.key(sets[name]))
            for name in ("dusk", "base")
        ]
        assert fids[0] and fids[1] and fids[0] > fids[1]
        assert all(images.fid_biased for images in distance.sets)  # fewer images (72) than features


def test_a_shift_of_some_classes_is_compared_with_the_sources_images_of_these(
    measured: Evaluation,
) -> None:
    for distance in measured.distances:
        lone = next(images for images in distance.sets if images.name == "lone")
        assert (lone.classes, lone.images, lone.source_images) == (1, EACH, EACH)
        kid = kid_of(measured.results, distance, lone)
        # Reds are compared with reds; all colours would be far from them.
        low, _, high = interval_of(kid)
        assert low <= 0 <= high


def test_the_numbers_are_those_of_the_features(
    measured: Evaluation, noisy_dataset: Path, photos: Path
) -> None:
    """CLIP's unit vectors are scaled so that the kernel is (1 + cosine)³."""
    from counterfoil.data.labelled_sources import labelled_source
    from counterfoil.evaluation.dataset import open_dataset
    from counterfoil.models.clip import load_clip

    clip = load_clip("lab:clip")
    opened = open_dataset(noisy_dataset)
    built = opened.labelled()
    source = labelled_source(photos, opened.recipe.classes)

    def unit(images: LabelledImages, rows: np.ndarray) -> np.ndarray:
        encoded = [image for _, image in images.images()]
        decoded = [images.decoded(encoded[row]) for row in rows.tolist()]
        return clip.embed_images([image for image in decoded if image is not None], 64)

    features = unit(built, np.flatnonzero(built.groups == 1))
    reference = unit(source, np.arange(len(source)))
    expected = kernel_distance(
        features * np.sqrt(features.shape[1]), reference * np.sqrt(features.shape[1])
    )
    clips = measured.distances[0]
    dusk = kid_of(
        measured.results, clips, next(images for images in clips.sets if images.name == "dusk")
    )
    assert (dusk.value, dusk.low, dusk.high) == pytest.approx(
        (expected.value, expected.low, expected.high), rel=1e-4
    )
    assert measured.distances[0].scaled and not measured.distances[1].scaled


def test_table_report_and_json_have_every_row(measured: Evaluation) -> None:
    rows = csv_rows(measured.files["distances"])
    assert [row["what"] for row in rows] == ["dataset", *["group"] * 4, "source"] * 2
    for row, images in zip(rows[:6], measured.distances[0].sets, strict=True):
        kid = kid_of(measured.results, measured.distances[0], images)
        assert (float(row["kid"]), float(row["kid_low"])) == pytest.approx(
            (kid.value, kid.low), rel=1e-5
        )
        assert (int(row["n_images"]), int(row["n_source_images"])) == (
            images.images,
            images.source_images,
        )
        assert (int(row["kid_subset"]), row["kid_subsets"]) == (images.images // 2, "100")
    page = measured.files["report"].read_text()
    assert page.count('<table class="distances">') == 2 and "Distance to the source" in page
    assert f"two halves of {measured.distances[0].source}" in page
    document = json.loads(json.dumps(measured.to_json()))
    shown = next(
        row for row in document["rows"] if row["measure"] == "kid" and row.get("group") == "base"
    )
    base = kid_of(measured.results, measured.distances[0], measured.distances[0].sets[1])
    assert shown["value"] == pytest.approx(base.value, abs=1e-6)


def test_a_second_run_computes_no_feature_again(
    measured: Evaluation,
    noisy_dataset: Path,
    model: str,
    photos: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*given: object) -> None:
        raise AssertionError("features were computed again")

    monkeypatch.setattr(TimmClassifier, "features", never)
    again = measured_alone(noisy_dataset, [model], distances=[model], against=photos)
    assert again.distances == measured.distances[1:]


def test_without_asking_nothing_is_measured_and_nothing_reported(evaluation: Evaluation) -> None:
    assert evaluation.distances == () and "distances" not in evaluation.to_json()
    assert "distances" not in evaluation.files
    assert "Distance to the source" not in evaluation.files["report"].read_text()


def test_the_recipes_source_is_opened_and_its_splits_tell_what_near_is(
    noisy_dataset: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure_distances, "MOST_IMAGES", 50)
    measured = measured_alone(noisy_dataset, [model], distances=[model])
    (distance,) = measured.distances
    assert distance.skipped is None and distance.source == "lab:wardrobe:validation"
    assert [images.source_images for images in distance.sets[:2]] == [
        50,
        50,
    ] and distance.source_rows > 50
    near = distance.sets[-1]
    assert near.name == "lab:wardrobe:train against lab:wardrobe:validation"
    assert (near.images, near.source_images) == (50, 50)
    # Scenes are near scenes; plain colours are far.
    assert (
        kid_of(measured.results, distance, near).value
        < kid_of(measured.results, distance, distance.sets[1]).value
    )
    # Fifty rows of three classes have too few of the shift's class.
    lone = distance.sets[-2]
    row = measured.results.rows.one("kid", **distance.key(lone))
    assert lone.source_images < FEWEST_IMAGES and row is not None and row.value is None
    assert f"{lone.source_images} independent images" in row.note
    assert row.note in evaluation_html(measured.results)


def test_a_source_that_is_not_at_hand_is_skipped_with_a_word(model: str, tmp_path: Path) -> None:
    dataset = build_colours(tmp_path / "dataset", "source.dataset=./no-such-photos")
    results = measured_alone(dataset, [model], distances=[model]).results
    [sentence] = NESTED["distances"].skipped(results)
    assert "No distances" in sentence and "no-such-photos" in sentence
    page = evaluation_html(results)
    assert "were not measured" in page and str(tmp_path) not in page.replace(model, "")


def test_the_command_prints_kid_first_and_the_source_against_itself(
    noisy_dataset: Path, model: str, photos: Path, measured: Evaluation, tmp_path: Path
) -> None:
    words = [
        str(noisy_dataset),
        "--models",
        model,
        "--distances",
        model,
        "--against",
        str(photos),
        "--device",
        "cpu",
        "--no-reference",
    ]
    result = succeed("evaluate", *words, "--out", str(tmp_path))
    table = result.stdout.partition("Distances to")[2]
    assert (
        table.index("KID") < table.index("FID") < table.index("dusk") < table.index("two halves of")
    )
    distance = measured.distances[1]
    kid = kid_of(
        measured.results,
        distance,
        next(images for images in distance.sets if images.name == "dusk"),
    )
    assert f"{kid.value:.4f}"[:5] in table
    assert str(tmp_path / "distances.csv") in result.stdout


def test_the_images_of_the_source_themselves_are_not_measured(photos: Path, model: str) -> None:
    result = measured_alone(photos, [model], distances=[model], against=photos)
    assert result.distances[0].skipped and "themselves" in result.distances[0].skipped


def test_into_the_card_go_the_numbers_and_no_folder_of_this_machine(
    model: str, photos: Path, tmp_path: Path
) -> None:
    dataset = build_colours(tmp_path / "dataset", f"samples.candidates={EACH}", image=picture)
    options: Any = {"device": "cpu", "into_card": True, "reference": False}
    result = evaluate(
        dataset,
        [model],
        distances=model,
        against=photos,
        **options,
    )
    assert verify_files(dataset) == []
    text = (dataset / "README.md").read_text()
    section = text.partition("## Distance to the source")[2].partition("\n## ")[0]
    document = json.loads((dataset / "evaluation" / "results.json").read_text())
    stored = read_results(dataset, result.results.content)
    assert stored is not None
    kid = kid_of(result.results, result.distances[0], result.distances[0].sets[2])
    assert kid_of(stored, stored.distances[0], stored.distances[0].sets[2]).value == pytest.approx(
        kid.value, abs=1e-6
    )
    assert "\n| `dusk` | " in section and "\n| `colours, all of it` | " in section
    assert "local-dir:./sharp" in section and "\n| `two halves of ./" in section
    assert section.count("\n| ") == 1 + 4 + 1  # the head, three groups and all of them, the source
    assert (
        "†" in section
        and f"fewer than {IMAGES_A_FEATURE} images" in section
        and f"{LARGEST_SUBSET:,} at" in section
    )
    for published in (
        text,
        json.dumps(document),
        (dataset / "evaluation" / "distances.csv").read_text(),
    ):
        assert (
            str(photos.parent) not in published
            and str(Path(model.partition(":")[2]).parent) not in published
        )


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (
            {"distances": "predictions:answers.csv"},
            "has no features, expected a model that a folder",
        ),
        ({"distances": "python:models:made"}, "[unusable-model]"),
        ({"distances": "resnet81"}, "resnet81"),
        ({"distances": "lab:wardrobe", "against": None}, "lab:wardrobe"),
        ({"distances": None, "against": "lab:wardrobe:validation"}, "against: needs --distances"),
        ({"distances": "clip", "against": "./no-such-folder"}, "no-such-folder"),
    ],
)
def test_mistakes_are_reported_before_a_model_is_scored(
    noisy_dataset: Path, model: str, tmp_path: Path, options: dict, word: str
) -> None:
    with pytest.raises(UserError) as caught:
        evaluate(
            noisy_dataset,
            [model],
            out=tmp_path,
            device="cpu",
            **options,
        )
    assert word in str(caught.value)


def test_clip_is_a_recipes(photos: Path, model: str, tmp_path: Path) -> None:
    with refuses("unusable-model", "distances", "the images have no recipe"):
        evaluate(
            photos, [model], distances="clip", against="lab:wardrobe", out=tmp_path, device="cpu"
        )


def test_images_of_one_noise_are_one_unit(noisy_dataset: Path) -> None:
    from counterfoil.evaluation.dataset import open_subject

    subject = open_subject(
        noisy_dataset,
        None,
        None,
        None,
        {},
    )
    units = measure_distances._subject_units(subject)
    pairs = [key.partition("_")[2] for key in subject.keys]
    assert len(np.unique(units)) == len(set(pairs)) == 3 * EACH
    assert all(
        len({pairs[row] for row in np.flatnonzero(units == unit)}) == 1 for unit in np.unique(units)
    )
