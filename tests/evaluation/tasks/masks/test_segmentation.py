"""The walk of a person with a segmenter: a folder of images and masks, `build`, answers, the
report."""

from __future__ import annotations

import csv
import html
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
import mlcroissant
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from contrast import faint_texts
from counterfoil.building.build_dataset import build
from counterfoil.dataset.card.sections import lead_drops_of
from counterfoil.dataset.verification import verify
from counterfoil.errors import CounterfoilWarning, UserError
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.evaluation.evaluate_dataset import write_keys
from counterfoil.evaluation.results import Evaluation
from counterfoil.mask_stats import boundary_f1
from counterfoil.recipe.tasks.masks import MasksSource
from support.gate_comments import check_worst_images
from support.masks import COLOURS, NAMES, RECIPE, ColourSegmenter, mask_folder
from support.measured import measured
from support.refusals import problems_of, refuses

if TYPE_CHECKING:
    from playwright.sync_api import Page

GROUPS = ("base", "fog_2", "fog", "gaussian_noise")
IMAGES = 14


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("masks")
    mask_folder(folder / "patches", IMAGES)
    (folder / "recipe.yaml").write_text(RECIPE.format(folder=folder / "patches"))
    build(folder / "recipe.yaml", folder / "built", device="cpu", workers=1)
    return folder / "built"


def answered(key: str, encoded: bytes | None) -> np.ndarray:
    """Return the answer of the nearest colour, which takes noise for a class that is not there."""
    return ColourSegmenter()([Image.open(io.BytesIO(encoded or b""))])[0].astype(np.uint8)


@pytest.fixture(scope="module")
def answers(built: Path) -> Path:
    """Write answers as another program does: a PNG for each key."""
    folder = built.parent / "answers"
    folder.mkdir()
    for key, encoded in open_dataset(built).images():
        Image.fromarray(answered(key, encoded)).save(folder / f"{key}.png")
    return folder


@pytest.fixture(scope="module")
def evaluation(built: Path, answers: Path) -> Evaluation:
    lines = ["drop(fog, IoU, class=box) <= 5", "mIoU(base) >= 80", "drop(any, mIoU) <= 90"]
    lines += ["boundary_F1(base, class=box) >= 70", "drop(fog, boundary_F1) <= 5"]
    return evaluate(
        built, [f"predictions:{answers}"], out=built.parent / "report", gate=lines, into_card=True
    )


def stored(built: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return key → (image, mask), as `load_dataset` reads them."""
    rows: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for split in datasets.load_dataset(str(built)).values():
        for row in split.to_iterable_dataset():
            rows[row["key"]] = np.asarray(row["image"]), np.asarray(row["mask"])
    return rows


def test_masks_lie_beside_images_resized_to_the_nearest_pixel(built: Path) -> None:
    rows = stored(built)
    assert len(rows) == IMAGES * len(GROUPS)
    source = [
        np.asarray(Image.open(path))
        for path in sorted((built.parent / "patches" / "masks").iterdir())
    ]
    expected = {
        np.asarray(Image.fromarray(mask).resize((64, 48), Image.Resampling.NEAREST)).tobytes()
        for mask in source
    }
    for key, (image, mask) in rows.items():
        assert image.shape == (48, 64, 3) and mask.shape == (48, 64)
        assert mask.tobytes() in expected
        assert (mask == rows[f"base_{key[-13:]}"][1]).all()
    assert verify(built).problems == ()


def test_numbers_equal_a_plain_loop(built: Path, answers: Path, evaluation: Evaluation) -> None:
    rows = evaluation.results.rows
    model = evaluation.results.models[0].name
    of_group: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for key, (_, mask) in stored(built).items():
        answer = np.asarray(Image.open(answers / f"{key}.png"))
        of_group.setdefault(key.rsplit("_images_")[0], []).append((mask, answer))
    assert set(of_group) == set(GROUPS)
    for group, pairs in of_group.items():
        iou = []
        recall = []
        right = known = 0
        of_images = np.array([boundary_f1(mask, answer, len(NAMES)) for mask, answer in pairs])
        boundary = np.nanmean(of_images, axis=0)
        for label, name in enumerate(NAMES):
            both = sum(int(((mask == label) & (answer == label)).sum()) for mask, answer in pairs)
            true = sum(int((mask == label).sum()) for mask, _ in pairs)
            given = sum(int(((mask != 255) & (answer == label)).sum()) for mask, answer in pairs)
            iou.append(both / (true + given - both))
            recall.append(both / true)
            right += both
            known += true
            key = {"model": model, "group": group, "class_id": name}
            assert rows.value("IoU", **key) == pytest.approx(iou[-1], abs=1e-9)
            assert rows.value("recall", **key) == pytest.approx(recall[-1], abs=1e-9)
            assert rows.value("boundary_F1", **key) == pytest.approx(boundary[label], abs=1e-9)
        key = {"model": model, "group": group}
        for measure, value in (
            ("mIoU", np.mean(iou)),
            ("pixel_accuracy", right / known),
            ("mean_accuracy", np.mean(recall)),
            ("boundary_F1", np.mean(boundary)),
        ):
            number = rows.one(measure, **key)
            assert number is not None and number.value == pytest.approx(value, abs=1e-9)
            assert number.low is not None and number.high is not None
            assert number.low <= number.value <= number.high and number.low < number.high
            if group != "base":
                drop = rows.value("drop", at=measure, **key)
                base = rows.value(measure, model=model, group="base")
                assert drop == pytest.approx((base or 0) - number.value, abs=1e-9)
    assert evaluation.results.lead == "mIoU"
    assert evaluation.results.severity[0].shift == "fog"


def test_a_gate_names_classes_and_measures(evaluation: Evaluation, built: Path) -> None:
    gate = evaluation.gate
    assert gate is not None
    answers = {(judged.line.text, judged.group): judged.verdict for judged in gate.judged}
    assert answers["drop(fog, IoU, class=box) <= 5", "fog"] == "fail"
    assert answers["mIoU(base) >= 80", "base"] == "pass"
    assert answers["boundary_F1(base, class=box) >= 70", "base"] == "pass"
    assert answers["drop(fog, boundary_F1) <= 5", "fog"] == "fail"
    lines = [
        "IoU(fog) >= 5",
        "drop(fog, pixel_accuracy, class=box) <= 5",
        "IoU(fog, class=tree) >= 5",
    ]
    with pytest.raises(UserError) as caught:
        measured(built, {"mine": ColourSegmenter()}, gate=lines)
    problems = "\n".join(caught.value.problems)
    assert "IoU is of one class: name it" in problems
    assert "pixel_accuracy is of all classes together" in problems and "no class 'tree'" in problems


def test_a_comment_shows_the_images_of_lowest_iou(built: Path, tmp_path: Path) -> None:
    for key, encoded in open_dataset(built).images():
        empty = np.zeros_like(answered(key, encoded))
        Image.fromarray(empty).save(tmp_path / f"{key}.png")
    name = f"predictions:{tmp_path}"
    evaluation = evaluate(built, name, out=tmp_path / "report", gate=["mIoU(base) >= 80"])
    for answer in check_worst_images(evaluation, name):
        assert answer.startswith("`iou 0.") and ", pixel accuracy 0." in answer


def test_every_file_has_the_numbers(evaluation: Evaluation, built: Path) -> None:
    document = json.loads((built.parent / "report" / "results.json").read_text())
    assert {"mIoU", "pixel_accuracy"} <= {row["measure"] for row in document["rows"]}
    assert "\nIoU," in Path(evaluation.files["measures"]).read_text()
    with Path(evaluation.files["segmentation"]).open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(GROUPS) * (1 + len(NAMES))
    assert lines[0]["class"] == "" and float(lines[0]["mIoU"]) > 99
    predictions = pq.read_table(evaluation.files["predictions"]).to_pylist()
    assert len(predictions) == IMAGES * len(GROUPS)
    assert {tuple(row["classes"]) for row in predictions} == {("ground", "box"), NAMES}
    report = Path(evaluation.files["report"]).read_text()
    assert "Robustness of segmenters" in report and "Class by class" in report
    assert "Worst images" not in evaluation.files["gate"].read_text()  # every IoU is high
    frame = evaluation.failures()
    assert (frame["iou"] < 0.5).all() and list(frame["iou"]) == sorted(frame["iou"])
    folder = evaluation.export_failures(built.parent / "exported")
    coco = json.loads((Path(folder) / "coco.json").read_text())
    assert len(coco["images"]) == len(frame["key"].unique())


def test_card_and_croissant_say_masks(evaluation: Evaluation, built: Path) -> None:
    card = (built / "README.md").read_text()
    assert "semantic-segmentation" in card and "Numbers: 0 ground, 1 box, 2 sign." in card
    assert "mIoU" in card and "segmentation.csv" in card and "mAP" not in card
    rows = mlcroissant.Dataset(built / "croissant.json").records("default")
    first = next(iter(rows))
    assert first["default/mask"].size == first["default/image"].size
    assert verify(built).problems == ()


class Twice(torch.nn.Module):
    """Scores of the nearest colour at half the size, as many segmenters give them."""

    label_names = ("sky", *reversed(NAMES))

    def __init__(self) -> None:
        super().__init__()
        self.colours = torch.nn.Parameter(torch.from_numpy(COLOURS[:3].astype(np.float32)))

    def forward(self, batch: torch.Tensor) -> dict[str, torch.Tensor]:
        colours = self.colours.flip(0)[None, :, :, None, None]
        scores = -(batch[:, None] - colours).square().sum(dim=2)
        sky = torch.full_like(scores[:, :1], -1e9)
        return {"out": torch.cat([sky, scores], dim=1)[:, :, ::2, ::2]}


def to_tensor(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image, np.float32)).permute(2, 0, 1)


def test_functions_and_modules_answer_as_files_do(built: Path, evaluation: Evaluation) -> None:
    def scores(images: list[Any]) -> list[np.ndarray]:
        return [ColourSegmenter().scores(image) for image in images]

    module = Twice()
    models = {"function": ColourSegmenter(), "scores": scores, "module": module}
    order = {"scores": "position"}
    result = measured(built, models, transform={"module": to_tensor}, class_order=order)
    of_files = evaluation.results.models[0].name
    for group in GROUPS:
        expected = evaluation.results.rows.value("mIoU", model=of_files, group=group)
        for name in ("function", "scores"):
            value = result.results.rows.value("mIoU", model=name, group=group)
            assert value == pytest.approx(expected, abs=1e-12)
    # its scores are interpolated as a processor of transformers does
    key = {"model": "module", "group": "base"}
    hits = np.zeros(3)
    either = np.zeros(3)
    for name, (image, mask) in stored(built).items():
        if name.startswith("base"):
            logits = module(to_tensor(Image.fromarray(image))[None])["out"].detach()
            large = torch.nn.functional.interpolate(
                logits, size=mask.shape, mode="bilinear", align_corners=False
            )
            answer = 3 - large[0].argmax(dim=0).numpy()
            for label in range(3):
                hits[label] += ((answer == label) & (mask == label)).sum()
                either[label] += (((answer == label) & (mask != 255)) | (mask == label)).sum()
    assert result.results.rows.value("mIoU", **key) == pytest.approx(np.mean(hits / either))
    assert module.training
    differences = result.results.rows.where("drop_difference")
    assert {(row.model, row.against) for row in differences} >= {("function", "module")}
    with refuses("unusable-model", None, "a torch module needs a transform"):
        measured(built, {"module": module})


def test_units_and_previews(built: Path) -> None:
    preview = measured(built, {"mine": ColourSegmenter()}, limit=5)
    assert preview.results.preview == 5
    number = preview.results.rows.one("mIoU", model="mine", group="base")
    assert number is not None and number.n == 5 and number.low is None
    # classes are judged by their values, so one image has drops too
    single = measured(built, {"mine": ColourSegmenter()}, limit=1)
    assert not single.results.models[0].near_chance
    assert single.results.rows.value("drop", at="mIoU", model="mine", group="fog") is not None


def test_segmenters_are_compared_over_the_classes_that_both_know(built: Path) -> None:
    def without_signs(images: list[Any]) -> list[np.ndarray]:
        return [np.where(answer == 2, 0, answer) for answer in ColourSegmenter()(images)]

    models = {"mine": ColourSegmenter(), "blind": without_signs}
    order = {"blind": "position"}
    rows = measured(built, models, class_order=order).results.rows
    (difference,) = rows.where("drop_difference", group="fog")
    drops = []
    for name in (difference.model, difference.against):
        of_classes = []
        for label in ("ground", "box"):
            key = {"at": "IoU", "model": name, "group": "fog", "class_id": label}
            of_classes.append(rows.value("drop", **key) or 0.0)
        drops.append(np.mean(of_classes))
    assert difference.value == pytest.approx(drops[0] - drops[1], abs=1e-9)
    assert "2 of 3 classes" in difference.note


def test_keys_are_listed(built: Path, tmp_path: Path) -> None:
    count = write_keys(built, tmp_path / "keys.csv")
    lines = (tmp_path / "keys.csv").read_text().splitlines()
    assert count == len(lines) - 1 == IMAGES * len(GROUPS) and lines[0] == "key,file_name,shift"


def test_a_model_that_guesses_has_no_drop(built: Path, tmp_path: Path) -> None:
    def guess(images: list[Any]) -> list[np.ndarray]:
        return [np.zeros((4, 4), int) for _ in images]

    result = evaluate(
        built, {"mine": guess}, class_order={"mine": "position"}, out=tmp_path / "report"
    )
    assert result.results.models[0].near_chance
    drops = result.results.rows.where("drop", at="mIoU")
    assert not [drop for drop in drops if drop.value is not None and math.isfinite(drop.value)]
    assert "is near chance on the base for every class" in Path(result.files["report"]).read_text()


@pytest.mark.parametrize("order", [(255, 1, 2), (1, 2, 0), (0, 2, 1)])
def test_another_order_of_numbers_is_reported(
    built: Path, tmp_path: Path, order: tuple[int, ...]
) -> None:
    """As where 255 is a class in black and white masks, or where numbers begin at 1."""

    def segment(images: list[Any]) -> list[np.ndarray]:
        return [np.array(order)[answer] for answer in ColourSegmenter()(images)]

    names = [*NAMES, "no class"]
    with pytest.warns(CounterfoilWarning, match="look to be in another order") as caught:
        result = evaluate(
            built, {"mine": segment}, class_order={"mine": "position"}, out=tmp_path / "report"
        )
    (warning,) = [str(each.message) for each in caught]
    for label, number in enumerate(order):
        sentence = f"{names[min(number, 3)]} is where {names[label]} is"
        assert (sentence in warning) == (number != label)
    assert warning in html.unescape(Path(result.files["report"]).read_text(encoding="utf-8"))
    section = lead_drops_of(result.results, MasksSource())
    assert any(sentence.rstrip(".") in warning for sentence in section.warnings)


def test_answers_in_the_numbers_of_the_dataset_are_in_no_other_order(
    evaluation: Evaluation,
) -> None:
    assert [model.likely_order for model in evaluation.results.models] == [""]


ANSWERS: dict[str, tuple[Any, str]] = {
    "floats": (lambda image: np.zeros(image.size[::-1]), "has the shape"),
    "more classes": (lambda image: np.zeros((5, 4, 4)), "has the shape [5, 4, 4]"),
    "a class beyond": (lambda image: np.full((4, 4), 3), "the class 3, expected 0 to 2"),
    "below": (lambda image: np.full((4, 4), -1), "the class -1, expected 0 to 2"),
    "not finite": (lambda image: np.full((3, 4, 4), np.nan), "scores that are not finite"),
    "width first": (lambda image: np.zeros(image.size, int), "has the sides [64, 48]"),
    "scores with width first": (
        lambda image: np.zeros((3, *image.size)),
        "its image [48, 64], its height and width",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_of_another_form_are_refused(built: Path, name: str) -> None:
    answer, problem = ANSWERS[name]

    def segment(images: list[Any]) -> list[Any]:
        return [answer(image) for image in images]

    problems = problems_of(measured, built, {"mine": segment}, class_order="position")
    assert problem in "\n".join(problems)


def copied(answers: Path, target: Path) -> Path:
    target.mkdir()
    for path in answers.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


FILES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "missing": (Path.unlink, "has no mask of 1 image"),
    "another size": (
        lambda path: Image.fromarray(np.zeros((4, 4), np.uint8)).save(path),
        "it has 4×4 pixels, and its image 64×48",
    ),
    "16 bits": (
        lambda path: Image.fromarray(np.full((48, 64), 256, np.uint16)).save(path),
        "it has the number 256, expected at most 255",
    ),
    "colours": (lambda path: Image.new("RGB", (64, 48)).save(path), "the channels RGB"),
    "a JPEG": (
        lambda path: Image.new("L", (64, 48)).save(path, "JPEG"),
        "it is JPEG, expected PNG",
    ),
    "no picture": (lambda path: path.write_bytes(b"no"), "UnidentifiedImageError"),
    "a class beyond": (
        lambda path: Image.fromarray(np.full((48, 64), 9, np.uint8)).save(path),
        "the class 9, expected 0 to 2, or 255",
    ),
    "a link": (
        lambda path: (path.unlink(), path.symlink_to(path.parent / "fog_images_000002.png")),
        "has no mask of 1 image",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_folder_with_an_unfit_file_is_refused(
    built: Path, answers: Path, tmp_path: Path, name: str
) -> None:
    folder = copied(answers, tmp_path / "copy")
    change, problem = FILES[name]
    change(folder / "fog_images_000001.png")
    problems = problems_of(measured, built, [f"predictions:{folder}"])
    assert problem in "\n".join(problems)
    assert "fog_images_000001" in "\n".join(problems)


def test_two_masks_of_an_image_are_refused(built: Path, answers: Path, tmp_path: Path) -> None:
    """As where a folder has the answers of two models, or masks in colours beside them."""
    for model in ("first", "second"):
        copied(answers, tmp_path / model)
    with refuses(
        "invalid-masks",
        None,
        "has two masks of",
        "first/base_",
        "second/base_",
    ):
        measured(built, [f"predictions:{tmp_path}"])
    (tmp_path / "first" / "another.png").write_bytes(b"no")
    for path in (tmp_path / "second").iterdir():
        path.rename(path.with_stem("another"))
    measured(built, [f"predictions:{tmp_path}"])


def table_of(folder: Path, file: Path, **changes: Any) -> Path:
    """Write the masks of a folder as a table; changes: the columns of its rows by name."""
    paths = sorted(folder.iterdir(), reverse=True)
    columns: dict[str, Any] = {"key": [path.stem for path in paths]}
    columns["mask"] = [path.read_bytes() for path in paths]
    pq.write_table(pa.table(columns | changes), file, row_group_size=5)
    return file


@pytest.mark.parametrize("form", ["bytes", "image", "names"])
def test_a_table_has_the_numbers_of_a_folder(
    built: Path, answers: Path, evaluation: Evaluation, tmp_path: Path, form: str
) -> None:
    file = tmp_path / "answers.parquet"
    table_of(answers, file)
    if form == "image":
        rows = pq.read_table(file).to_pylist()
        cells = [row | {"mask": {"bytes": row["mask"], "path": None}} for row in rows]
        features = datasets.Features({"key": datasets.Value("string"), "mask": datasets.Image()})
        datasets.Dataset.from_list(cells, features=features).to_parquet(file)
    elif form == "names":
        names = [f"out/{path.name}" for path in sorted(answers.iterdir(), reverse=True)]
        table_of(answers, file, key=names)
    scored = measured(built, [f"predictions:{file}"])
    assert scored.models[0].sha256 == evaluation.models[0].sha256
    for before, now in zip(evaluation.results.rows, scored.results.rows, strict=True):
        assert (now.measure, now.value) == (before.measure, before.value)


def test_an_unfit_table_is_refused(built: Path, answers: Path, tmp_path: Path) -> None:
    def written(**changes: Any) -> Path:
        return table_of(answers, tmp_path / "answers.parquet", **changes)

    keys = [path.stem for path in sorted(answers.iterdir(), reverse=True)]
    masks = [path.read_bytes() for path in sorted(answers.iterdir(), reverse=True)]
    for changes, problem in (
        ({"key": [f"x{keys[0]}", *keys[1:]]}, "there is no image"),
        ({"key": [keys[1], *keys[1:]]}, "it has two masks of"),
        ({"mask": [None, *masks[1:]]}, "it is empty"),
        ({"mask": [b"no", *masks[1:]]}, "UnidentifiedImageError"),
        ({"mask": ["no"] * len(keys)}, "has the column 'mask' of string, expected encoded images"),
        ({"mask": pa.array([{"path": "a.png"}] * len(keys))}, "expected encoded images"),
    ):
        with pytest.raises(UserError) as caught:
            measured(built, [f"predictions:{written(**changes)}"])
        assert problem in "\n".join(caught.value.problems)
    short = pq.read_table(written()).slice(1)
    pq.write_table(short, tmp_path / "short.parquet")
    (tmp_path / "answers.csv").write_text("key,mask\n")
    (tmp_path / "odd.parquet").write_bytes(b"PAR1")
    for file, problem in (
        ("short.parquet", "has no mask of 1 image"),
        ("answers.csv", "is no Parquet file"),
        ("odd.parquet", "cannot be read: Parquet file size is 4 bytes"),
    ):
        with pytest.raises(UserError, match=problem):
            measured(built, [f"predictions:{tmp_path / file}"])


def test_models_that_are_nothing_are_refused(built: Path) -> None:
    for models, problem in (
        ([], "no segmenter was named"),
        (["predictions:./nowhere"], "is neither a folder nor a file"),
        (["resnet18"], "there is no kind of segmenter"),
        ({"mine": lambda images: images}, "does not say what its classes are called"),
    ):
        with pytest.raises(UserError, match=problem):
            measured(built, models)


def test_the_page_of_failures(evaluation: Evaluation, open_page: Callable[..., Page]) -> None:
    page = open_page(Path(evaluation.files["failures"]))
    page.wait_for_selector(".tile img")
    assert page.locator(".tile").count() > IMAGES
    assert faint_texts(page) == []
    page.select_option("#class", label=page.locator("#class option").nth(1).inner_text())
    assert page.locator(".tile").count() > 0
    page.locator(".tile").first.click()
    assert page.locator("#zoom figure img").count() == 2
    width = page.locator("#zoom figure img").first.evaluate("image => image.naturalWidth")
    assert width == 4 * 64 + 3 * 4
