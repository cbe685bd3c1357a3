"""The walk of a person with a detector: a folder of images with boxes, `init`, `build`,
predictions, the report."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import mlcroissant
import numpy as np
import pytest
import yaml
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from counterfoil.building.build_dataset import build
from counterfoil.dataset.verification import verify
from counterfoil.engines import EngineChoice
from counterfoil.errors import UserError
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.evaluation.evaluate_dataset import write_keys
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.tasks.objects.detections import read_detections
from counterfoil.evaluation.tasks.objects.measures import measure_model
from counterfoil.evaluation.tasks.objects.subject import open_objects
from counterfoil.resampled_stats import Units
from counterfoil.starting.init_recipe import init
from support.boxes import IDS, coco_folder
from support.colour_detector import NAMES, ColourDetector
from support.estimates import interval_of
from support.gate_comments import check_worst_images, table_rows
from support.measured import measured
from support.refusals import problems_of, refuses
from support.strangers_text import HOSTILE, refuse_acting

SHIFTS = (
    "prompts.shifts={gaussian_noise: {corruption: gaussian_noise, severity: {levels: [0.2, 1.0]}}, \
jpeg_compression: {corruption: jpeg_compression, severity: 5}}"
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a dataset of twelve images of 160 × 120 pixels, reduced to 96 × 128."""
    folder = tmp_path_factory.mktemp("objects")
    coco_folder(folder / "coco")
    result = init(folder / "coco", folder / "recipe.yaml", device="cpu")
    assert any("[x, y, width, height] in pixels, as COCO" in note for note in result.notes)
    with Image.open(folder / "recipe-boxes.png") as picture:
        assert picture.size == (4 * 320, 3 * 320)
    overrides = [
        "prompts.shifts={}",
        SHIFTS,
        "generator.size=96",
        "output.image.format=png",
        "output.image.quality=null",
    ]
    build(folder / "recipe.yaml", folder / "built", overrides=overrides, device="cpu", workers=1)
    return folder / "built"


@pytest.fixture(scope="module")
def results_file(built: Path) -> Path:
    """Write COCO results with the ids of the file that `--write-keys` writes, as another program
    does."""
    keys = built.parent / "keys.json"
    write_keys(built, keys)
    document = json.loads(keys.read_text())
    number = {image["file_name"]: image["id"] for image in document["images"]}
    category = {entry["name"]: entry["id"] for entry in document["categories"]}
    results = []
    for key, encoded in open_dataset(built).images():
        (answer,) = ColourDetector()([Image.open(io.BytesIO(encoded or b""))])
        for (x0, y0, x1, y1), score, label in zip(
            answer["boxes"], answer["scores"], answer["labels"], strict=True
        ):
            box = [x0, y0, x1 - x0, y1 - y0]
            identity = {"image_id": number[f"{key}.png"], "category_id": category[NAMES[label]]}
            results.append({**identity, "bbox": box, "score": score})
    file = built.parent / "results.json"
    file.write_text(json.dumps(results))
    return file


@pytest.fixture(scope="module")
def evaluation(built: Path, results_file: Path) -> Evaluation:
    evaluation = evaluate(built, [f"predictions:{results_file}"], out=built.parent / "report")
    assert evaluation.results.lead == "AP"
    return evaluation


def test_stored_boxes_are_those_of_the_source_scaled_with_their_image(built: Path) -> None:
    source = json.loads((built.parent / "coco" / "annotations.json").read_text())
    boxes: dict[int, list[list[float]]] = {}
    for annotation in source["annotations"]:
        boxes.setdefault(annotation["image_id"], []).append(
            [value * 96 / 120 for value in annotation["bbox"]]
        )
    subject = open_objects(open_dataset(built))
    assert subject.images == 12 and subject.left_out == 0
    stored = sorted(
        json.dumps(np.round(objects["bbox"], 6).tolist()) for objects in subject.objects
    )
    expected = sorted(
        json.dumps(np.round(boxes.get(image["id"], []), 6).tolist()) for image in source["images"]
    )
    assert stored == sorted(expected * 4)  # base, two severities and one more shift


def test_every_group_has_the_numbers_of_pycocotools(
    built: Path, results_file: Path, evaluation: Evaluation
) -> None:
    document = json.loads((built.parent / "keys.json").read_text())
    results = json.loads(results_file.read_text())
    groups = {image["group"] for image in document["images"]}
    assert groups == {"base", "gaussian_noise_1", "gaussian_noise", "jpeg_compression"}
    for group in sorted(groups):
        with contextlib.redirect_stdout(io.StringIO()):
            truth = COCO()
            truth.dataset = document | {"info": {}}
            truth.createIndex()
            judge = COCOeval(truth, truth.loadRes(results), "bbox")
            judge.params.imgIds = [
                image["id"] for image in document["images"] if image["group"] == group
            ]
            judge.evaluate()
            judge.accumulate()
            judge.summarize()
        for name, index in (
            ("AP", 0),
            ("AP50", 1),
            ("AP75", 2),
            ("AP_small", 3),
            ("AP_medium", 4),
            ("recall", 8),
        ):
            value = evaluation.results.rows.value(
                name, model=evaluation.results.models[0].name, group=group
            )
            assert value == pytest.approx(judge.stats[index], abs=1e-12), (group, name)


def test_drops_are_differences_and_their_intervals_hold_them(evaluation: Evaluation) -> None:
    rows = evaluation.results.rows
    model = evaluation.results.models[0].name
    base = rows.value("AP", model=model, group="base") or 0.0
    noise = rows.value("AP", model=model, group="gaussian_noise") or 0.0
    drop = rows.estimate("drop", model=model, group="gaussian_noise", at="AP")
    assert drop is not None and drop.value == pytest.approx(base - noise) and drop.value > 0.1
    low, value, high = interval_of(drop)
    assert low < value < high
    others = [
        rows.value("AP", model=model, group=group) or 0.0
        for group in ("gaussian_noise_1", "jpeg_compression")
    ]
    mean = ((noise + others[0]) / 2 + others[1]) / 2
    assert rows.value("mPC", model=model, at="AP") == pytest.approx(mean)
    assert rows.value("rPC", model=model, at="AP") == pytest.approx(mean / base)


def test_an_evaluation_shows_average_precision_and_its_drops(evaluation: Evaluation) -> None:
    name = evaluation.results.models[0].name
    score = evaluation.score(name, "gaussian_noise")
    assert score.drop == evaluation.number("drop", model=name, group="gaussian_noise", at="AP")
    assert score.get("AP") == evaluation.number("AP", model=name, group="gaussian_noise")
    assert "% AP on base; largest drop" in repr(evaluation) and "AP (%)" in evaluation._repr_html_()
    assert list(evaluation.to_pandas()["drop"]) == [
        score.drop.value for score in evaluation.scores if score.drop
    ]


def test_the_report_begins_with_what_the_detector_loses(evaluation: Evaluation) -> None:
    page = Path(evaluation.files["report"]).read_text()
    sentence = re.search(r'<p class="message">(.*?)</p>', page)
    assert sentence is not None
    assert re.fullmatch(
        r"Your detector loses most under “gaussian noise”: [\d.]+ points of AP \([\d.]+ to [\d.]+\)"
        r" and [\d.]+ points of F1 \([\d.]+ to [\d.]+\)\.",
        sentence[1],
    )
    assert "class average" not in page and "https://" not in page
    assert "12 images, each unchanged and under 3 shifts" in page


def test_objects_stand_beside_the_categories_and_errors_have_their_kinds(
    built: Path, evaluation: Evaluation
) -> None:
    rows = evaluation.results.rows
    name = evaluation.results.models[0].name
    subject = open_objects(open_dataset(built))
    page = Path(evaluation.files["report"]).read_text()
    for index, category in enumerate(NAMES):
        objects = int((subject.truth.category == index).sum())
        ap = rows.value("category_AP", model=name, group="base", class_id=category) or 0.0
        assert rows.value("objects", class_id=category) == objects
        assert re.search(
            rf"{category}</th>\s*<td [^>]*>{objects}</td>\s*<td [^>]*>{100 * ap:.1f} ?<", page
        )
    for group in evaluation.results.groups:
        counts = [int(row.value or 0) for row in rows.where("errors", model=name, group=group.name)]
        cells = "".join(rf"\s*<td [^>]*>{count}</td>" for count in counts)
        assert len(counts) == 6 and re.search(f"{group.name.replace('_', ' ')}</th>{cells}", page)
        curve = [row.value for row in rows.where("precision", model=name, group=group.name)]
        assert len(curve) == 21 and curve == sorted(curve, key=lambda value: -(value or 0.0))
    assert ">Precision and recall</h2>" in page and "those of TIDE (Bolya" in page
    assert re.search(
        r'<a href="#how-each-number-is-computed">\d+ notes? on these numbers</a>', page
    )


def test_a_function_gives_the_same_numbers_as_its_file(built: Path, evaluation: Evaluation) -> None:
    again = measured(built, {"mine": ColourDetector()}, batch_size=5)
    for row in evaluation.results.rows:
        key = {name: getattr(row, name) for name in ("group", "class_id", "against", "at")}
        other = again.results.rows.one(row.measure, model="mine" if row.model else "", **key)
        assert (
            other is not None
            and other.value == pytest.approx(row.value)
            and other.low == pytest.approx(row.low)
        )


def test_a_gate_judges_drops_of_any_measure(built: Path, results_file: Path) -> None:
    lines = [
        "drop(gaussian_noise, AP50) <= 100",
        "AP75(base) >= 99.9",
        "drop(any) <= 0",
        "drop(gaussian_noise@1) <= 90",
    ]
    name = f"predictions:{results_file}"
    evaluation = evaluate(built, name, out=built.parent / "gate", gate=lines)
    gate = evaluation.gate
    assert gate is not None
    verdicts = {(line.line.text, line.group): line.verdict for line in gate.judged}
    assert verdicts["drop(gaussian_noise, AP50) <= 100", "gaussian_noise"] == "pass"
    assert verdicts["AP75(base) >= 99.9", "base"] == "fail"
    assert verdicts["drop(any) <= 0", "gaussian_noise"] == "fail"
    assert verdicts["drop(gaussian_noise@1) <= 90", "gaussian_noise_1"] == "pass"
    assert len(gate.judged) == 6
    for answer in check_worst_images(evaluation, name):
        assert re.fullmatch(r"`f1 [\d.]+, found \d+, missed \d+, false \d+`", answer)


class FromOne(ColourDetector):
    """Count labels from 1, as torchvision does, with names that count from 0 or that begin with the
    background."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.label_names = names

    def __call__(self, images: list[Image.Image]) -> list[dict[str, Any]]:
        return [{**answer, "labels": answer["labels"] + 1} for answer in super().__call__(images)]


def test_labels_beyond_the_names_of_a_function_are_refused(
    built: Path, evaluation: Evaluation
) -> None:
    with pytest.raises(
        UserError, match=r"gives the labels \[2.*, expected a label from 0 to 1: label_names"
    ):
        measured(built, {"mine": FromOne(NAMES)})
    # A name too many hides the mistake: the first category of the dataset has no box.
    models = {"mine": FromOne(("background", *NAMES)), "more": FromOne((*NAMES, "other"))}
    results = measured(built, models).results
    value = evaluation.results.rows.value("AP", model=evaluation.models[0].name, group="base")
    assert results.rows.value("AP", model="mine", group="base") == pytest.approx(value)
    assert "no box has label 0, 'box': if its labels count from 1" in results.models[1].matched


class Blind(ColourDetector):
    def __call__(self, images: list[Image.Image]) -> list[dict[str, Any]]:
        answers = super().__call__(images)
        for answer in answers:
            answer["boxes"] += 1000
        return answers


class SmallBoxes(ColourDetector):
    """Return boxes that are too small, so that AP75 is zero and AP50 is not."""

    def __call__(self, images: list[Image.Image]) -> list[dict[str, Any]]:
        answers = super().__call__(images)
        for answer in answers:
            sides = answer["boxes"][:, 2:] - answer["boxes"][:, :2]
            answer["boxes"][:, 2:] -= np.where(sides > 12, 0.2 * sides, 0.0)
        return answers


def test_a_shift_with_levels_has_its_curve_in_every_output(evaluation: Evaluation) -> None:
    name = evaluation.results.models[0].name
    rows = evaluation.results.rows
    [severity] = evaluation.results.severity
    assert severity.shift == "gaussian_noise" and severity.ats == ("0", "0.2", "1")
    groups = dict(zip(severity.ats, ("base", "gaussian_noise_1", "gaussian_noise"), strict=True))
    frame = evaluation.severity().set_index("level")
    for at, group in groups.items():
        curve = rows.estimate("severity_AP", model=name, group="gaussian_noise", at=at)
        assert (
            curve is not None
            and curve == rows.estimate("AP", model=name, group=group)
            and curve.low is not None
        )
        assert frame.loc[float(at), "AP"] == curve.value
    drops = [
        rows.estimate("severity_drop", model=name, group="gaussian_noise", at=at)
        for at in severity.ats[1:]
    ]
    drawn = rows.estimate("drop", model=name, group="gaussian_noise", at="AP")
    assert drops[1] is not None and drawn is not None and drops[1].value == drawn.value
    limits = [drawn.low, drops[1].low, drops[1].value, drops[1].high, drawn.high]
    assert limits == sorted(limit for limit in limits if limit is not None), (
        "of one level, not of all shifts at once"
    )
    ten = rows.one("severity_ten_points", model=name, group="gaussian_noise")
    assert ten is not None and ten.value is not None and 0 < ten.value < 1
    page = Path(evaluation.files["report"]).read_text()
    assert (
        ">How much is too much</h2>" in page
        and "AP of each model against the level of each shift" in page
    )
    assert (
        "loses ten points: at level" in page and "The level where AP has dropped ten points" in page
    )
    lines = Path(evaluation.files["detection"]).read_text().splitlines()
    assert [line.split(",")[:3][1:] for line in lines[1:4]] == [
        ["base", "0"], ["gaussian_noise_1", "0.2"], ["gaussian_noise", "1"]
    ]  # fmt: skip


def test_two_detectors_are_compared_by_their_drops(built: Path, results_file: Path) -> None:
    models = {"mine": f"predictions:{results_file}", "small": SmallBoxes(), "blind": Blind()}
    result = evaluate(built, models, out=built.parent / "two")
    rows = result.results.rows
    shifts = [group.name for group in result.shifts]
    gaps = rows.where("drop_difference")
    assert [(row.model, row.against, row.group) for row in gaps] == [
        ("mine", "small", shift) for shift in shifts
    ]
    drops = {
        (model, shift): rows.value("drop", model=model, group=shift, at="AP") or 0.0
        for model in ("mine", "small")
        for shift in shifts
    }
    assert [row.value for row in gaps] == pytest.approx(
        [drops["mine", shift] - drops["small", shift] for shift in shifts]
    )
    assert all(
        row.low is not None and row.high is not None and row.low < (row.value or 0) < row.high
        for row in gaps
    )
    page = Path(result.files["report"]).read_text()
    assert ">Detectors compared</h2>" in page
    # A detector that finds nothing on the base has no drops to compare, and no share of the base.
    assert "blind finds next to nothing on the base (AP 0.0 %), so drops say nothing." in page
    assert "blind may have an AP50 under 10 % on the base: its drops mean little" in page
    assert (
        rows.one("rPC", model="blind", at="AP") is None
        and rows.one("rPC", model="mine", at="AP") is not None
    )


def test_a_gate_compares_detectors_with_the_base_with_each_other_and_by_category(
    built: Path, results_file: Path
) -> None:
    lines = [
        "relative_drop(gaussian_noise) <= 10%",
        "worse_than(mine, base) <= 60",
        "worse_than(mine, any, AP75) <= 2",
        "AP(base, class=disk) >= 1",
        "advisory: drop(gaussian_noise, class=box) <= 1",
    ]
    models = {"mine": f"predictions:{results_file}", "other": SmallBoxes()}
    result = evaluate(built, models, out=built.parent / "compared", gate=lines)
    assert result.gate is not None and result.gate.models == ("other",)
    rows = result.results.rows
    judged = result.gate.judged

    def value(model: str, group: str, measure: str = "AP", **key: str) -> float:
        number = rows.value(measure, model=model, group=group, **key)
        assert number is not None
        return number

    groups = ["base", "gaussian_noise_1", "gaussian_noise", "jpeg_compression"]
    base = value("other", "base")
    noise = value("other", "gaussian_noise")
    expected = [
        ("gaussian_noise", (base - noise) / base),
        ("base", value("mine", "base") - base),
        *(
            (group, value("mine", group, "AP75") - value("other", group, "AP75"))
            for group in groups
        ),
        ("base", value("other", "base", "category_AP", class_id="disk")),
        (
            "gaussian_noise",
            value("other", "gaussian_noise", "drop", class_id="box", at="category_AP"),
        ),
    ]
    assert [line.group for line in judged] == [group for group, _ in expected]
    assert [line.estimate.value for line in judged if line.estimate] == pytest.approx(
        [number for _, number in expected]
    )
    assert judged[0].verdict == "undecided" and judged[1].verdict == "pass"
    assert judged[-1].line.advisory and result.gate.exit_code == 4
    for line in judged[:6]:
        assert (
            line.estimate is not None
            and line.estimate.low is not None
            and line.estimate.high is not None
        )
        assert (
            line.estimate.low <= line.estimate.value <= line.estimate.high
            and line.estimate.low < line.estimate.high
        )
    assert judged[6].reason == "there are too few images for an interval", (
        "seven images have a disk"
    )
    wrong = {name: set(result.failures(name)["key"]) for name in ("mine", "other")}
    lost = len(wrong["other"] - wrong["mine"])
    text = result.files["gate"].read_text()
    assert f"{lost} newly wrong and {len(wrong['mine'] - wrong['other'])} newly right" in text
    changes = table_rows(text.partition("#### What changed")[2])
    for group, row in zip(groups, changes, strict=True):
        numbers = [100 * value(name, group) for name in ("mine", "other")]
        assert row[1:3] == [f"{number:.1f}" for number in numbers]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("drop(fog, AP51) <= 5", "there is no measure 'AP51'; did you mean"),
        ("accuracy(base) >= 5", "there is no measure 'accuracy'"),
        ("drop(base) <= 5", "the base has no drop"),
        ("AP(base) <= 5", "AP takes >="),
        ("AP(base, AP50) >= 5", "AP takes one group"),
        (
            "drop(gaussian_nose) <= 5",
            "has no shift or group 'gaussian_nose'; did you mean 'gaussian_noise'",
        ),
        ("AP(base, class=dish) >= 5", "has no class 'dish'; did you mean 'disk'"),
        ("AP50(base, class=disk) >= 5", "only AP is measured by category"),
        (
            "worse_than(main/results.json, any) <= 5",
            "earlier evaluations are for classifiers of one class",
        ),
        ("worse_than(lab:no_such, any) <= 5", "lab:no_such"),
    ],
)
def test_a_line_that_detections_cannot_answer_is_refused(
    line: str, problem: str, built: Path, results_file: Path
) -> None:
    problems = problems_of(measured, built, f"predictions:{results_file}", gate=[line])
    assert problem in problems[0]


def changed(**values: Any) -> Callable[[list[dict[str, Any]]], None]:
    return lambda results: results[0].update(values)


def without_noise(results: list[dict[str, Any]]) -> None:
    results[:] = [result for result in results if result["image_id"] <= 12]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (changed(image_id=999), "detection 0: there is no image '999' in the dataset"),
        (changed(image_id="base_images_999999"), "there is no image"),
        (changed(bbox=[5, 5, -3, 4]), "bbox is"),
        (changed(bbox=[5, 5, 3]), "bbox is"),
        (changed(score="high"), "score is 'high', expected a number"),
        (changed(category_id=9), "the numbers 3, 7 and 9, which have no meaning that explains all"),
        (
            without_noise,
            "has no detection on any image of gaussian_noise_1, gaussian_noise, jpeg_compression",
        ),
    ],
)
def test_a_file_of_predictions_of_another_form_is_refused_in_words(
    change: Callable[[list[dict[str, Any]]], None],
    problem: str,
    built: Path,
    results_file: Path,
    tmp_path: Path,
) -> None:
    results = json.loads(results_file.read_text())
    change(results)
    (tmp_path / "other.json").write_text(json.dumps(results))
    problems = problems_of(measured, built, f"predictions:{tmp_path / 'other.json'}")
    assert problem in "\n".join(problems)


def test_tables_of_detections_are_read_as_results_are(
    built: Path, results_file: Path, tmp_path: Path
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    subject = open_objects(open_dataset(built))
    keys = subject.dataset.keys
    rows = []
    lines = ["file_name;category;score;x;y;width;height"]
    for result in json.loads(results_file.read_text()):
        key = keys[result["image_id"] - 1]
        category = NAMES[IDS.index(result["category_id"])]
        named = {"key": key, "category": category}
        rows.append(named | {"score": result["score"], "bbox": result["bbox"]})
        numbers = [repr(number).replace(".", ",") for number in (result["score"], *result["bbox"])]
        lines.append(";".join([f"{key}.png", category, *numbers]))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("\n".join(lines), "utf-16")
    expected = read_detections(f"predictions:{results_file}", subject, None)
    for name in ("a.parquet", "b.csv"):
        detections = read_detections(f"predictions:{tmp_path / name}", subject, None)
        for column in ("row", "box", "category", "score"):
            np.testing.assert_array_equal(getattr(detections, column), getattr(expected, column))


def test_images_listed_by_their_key_alone_are_answers_without_a_detection(
    built: Path, tmp_path: Path
) -> None:
    keys = open_dataset(built).keys
    lines = ["key,category,score,x,y,width,height", *(f"{key},,,,,," for key in keys)]
    (tmp_path / "nothing.csv").write_text("\n".join(lines))
    (tmp_path / "columns.csv").write_text("picture;category\n" + keys[0] + ";mug\n")
    nothing = measured(built, [f"predictions:{tmp_path / 'nothing.csv'}"])
    values = [row.value for row in nothing.results.rows if row.measure == "AP"]
    assert values == [0.0] * len(nothing.results.groups)
    with pytest.raises(UserError, match="its columns are picture;category: none of key, image_id"):
        measured(built, [f"predictions:{tmp_path / 'columns.csv'}"])


def test_a_hostile_category_acts_nowhere(built: Path, tmp_path: Path) -> None:
    keys = open_dataset(built).keys
    box = {"score": 0.5, "bbox": [1, 1, 9, 9]}
    rows = [{"key": key, "category": name, **box} for key in keys for name in (NAMES[0], HOSTILE)]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    evaluation = evaluate(built, [f"predictions:{tmp_path / 'a.json'}"], out=tmp_path / "out")
    refuse_acting(evaluation, tmp_path / "out", {"report.html", "results.json"})


def test_a_problem_of_all_detections_is_one_line(
    built: Path, results_file: Path, tmp_path: Path
) -> None:
    results = json.loads(results_file.read_text())
    swapped = [{"image_id": 1, "category": "mug", "score": 1, "x1": 9, "y1": 1, "x2": 3, "y2": 8}]
    (tmp_path / "other.json").write_text(
        json.dumps([{**result, "category_id": None} for result in results] + swapped)
    )
    problems = problems_of(measured, built, f"predictions:{tmp_path / 'other.json'}")
    code = " [invalid-detections]"
    lines = [problem.removesuffix(code).partition(": detection ")[2] for problem in problems]
    assert lines == [
        f"0 and {len(results) - 1:,} more: category is 'None', expected a name or a number",
        f"{len(results)}: x1, y1, x2, y2 is '9, 1, 3, 8', expected [x, y, width, height] in pixels",
    ]
    shares = [{**result, "bbox": [side / 1000 for side in result["bbox"]]} for result in results]
    (tmp_path / "other.json").write_text(json.dumps(shares))
    with refuses("invalid-detections", None, "no number of its boxes is above 1"):
        measured(built, f"predictions:{tmp_path / 'other.json'}")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda x, y, w, h: [x, y, x + w, y + h], "leave their image: they are probably corners"),
        (
            lambda *box: [2.5 * side for side in box],
            "leave their image: they are probably pixels of images of another",
        ),
    ],
)
def test_boxes_that_leave_their_images_are_refused(
    change: Callable[..., list[float]],
    problem: str,
    built: Path,
    results_file: Path,
    tmp_path: Path,
) -> None:
    results = json.loads(results_file.read_text())
    changed = [{**result, "bbox": change(*result["bbox"])} for result in results]
    (tmp_path / "changed.json").write_text(json.dumps(changed))
    with pytest.raises(UserError, match=problem):
        measured(built, f"predictions:{tmp_path / 'changed.json'}")


@pytest.mark.parametrize(
    ("change", "form"),
    [
        (
            lambda x, y, w, h: [
                x + w / 2,
                y + h / 2,
                w,
                h,
            ],
            "[centre x, centre y, width, height]",
        ),
        (lambda x, y, w, h: [y, x, h, w], "[y, x, height, width]"),
    ],
)
def test_boxes_that_lie_on_objects_in_another_form_are_refused(
    change: Callable[..., list[float]],
    form: str,
    built: Path,
    results_file: Path,
    tmp_path: Path,
) -> None:
    results = json.loads(results_file.read_text())
    changed = [{**result, "bbox": change(*result["bbox"])} for result in results]
    (tmp_path / "changed.json").write_text(json.dumps(changed))
    with refuses(
        "invalid-detections",
        None,
        "lies on an object in",
        f"read as {form}",
    ):
        measured(built, f"predictions:{tmp_path / 'changed.json'}")


class Sides(ColourDetector):
    """Return [x, y, width, height] where corners are expected."""

    def __call__(self, images: list[Image.Image]) -> list[dict[str, Any]]:
        answers = super().__call__(images)
        for answer in answers:
            answer["boxes"][:, 2:] -= answer["boxes"][:, :2]
        return answers


class OtherOrder(ColourDetector):
    label_names = NAMES[::-1]


def test_boxes_and_labels_of_a_function_in_another_form_are_noted(built: Path) -> None:
    models = {
        "mine": ColourDetector(),
        "sides": Sides(),
        "swapped": OtherOrder(),
    }
    mine, sides, swapped = measured(built, models).models
    assert not mine.matched or not re.search("lies on|labels are", mine.matched)
    assert "read as [x, y, width, height]: they are probably that" in (sides.matched or "")
    assert "labels are probably in another order" in (swapped.matched or "")
    assert re.search("disk on box|box on disk", swapped.matched or "")


def test_boxes_of_smaller_images_are_noted(built: Path, results_file: Path, tmp_path: Path) -> None:
    results = json.loads(results_file.read_text())
    small = [{**result, "bbox": [side / 2 for side in result["bbox"]]} for result in results]
    (tmp_path / "small.json").write_text(json.dumps(small))
    files = [f"predictions:{tmp_path / 'small.json'}", f"predictions:{results_file}"]
    first, second = measured(built, files).models
    assert "they may be pixels of smaller images" in (first.matched or "")
    assert "pixels" not in (second.matched or "") and "leave" not in (second.matched or "")


def test_a_dataset_whose_build_read_corners_as_sides_is_noted(
    tmp_path: Path, evaluation: Evaluation
) -> None:
    """Converters write COCO files that hold corners by mistake."""
    coco_folder(tmp_path / "coco", count=24)
    file = tmp_path / "coco" / "annotations.json"
    document = json.loads(file.read_text())
    for annotation in document["annotations"]:
        x, y, width, height = annotation["bbox"]
        annotation["bbox"] = [x, y, x + width, y + height]
    file.write_text(json.dumps(document))
    init(tmp_path / "coco", tmp_path / "recipe.yaml", device="cpu")
    overrides = [
        "prompts.shifts={}",
        "prompts.shifts={fog: {corruption: fog, severity: 1}}",
        "generator.size=96",
    ]
    build(
        tmp_path / "recipe.yaml", tmp_path / "built", overrides=overrides, device="cpu", workers=1
    )
    notes = measured(tmp_path / "built", {"mine": ColourDetector()}).notes
    assert any(
        "boxes leave their image by far: the build may have read them in another form" in note
        for note in notes
    )
    assert not any("leave" in note for note in evaluation.notes)


def test_repeated_detections_and_images_without_one_are_noted(
    built: Path, results_file: Path, tmp_path: Path
) -> None:
    results = json.loads(results_file.read_text())
    images = sorted({result["image_id"] for result in results})
    few = [result for result in results if result["image_id"] != images[0]]
    (tmp_path / "few.json").write_text(json.dumps([*few, few[0]]))
    [model] = measured(built, f"predictions:{tmp_path / 'few.json'}").models
    silent = len(open_dataset(built).keys) - len(images) + 1
    assert "exact copies of other detections: 1" in (model.matched or "")
    assert f"{silent} of " in (model.matched or "") and "images have no detection" in (
        model.matched or ""
    )


def test_failures_are_listed_and_exported_with_their_boxes(
    built: Path, evaluation: Evaluation
) -> None:
    frame = evaluation.failures()
    assert (
        len(frame)
        and (frame["missed"] + frame["false"] > 0).all()
        and frame["f1"].is_monotonic_increasing
    )
    folder = evaluation.export_failures(built.parent / "exported")
    coco = json.loads((folder / "coco.json").read_text())
    assert {image["key"] for image in coco["images"]} == set(frame["key"])
    dataset = open_dataset(built)
    stored = dict(zip(dataset.keys, open_objects(dataset).objects, strict=True))
    key_of = {image["id"]: image["key"] for image in coco["images"]}
    for image in coco["images"]:
        boxes = [entry["bbox"] for entry in coco["annotations"] if entry["image_id"] == image["id"]]
        expected = stored[image["key"]]
        crowds = expected["iscrowd"]
        assert sorted(boxes) == sorted(
            box for box, crowd in zip(expected["bbox"], crowds, strict=True) if not crowd
        )
    samples = json.loads((folder / "samples.json").read_text())["samples"]
    for sample in samples:
        corners = [box["bounding_box"] for box in sample["ground_truth"]["detections"]]
        assert all(
            x >= 0 and y >= 0 and x + width <= 1.001 and y + height <= 1.001
            for x, y, width, height in corners
        )
    boxes_of = {row.key: row.found + row.false for row in frame.itertuples()}
    counted = Counter(key_of[answer["image_id"]] for answer in coco["answers"])
    assert all(counted[key] == count for key, count in boxes_of.items())


def test_what_only_classifiers_have_is_refused_by_name(built: Path, results_file: Path) -> None:
    given: dict[str, Any] = {"outputs": "all", "workers": 2, "engine": EngineChoice("ray")}
    for name, value in given.items():
        with refuses("unfit-option", "", f"detectors take no {name}"):
            measured(built, f"predictions:{results_file}", **{name: value})


def assert_entries(
    result: Evaluation, entries: list[dict[str, Any]], repo: str, metric: str
) -> None:
    """Each group has an entry with the measure that leads, and notes on its interval and its
    drop."""
    lead = result.results.lead
    model = result.models[0].name
    for entry, group in zip(entries, result.results.groups, strict=True):
        assert entry["dataset"] == {"id": repo, "task_id": group.name}
        number = result.number(lead, model=model, group=group.name)
        assert number is not None and entry["value"] == round(100 * number.value, 3)
        assert entry["notes"].startswith(metric) and f", {group.images} images" in entry["notes"]
        drop = result.number("drop", model=model, group=group.name, at=lead)
        assert (f" {100 * drop.value:.1f} points of " if drop else "images") in entry["notes"]


def test_results_of_detectors_are_stored_in_the_dataset_and_shown_on_its_card(
    built: Path, results_file: Path, tmp_path: Path
) -> None:
    dataset = tmp_path / "built"
    shutil.copytree(built, dataset)
    before = (dataset / "README.md").read_text()
    result = evaluate(
        dataset,
        f"predictions:{results_file}",
        out=tmp_path / "report",
        into_card=True,
        repo="me/boxes",
    )
    assert result.files["card"] == dataset / "evaluation"
    stored = {
        path.relative_to(dataset / "evaluation").as_posix()
        for path in (dataset / "evaluation").rglob("*")
    }
    (entries,) = (dataset / "evaluation" / "eval_results").iterdir()
    assert stored == {
        "results.json",
        "measures.csv",
        "detection.csv",
        "eval_results",
        f"eval_results/{entries.name}",
    }
    assert_entries(
        result,
        yaml.safe_load(entries.read_text()),
        "me/boxes",
        "mAP (COCO, AP@IoU=0.50:0.95) in percent; ",
    )
    card = (dataset / "README.md").read_text()
    # the mark has a hash of its part
    texts = [re.sub(r"this part, \w+:", "", text) for text in (before, card)]
    assert texts[1].startswith(texts[0][: texts[0].index("## Contact sheets")])
    drop = result.number("drop", model=result.models[0].name, group="gaussian_noise", at="AP")
    assert drop is not None and f"\n| `gaussian_noise` | {100 * drop.value:.1f} points (" in card
    assert str(tmp_path) not in card, "no path of this machine"
    assert "How much of a shift" in card and "where a model’s AP has dropped ten points" in card
    croissant = json.loads((dataset / "croissant.json").read_text())
    assert "AP and drops of detectors, measured on these images." in [
        file["description"] for file in croissant["distribution"] if "description" in file
    ]
    assert not verify(dataset, rerender=0).problems
    for words in (
        "Rows are classes",
        "Classes under",
        "Are the labels true",
        "classifier",
        "With timm",
    ):
        assert words not in card, words


def test_the_dataset_is_whole_and_renders_again(built: Path) -> None:
    source = f"source.dataset={built.parent / 'coco'}"
    report = verify(built, rerender=2, overrides=[source])
    assert (
        not report.problems
        and [row.outcome for row in report.rerendered] == ["identical bytes"] * 2
    )


def test_datasets_and_croissant_read_the_stored_boxes(built: Path) -> None:
    subject = open_objects(open_dataset(built))
    stored = {
        key: dict(objects)
        for key, objects in zip(subject.dataset.keys, subject.objects, strict=True)
    }
    table: Any = datasets.load_dataset(str(built), "jpeg_compression", split="test")
    assert table.features["objects"]["category"].feature.names == list(NAMES)
    assert all(row["objects"] == stored[row["key"]] for row in table.remove_columns("image"))
    croissant = mlcroissant.Dataset(jsonld=str(built / "croissant.json"))
    assert not croissant.metadata.ctx.issues.errors
    record = next(iter(croissant.records("base")))
    objects = {name.rpartition("/")[2]: value for name, value in record["base/objects"].items()}
    expected = stored[record["base/key"].decode()]
    assert {name: np.asarray(value).tolist() for name, value in objects.items()} == expected
    assert "- object-detection" in (built / "README.md").read_text()


def test_a_preview_has_the_same_images_in_every_group(
    built: Path, results_file: Path, tmp_path: Path
) -> None:
    some = evaluate(built, [f"predictions:{results_file}"], out=tmp_path, limit=5)
    assert [group.accepted for group in some.groups] == [5] * len(some.groups)
    assert {group.images for group in some.groups} == {5}
    for name in ("report", "failures"):
        assert "A preview of 5 images a shift." in some.files[name].read_text()
    for name in ("measures", "detection"):
        header, first = some.files[name].read_text().splitlines()[:2]
        assert header.endswith(",preview") and first.endswith(",5")
    with refuses("unfit-option", "", "which takes no gate"):
        measured(built, [f"predictions:{results_file}"], limit=5, gate=["AP(base) >= 10"])


def test_too_many_detections_on_an_image_are_refused(
    built: Path, results_file: Path, tmp_path: Path
) -> None:
    entry = json.dumps(json.loads(results_file.read_text())[0])
    (tmp_path / "many.json").write_text(f"[{', '.join([entry] * 100_001)}]")
    with refuses("invalid-detections", None, "has over 100,000 detections on "):
        read_detections(
            f"predictions:{tmp_path}/many.json", open_objects(open_dataset(built)), None
        )


def test_units_of_images_reach_every_interval(built: Path, results_file: Path) -> None:
    subject = open_objects(open_dataset(built))
    assert subject.units is None, "the recipe names none"
    of_videos = replace(subject.dataset, units=Units.of(subject.dataset.indices // 2))
    six_videos = replace(subject, dataset=of_videos)
    detections = read_detections(f"predictions:{results_file}", subject, None)
    by_image, by_video = (measure_model(of, detections, seed=0) for of in (subject, six_videos))
    measures = [scores.scores[0].measures["AP"] for scores in (by_image, by_video)]
    assert measures[0].value == measures[1].value
    assert [number.interval().low is None for number in measures] == [False, True], (
        "six units are too few"
    )
    rows = list(by_video.rows("AP", subject.dataset.groups, subject.images, six_videos.units))
    assert {row.units for row in rows} == {6}
