"""The reference: a fixed sample of the source's validation images beside the base, or the reason
for none."""

from __future__ import annotations

import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from colour_kinds import colour_function
from colour_world import COLOURS, NAMES, SIZE, build_colours
from counterfoil.data.labelled_sources import labelled_split
from counterfoil.evaluation.dataset import open_subject
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.tasks.classes.measures import source as measure_source
from counterfoil.evaluation.tasks.classes.measures.source import IMAGES_A_CLASS, prepared_reference
from counterfoil.lab.vocabulary import CLASSES
from counterfoil.progress import Stage, listening
from counterfoil.recipe import Source
from counterfoil.report.reference import near_chance_sentences, reference_note, reference_warnings
from counterfoil.report.results import ResultRow, ResultRows
from counterfoil.stats import Estimate
from counterfoil.store.layout import user_cache
from counterfoil.store.manifest import write_manifest
from support.estimates import interval_of
from support.measured import measured
from support.refusals import succeed
from support.tables import csv_rows

MODEL = "lab:resnet10t"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build plain colours under names of the wardrobe's classes: a base that is unlike its
    source."""
    classes = ", ".join(
        f"{{id: '{n}', name: {c}, source_label: {n}}}" for n, c in enumerate(CLASSES) if n >= 7
    )
    return build_colours(tmp_path_factory.mktemp("lab") / "d", f"source.classes=[{classes}]")


def numbers_of(evaluation: Evaluation, model: str) -> tuple[Estimate, Estimate, Estimate]:
    names = ("validation", "validation_base", "validation_gap")
    validation, base, gap = (evaluation.number(name, model=model) for name in names)
    assert validation is not None and base is not None and gap is not None
    return validation, base, gap


def scored(evaluation: Evaluation) -> list[str]:
    return [row.model for row in evaluation.results.rows.where("validation")]


def test_the_gap_is_between_the_same_classes_of_both_sides(
    evaluation: Evaluation, models: dict[str, str]
) -> None:
    reference = evaluation.reference
    assert reference is not None and reference.skipped is None
    assert (reference.split, reference.classes) == ("lab:wardrobe:validation", 3)
    assert reference.images == 3 * IMAGES_A_CLASS
    assert scored(evaluation) == [model.name for model in evaluation.models]
    for model in scored(evaluation):
        validation, base, gap = numbers_of(evaluation, model)
        assert base == evaluation.results.base_number(model), "the base is one number everywhere"
        assert gap.value == pytest.approx(validation.value - base.value)
        for shown in (validation, base, gap):
            low, value, high = interval_of(shown)
            assert low <= value <= high
            assert low < high
    assert numbers_of(evaluation, models["sharp"])[2].value < -0.4
    assert any(
        "The base differs from the input dataset" in text
        for text in reference_warnings(evaluation.results)
    )


def test_the_accuracy_is_that_of_the_same_images_scored_by_themselves(
    evaluation: Evaluation, dataset: Path, models: dict[str, str], tmp_path: Path
) -> None:
    subject = open_subject(dataset, None, None, None, {})
    prepared = prepared_reference(subject, {models["sharp"]: models["sharp"]}, (), None)
    assert prepared.images is not None and subject.recipe is not None
    whole = labelled_split(subject.recipe.source, "validation", subject.recipe.classes)
    assert len(whole) > len(prepared.images) == 3 * IMAGES_A_CLASS
    folder = tmp_path / "same"
    keys = frozenset(prepared.images.keys)
    for (key, encoded), label in zip(
        prepared.images.images(keys), prepared.images.labels, strict=True
    ):
        path = folder / NAMES[label] / f"{key}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded or b"")
    alone = measured(folder, [models["sharp"]], recipe=subject.recipe, reference=None)
    validation, _, _ = numbers_of(evaluation, models["sharp"])
    assert alone.scores[0].accuracy == pytest.approx(validation.value)
    assert alone.reference is None, "images that no build made have no source"


def test_it_is_scored_once_and_kept_in_the_users_cache(
    dataset: Path, models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def warnings_of(copy: Path) -> int:
        steps: list[Stage] = []
        with listening(steps.append):
            measured(copy, [models["no_blue"]], reference=None)
        return sum(
            {
                stage.name: stage.done for stage in steps if stage.name.endswith(", validation")
            }.values()
        )

    assert warnings_of(dataset) == 3 * IMAGES_A_CLASS
    # Stored answers join those that are computed now.
    result = measured(dataset, [models["small"], models["no_blue"]], reference=None)
    assert scored(result) == [models["small"], models["no_blue"]]
    # Another dataset of the same source and classes, with the same weights, uses the stored
    # answers.
    assert warnings_of(build_colours(tmp_path / "other", "samples.seed=11")) == 0
    assert list((user_cache() / "predictions").iterdir())


def test_tables_hold_it(evaluation: Evaluation) -> None:
    rows = {row["model"]: row for row in csv_rows(evaluation.files["results"])}
    for model in scored(evaluation):
        row = rows[model]
        assert float(row["validation"]) == pytest.approx(
            100 * numbers_of(evaluation, model)[0].value, abs=1e-3
        )
        assert float(row["validation_gap"]) == pytest.approx(
            float(row["validation"]) - float(row["base"]), abs=2e-3
        )
        assert float(row["validation_gap_low"]) < float(row["validation_gap_high"])
        assert (row["validation_images"], row["validation_classes"]) == ("150", "3")
    document = json.loads(json.dumps(evaluation.to_json()))
    assert document["reference"]["split"] == "lab:wardrobe:validation"
    assert [
        row["model"] for row in document["rows"] if row["measure"] == "validation_gap"
    ] == scored(evaluation)


def test_a_base_of_few_images_is_reported_as_the_reason(
    models: dict[str, str], tmp_path: Path
) -> None:
    dataset = build_colours(tmp_path / "few", "evaluate.min_images_per_class=1000")
    reference = measured(dataset, [models["sharp"]], reference=None).reference
    assert reference is not None and reference.skipped == "no class has enough images on the base"


def test_it_is_left_away_where_nobody_wants_it(dataset: Path, models: dict[str, str]) -> None:
    result = measured(dataset, [models["sharp"]], reference=False)
    assert result.reference is None and "reference" not in result.to_json()
    assert reference_note(result.results) is None and reference_warnings(result.results) == ()
    assert result.task is not None
    tables = result.task.all_tables(result.results)
    assert csv_rows(tables["results"][1])[0]["validation"] == ""


def with_source(dataset: Path, name: str, folder: Path) -> Path:
    """Copy a dataset, change the source in its recipe and seal it again, as a stranger would."""
    copy = shutil.copytree(dataset, folder / "d", ignore=shutil.ignore_patterns(".counterfoil"))
    recipe = copy / "recipe.yaml"
    text = recipe.read_text()
    assert "dataset: lab:wardrobe" in text
    recipe.write_text(text.replace("dataset: lab:wardrobe", f"dataset: {name}"))
    write_manifest(copy, {})
    return copy


def test_a_folder_in_a_datasets_recipe_is_not_opened(
    dataset: Path, models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A suitable folder of the same name on this machine.
    for index, name in enumerate(NAMES):
        photo = tmp_path / "photos" / "validation" / name / "a.png"
        photo.parent.mkdir(parents=True)
        Image.new("RGB", (32, 32), (80 * index, 0, 0)).save(photo)
    monkeypatch.chdir(tmp_path)
    copy = with_source(dataset, '"./photos"', tmp_path)
    result = measured(copy, [models["sharp"]], reference=True)
    assert result.reference is not None and result.reference.skipped is not None
    assert "the machine that built the dataset" in result.reference.skipped and scored(result) == []
    assert (reference_note(result.results) or "").startswith(
        "Accuracy on the source's validation images was not measured: "
    )
    assert result.scores and reference_warnings(result.results) == ()


def test_a_dataset_of_the_hub_is_not_fetched_unasked(
    dataset: Path, models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = with_source(dataset, "someone/photos", tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    result = measured(copy, [models["sharp"]], reference=None)
    assert result.reference is not None
    assert (
        result.reference.skipped
        == "'someone/photos' is not on this machine; Add --reference to download it"
    )


def test_a_source_that_cannot_be_fetched_is_skipped_with_a_word(
    dataset: Path, models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = with_source(dataset, "someone/photos", tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    result = measured(copy, [models["sharp"]], reference=True)
    assert result.reference is not None and result.reference.skipped
    assert "someone/photos" in result.reference.skipped and result.scores


def test_a_file_of_predictions_has_no_reference(
    dataset: Path, models: dict[str, str], evaluation: Evaluation, tmp_path: Path
) -> None:
    rows = ["key,label"]
    subject = open_subject(dataset, None, None, None, {})
    rows += [
        f"{key},{NAMES[label]}"
        for key, label in zip(subject.keys, subject.labels.tolist(), strict=True)
    ]
    file = tmp_path / "answers.csv"
    file.write_text("\n".join(rows) + "\n")
    name = f"predictions:{file}"
    result = measured(dataset, [name, models["sharp"]], reference=None)
    assert result.reference is not None and result.reference.skipped is None
    assert scored(result) == [models["sharp"]]
    assert numbers_of(result, models["sharp"]) == numbers_of(evaluation, models["sharp"])
    assert list(result.reference.left_out) == [name]
    assert "a file of recorded predictions" in (reference_note(result.results) or "")
    alone = measured(dataset, [name], reference=None)
    assert alone.reference is not None and "recorded predictions" in (alone.reference.skipped or "")


def test_classes_near_chance_on_the_base_are_reported_by_their_validation_accuracy(
    lab: Path,
) -> None:
    result = measured(lab, [MODEL], reference=None)
    reference = result.reference
    assert reference is not None and result.near_chance_classes
    # The source shows what the base does not.
    assert reference.unseen is not None and reference.unseen > 0.5 and reference.unseen_known
    # If models do not know these classes on the source either, the sentence on chance says so,
    # without a warning.
    unknown = replace(result.results, reference=replace(reference, unseen=0.05, unseen_known=False))
    assert not any("near chance" in text for text in reference_warnings(unknown))
    assert "on validation images either (5.0 % right there)" in near_chance_sentences(unknown)[-1]
    assert "either" not in " ".join(near_chance_sentences(result.results))
    assert any(
        "near chance on the base" in text and "on validation images" in text
        for text in reference_warnings(result.results)
    )


@pytest.mark.parametrize("unit", ["patient", "null"])
def test_images_of_one_patient_are_no_independent_images(
    unit: str, models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paint the images of six of twelve patients in another colour, so that the model is wrong on
    all images of a patient or on none."""
    source = tmp_path / "source"
    source.mkdir()
    lines = ["file_name,label,patient"]
    for number in range(144):
        patient = number % 12
        label = number // 12 % 3
        colour = COLOURS[(label + (patient < 6)) % 3]
        Image.new("RGB", (SIZE, SIZE), colour).save(source / f"{number}.png")
        lines.append(f"{number}.png,{label},{patient}")
    (source / "metadata.csv").write_text("\n".join(lines))
    classes = ", ".join(
        f"{{id: '0{n}', name: {name}, source_label: {n}}}" for n, name in enumerate(NAMES)
    )
    keys = f"train_split: train, validation_split: train, unit_column: {unit}, classes: [{classes}]"
    dataset = build_colours(tmp_path / "built", f"source={{dataset: {str(source)!r}, {keys}}}")

    def placed(stated: Source, recorded: object) -> Source:
        return stated.model_copy(update={"dataset": str(source)})  # the test trusts the folder

    monkeypatch.setattr(measure_source, "placed_source", placed)
    evaluation = measured(dataset, [models["sharp"]], reference=True)
    assert evaluation.reference is not None and evaluation.reference.skipped is None
    validation, base, gap = numbers_of(evaluation, models["sharp"])
    assert base == evaluation.results.base_number(models["sharp"])
    assert (validation.value, gap.value) == (0.5, -0.5)
    halves = []
    for number in (validation, gap):
        low, _, high = interval_of(number)
        halves.append((high - low) / 2)
    # Student's interval of twelve shares, six of them 1; or the usual one of 144 images.
    expected = 2.2 * 0.522 / 12**0.5 if unit == "patient" else 1.96 * 0.5 / 12
    assert halves[0] == pytest.approx(expected, rel=0.2)
    assert halves[1] > 0.99 * halves[0]


def test_warnings_say_which_gap_is_large_and_why(evaluation: Evaluation) -> None:
    """Each model has validation, base, gap and the ends of its interval."""
    gaps = {
        "even": (0.8, 0.79, 0.01, -0.04, 0.06),
        "near": (0.8, 0.74, 0.06, 0.01, 0.11),
        "far": (0.738, 0.19, 0.548, 0.5, 0.6),
        "wide": (0.8, 0.6, 0.2, -0.1, 0.5),
        "up": (0.19, 0.738, -0.548, -0.6, -0.5),
    }

    def warnings_of(*names: str) -> tuple[str, ...]:
        rows = []
        for name in names:
            validation, base, gap, low, high = gaps[name]
            rows.append(ResultRow("validation", model=name, value=validation))
            rows.append(ResultRow("validation_base", model=name, value=base))
            rows.append(ResultRow("validation_gap", model=name, value=gap, low=low, high=high))
        models = tuple(replace(evaluation.models[0], name=name, short_name=name) for name in names)
        return reference_warnings(replace(evaluation.results, models=models, rows=ResultRows(rows)))

    assert warnings_of("even") == ()
    [large] = warnings_of("even", "far")
    assert large.startswith("The base differs from the input dataset") and "1 of 2 models" in large
    assert "54.8 points, for far: 73.8 % → 19.0 %" in large
    assert "2 of 3 models" in warnings_of("even", "far", "wide")[0]
    [small] = warnings_of("even", "near")
    assert "excludes 0" in small and "near by 6.0 points" in small and "even" not in small
    assert "54.8 points" in warnings_of("up")[0]


def test_the_command_tells_it_first_and_every_difference_in_points(
    dataset: Path, models: dict[str, str], tmp_path: Path
) -> None:
    words = [
        "evaluate",
        str(dataset),
        "--out",
        str(tmp_path),
        "--models",
        models["sharp"],
        models["only_blue"],
    ]
    done = succeed(*words)
    lines = done.stdout.splitlines()
    assert done.stderr.count("Warning: The base differs from the input dataset") == 1
    assert (
        "validation → base" in done.stdout
        and "1 of 2 models (only_blue) is near chance" in done.stdout
    )
    swap = next(line for line in lines if line.strip().startswith("swap"))
    assert swap.count(" points") == 3 and "33.3 points" in swap and "33.3 %" in swap, (
        "two models, all, and relative"
    )
    base = next(line for line in lines if line.strip().startswith("base "))
    assert "100.0 %" in base and "33.3 %" in base
    assert "of 100.0 %" not in done.stdout, "every drop is from the base that is shown"


def test_a_source_that_fails_in_a_librarys_words_ends_no_evaluation(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.ESTALE, "Stale file handle", "/photographs/1.png")

    monkeypatch.setattr(
        "counterfoil.evaluation.tasks.classes.measures.source.labelled_split", fails
    )
    prepared = prepared_reference(open_subject(lab, None, None, None, {}), {MODEL: MODEL}, (), None)
    assert prepared.images is None
    assert prepared.skipped is not None and "Stale file handle" in prepared.skipped


def test_an_error_of_the_program_is_no_source_that_cannot_be_read(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise KeyError("labels")

    monkeypatch.setattr(
        "counterfoil.evaluation.tasks.classes.measures.source.labelled_split", fails
    )
    with pytest.raises(KeyError, match="labels"):
        prepared_reference(open_subject(lab, None, None, None, {}), {MODEL: MODEL}, (), None)


def test_a_model_that_fails_on_validation_images_takes_nothing_from_the_others(
    dataset: Path, models: dict[str, str], evaluation: Evaluation
) -> None:
    """Images of the dataset are small, those of the source large."""

    def shy(batch: np.ndarray) -> np.ndarray:
        if batch.shape[-1] > SIZE:
            raise RuntimeError("too large for me")
        return colour_function(batch)

    given = {"shy": shy, "sharp": models["sharp"]}
    result = measured(dataset, given, reference=None)
    assert result.reference is not None and result.reference.skipped is None
    (name, why) = next(iter(result.reference.left_out.items()))
    assert "shy" in name and why.startswith("which failed there: ") and "too large for me" in why
    assert len(result.models) == 2 and scored(result) == [
        model.name for model in result.models if "shy" not in model.name
    ]
    (other,) = scored(result)
    assert numbers_of(result, other) == numbers_of(evaluation, models["sharp"])
    assert "too large for me" in (reference_note(result.results) or "")
    alone = measured(dataset, {"shy": shy}, reference=None)
    assert alone.reference is not None and "too large for me" in (alone.reference.skipped or "")
