"""Keep rules that ask models: answers are those of plain calls, and stay for every later cut."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torchvision.ops import nms
from transformers import (
    AutoModelForImageTextToText,
    AutoModelForZeroShotObjectDetection,
    AutoProcessor,
)

import tiny_captioners
from chat_server import KEY, ChatServer, chat_server, refused, said
from counterfoil.building.asked_models import detected_objects
from counterfoil.building.regenerate_dataset import regenerate
from counterfoil.dataset.verification import verify
from counterfoil.errors import RunFailure, UserError
from counterfoil.recipe import load_recipe
from counterfoil.reviewing.calibrate_dataset import calibrate
from counterfoil.reviewing.recut_dataset import recut
from counterfoil.store.manifest import write_manifest
from counterfoil.store.reading import read_receipts, read_shard
from counterfoil.store.receipts import write_receipt
from counterfoil.store.rows import TableForm
from tiny_builds import published, tiny
from tiny_text_detectors import save_text_detector

CUTS = "screen: {{keep: [thresholds, {{question: {{model: {model}, ask_shift: 'Is it {{shift}} ?'{more}}}}}]}}\n"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        words = "yes no Is there picture ? Please answer or t shirt".split()  # noqa: SIM905
        patch.setattr(tiny_captioners, "WORDS", [*tiny_captioners.WORDS, *words])
        tiny_captioners.llava(root / "llava")
    save_text_detector("owlv2", root / "owl")
    return root


def rules(models: Path) -> tuple[str, ...]:
    question = f"{{question: {{model: 'transformers:{models / 'llava'}', ask_shift: 'Is it {{shift}} ?'}}}}"
    detected = f"{{detected: {{model: 'transformers:{models / 'owl'}', confidence_at_least: 0.1}}}}"
    return (
        f"screen.keep=[thresholds, {question}]",
        f"prompts.shifts.red.keep=[thresholds, {question}, {detected}]",
        "screen.keep_rejected=true",
        "prompts.shifts.pencil_sketch=null",
    )


@pytest.fixture(scope="module")
def dataset(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("asked") / "dataset"
    tiny(out, *rules(models))
    return out


def rows_of(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of candidates, each with its image."""
    form = TableForm.of(load_recipe(directory))
    for receipt in read_receipts(directory):
        images = {}
        for what in ("data", "rejected"):
            for row in read_shard(directory, receipt, ["key", "image"], what):
                images[row["key"]] = row["image"]["bytes"]
        columns = ["key", "shift", "label", "reason", *form.added]
        for row in read_shard(directory, receipt, columns, "candidates", form):
            yield row | {"image": Image.open(io.BytesIO(images[row["key"]])).convert("RGB")}


@cache
def loaded(kind: Any, folder: Path) -> tuple[Any, Any]:
    return AutoProcessor.from_pretrained(folder), kind.from_pretrained(folder).eval()


def plain_yes(folder: Path, image: Image.Image, question: str) -> float:
    """Return the softmax of the first token's scores over yes and no, by transformers alone."""
    processor, model = loaded(AutoModelForImageTextToText, folder)
    content = [{"type": "image", "image": image}, {"type": "text", "text": question}]
    inputs = processor.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=True,
        return_dict=True, return_tensors="pt",
    )  # fmt: skip
    ids = processor.tokenizer.convert_tokens_to_ids(["yes", "no"])
    with torch.inference_mode():
        scores = model(**inputs).logits[0, -1, ids].double()
    return float(torch.softmax(scores, dim=-1)[0])


def plain_objects(folder: Path, image: Image.Image, text: str) -> tuple[list[float], list[float]]:
    """Return the confidences and areas of objects, by transformers and torchvision alone."""
    processor, model = loaded(AutoModelForZeroShotObjectDetection, folder)
    inputs = processor(text=[[text]], images=image, return_tensors="pt")
    with torch.inference_mode():
        outputs = model(**inputs)
    (detections,) = processor.post_process_grounded_object_detection(
        outputs, threshold=0.05, target_sizes=[image.size[::-1]]
    )
    kept = nms(detections["boxes"], detections["scores"], 0.5)
    areas = []
    for left, top, right, bottom in detections["boxes"][kept].tolist():
        width = min(right, image.width) - max(left, 0)
        height = min(bottom, image.height) - max(top, 0)
        areas.append(max(width, 0) * max(height, 0) / (image.width * image.height))
    return detections["scores"][kept].tolist()[:20], areas[:20]


def test_answers_are_those_of_plain_calls_on_the_stored_images(dataset: Path, models: Path) -> None:
    recipe = load_recipe(dataset)
    shifts = {shift.name: shift for shift in recipe.all_shifts()}
    answers = set()
    for row in rows_of(dataset):
        name = recipe.classes[row["label"]].name
        how = " Please answer yes or no."
        question = f"Is there a {name} in this picture?{how}"
        expected = plain_yes(models / "llava", row["image"], question)
        assert row["question_yes"] == pytest.approx(expected, abs=1e-6)
        answers.add(row["question_yes"])
        caption = shifts[row["shift"]].caption
        if caption is None:
            assert row["shift"] == "base" and row["question_shift_yes"] is None
        else:
            expected = plain_yes(models / "llava", row["image"], f"Is it {caption} ?{how}")
            assert row["question_shift_yes"] == pytest.approx(expected, abs=1e-6)
        if row["shift"] != "red":
            assert row["detected_confidences"] is None and row["detected_areas"] is None
            continue
        confidences, areas = plain_objects(models / "owl", row["image"], f"a photo of a {name}")
        assert row["detected_confidences"] == pytest.approx(confidences, abs=1e-6)
        assert row["detected_areas"] == pytest.approx(areas, abs=1e-6)
    assert len(answers) > 6
    assert verify(dataset).problems == ()


def test_the_card_and_the_lock_name_models_and_what_they_were_asked(
    dataset: Path, models: Path
) -> None:
    card = (dataset / "README.md").read_text()
    assert "`transformers:./llava`: `Is there a {class} in this picture?`" in card
    assert "`transformers:./owl`: `a photo of a {class}`" in card
    pins = json.loads((dataset / "lock.json").read_text())["inputs"]["asked"]
    assert set(pins) == {"transformers:./llava", "transformers:./owl"}
    assert all(len(pin["sha256"]) == 64 for pin in pins.values())
    for content in published(dataset).values():
        assert str(models).encode() not in content


def cut(dataset: Path, to: Path, text: str) -> Counter[str]:
    (to.with_suffix(".yaml")).write_text(text)
    recut(dataset, to.with_suffix(".yaml"), to)
    assert verify(to).problems == ()
    return Counter(row["reason"] for row in rows_of(to))


def test_every_limit_is_a_cut(dataset: Path, models: Path, tmp_path: Path) -> None:
    rows = list(rows_of(dataset))
    limit = float(np.median([row["question_yes"] for row in rows]))
    shifted = [row["question_shift_yes"] for row in rows if row["shift"] != "base"]
    of_shift = float(np.median(shifted))
    model = f"transformers:{models / 'llava'}"
    more = f", yes_at_least: {limit!r}, shift_yes_at_least: {of_shift!r}"
    text = f"{CUTS.format(model=model, more=more)}prompts: {{shifts: {{red: {{keep: null}}}}}}\n"
    reasons = cut(dataset, tmp_path / "cut", text)
    expected: Counter[str] = Counter()
    for row in rows:
        shift = row["question_shift_yes"]
        if row["question_yes"] < np.float32(limit):
            expected["answered_no"] += 1
        elif shift is not None and shift < np.float32(of_shift):
            expected["shift_answered_no"] += 1
        else:
            expected["accepted"] += 1
    assert reasons == expected and len(reasons) == 3


def test_limits_of_detections_are_a_cut(dataset: Path, models: Path, tmp_path: Path) -> None:
    red = [row for row in rows_of(dataset) if row["shift"] == "red"]
    model = f"transformers:{models / 'owl'}"
    counts = [int((np.array(row["detected_confidences"]) >= np.float32(0.2)).sum()) for row in red]
    most = min(count for count in counts if count)
    limits = f"confidence_at_least: 0.2, count_at_most: {most}"
    text = (
        f"prompts: {{shifts: {{red: {{keep: [{{detected: {{model: '{model}', {limits}}}}}]}}}}}}\n"
    )
    reasons = cut(dataset, tmp_path / "cut", text)
    assert reasons["not_detected"] == counts.count(0)
    assert reasons["too_many"] == sum(count > most for count in counts) > 0


@pytest.mark.parametrize(("change", "says"), [
    ("{question: {model: %s, ask: 'Is a {class} here ?'}}", "was not asked 'Is a {class} here ?' of the images"),
    ("{question: {model: 'transformers:./other'}}", "transformers:./other was not asked"),
    ("{detected: {model: 'transformers:./owl'}}", "was not asked 'a photo of a {class}' of the images of base,"),
])  # fmt: skip
def test_what_nobody_asked_is_no_cut(
    dataset: Path, models: Path, tmp_path: Path, change: str, says: str
) -> None:
    rule = change.replace("%s", f"'transformers:{models / 'llava'}'")
    (tmp_path / "cut.yaml").write_text(f"screen: {{keep: [thresholds, {rule}]}}\n")
    with pytest.raises(UserError) as refused_cut:
        recut(dataset, tmp_path / "cut.yaml", tmp_path / "out")
    assert says in str(refused_cut.value)
    assert not (tmp_path / "out").exists()


DAMAGED: dict[str, tuple[str, Any, str]] = {
    "above 1": ("question_yes", 1.5, "expected from 0 to 1"),
    "no number": ("question_yes", float("nan"), "expected from 0 to 1"),
    "gone": ("question_yes", None, "expected the model's answer"),
    "of another rule": ("detected_areas", [0.5], "expected none"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_verify_finds_answers_that_no_model_gives(dataset: Path, tmp_path: Path, case: str) -> None:
    column, value, says = DAMAGED[case]
    copy = Path(shutil.copytree(dataset, tmp_path / "copy"))
    receipt = next(each for each in read_receipts(copy) if each.group == "in_the_snow")
    old = receipt.file("candidates")
    assert old is not None
    table = pq.read_table(copy / old.path)
    index = table.schema.get_field_index(column)
    field = table.schema.field(index)
    values = [value, *table[column].to_pylist()[1:]]
    pq.write_table(table.set_column(index, field, pa.array(values, field.type)), copy / old.path)
    content = (copy / old.path).read_bytes()
    new = replace(old, size=len(content), sha256=hashlib.sha256(content).hexdigest())
    files = tuple({file.path: file for file in (*receipt.files, new)}.values())
    # Receipt and manifest say that all is well.
    write_receipt(copy, replace(receipt, files=files))
    write_manifest(copy, {})
    problems = "\n".join(map(str, verify(copy).problems))
    assert f"{column} is " in problems and says in problems


def test_calibrate_shows_answers_beside_clips_scores(dataset: Path, tmp_path: Path) -> None:
    result = calibrate(dataset, page=tmp_path / "page.html")
    page = result.page.read_text()
    for shift in ("base", "in_the_snow", "red"):
        start = page.index(f'id="answered-{shift}"')
        section = page[start : page.index("</section>", start)]
        titles = ["Object score of CLIP", "Probability of yes to the question about the object"]
        if shift != "base":
            titles.append("Probability of yes to the question about the shift")
        if shift == "red":
            titles.append("Confidence of each object")
        for title in titles:
            assert f"<h4>{title}" in section
        assert section.count("<svg") == len(titles)
        assert section.count("6 of 6 pass") >= 2
        assert "<figure>" in section


def test_objects_are_boxes_that_no_better_box_covers() -> None:
    boxes = torch.tensor([[0, 0, 10, 10], [0, 0, 10, 9], [-5, 12, 5, 30], [8, 8, 9, 9]]).float()
    objects = detected_objects(boxes, torch.tensor([0.5, 0.9, 0.2, 0.3]), (20, 20))
    assert objects["detected_confidences"] == pytest.approx([0.9, 0.3, 0.2])
    assert objects["detected_areas"] == pytest.approx([90 / 400, 1 / 400, 40 / 400])


# A server: asked once, one image a call, and survived whatever it answers.


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return tmp_path / "cache"


SMALL = (
    "prompts.shifts.in_the_snow=null", "prompts.shifts.pencil_sketch=null", "samples.candidates=1",
    "screen.keep_rejected=true",
)  # fmt: skip


def served(out: Path, server: ChatServer, more: str = "") -> None:
    rule = f"{{question: {{model: some/judge, base_url: '{server.address}'{more}}}}}"
    tiny(out, *SMALL, f"screen.keep=[thresholds, {rule}]")


def test_a_server_is_asked_once_about_each_image(cached: Path, tmp_path: Path) -> None:
    answers = iter(["yes", "No.", "maybe", "yes", "no", "YES"])
    with chat_server(lambda _: said(next(answers))) as server:
        served(tmp_path / "first", server, ", yes_at_least: 0.5")
        served(tmp_path / "again", server, ", yes_at_least: 0.5")
    assert len(server.requests) == 6
    assert published(tmp_path / "first") == published(tmp_path / "again")
    assert [row["question_yes"] for row in rows_of(tmp_path / "first")] == [1, 0, 0, 1, 0, 1]
    for content in published(tmp_path / "first").values():
        assert KEY.encode() not in content and server.address.encode() not in content
    assert all(request["model"] == "some/judge" for request in server.requests)
    pin = json.loads((tmp_path / "first" / "lock.json").read_text())["inputs"]["asked"]
    assert pin["some/judge"] == {
        "name": "some/judge",
        "revision": None,
        "sha256": None,
        "license": None,
    }
    assert verify(tmp_path / "first").problems == ()
    with pytest.raises(UserError, match="comes from a dataset's recipe, and no image is sent"):
        regenerate(tmp_path / "first", tmp_path / "rebuilt")


def test_a_build_survives_what_a_server_does_and_asks_nothing_twice(
    cached: Path, tmp_path: Path
) -> None:
    replies = iter([said("no"), refused(500, f"key {KEY}"), *([said("yes")] * 5)])
    with chat_server(lambda _: next(replies)) as server:
        with pytest.raises(RunFailure, match="answers 500") as failed:
            served(tmp_path / "out", server)
        assert KEY not in str(failed.value)
        served(tmp_path / "out", server)
    assert len(server.requests) == 7
    assert verify(tmp_path / "out").problems == ()
    assert [row["question_yes"] for row in rows_of(tmp_path / "out")] == [0, 1, 1, 1, 1, 1]
