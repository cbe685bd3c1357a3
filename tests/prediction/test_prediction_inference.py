"""Answers come from the images alone: not from batch size, company, or an image that cannot be
read."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from colour_world import save_colour_model
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.engines import LocalEngine
from counterfoil.errors import RunFailure
from counterfoil.models.classifiers import Classifier, load_classifier
from counterfoil.prediction.asking import AskedModel, Placement, ask, prepared_batches
from counterfoil.prediction.class_map import ClassMap
from counterfoil.prediction.inference import MappedClassifier, Predictions, logits_of
from counterfoil.prediction.passes import score_models
from counterfoil.store.decoding import readable_image
from support import images

MAP = ClassMap("source labels", 3, ((0,), (1,), (2,)))


def encoded(seed: int, mode: str = "RGB", format: str = "PNG") -> bytes:
    return images.encoded(images.noise(seed, 30, 24).convert(mode), format)


@pytest.fixture(scope="module")
def sharp(models: dict[str, str]) -> Classifier:
    return load_classifier(models["sharp"])


def answers_of(
    classifiers: list[Classifier], images: list[bytes | None], batch_size: int
) -> list[Predictions]:
    """Return the answers of every model in one pass, which no model fails."""
    members = [AskedModel(MappedClassifier(classifier, MAP, "cpu")) for classifier in classifiers]
    list(
        ask(
            images,
            np.zeros(len(images), dtype=np.int64),
            members,
            device="cpu",
            batch_size=batch_size,
        )
    )
    assert all(member.failure is None and member.done == len(images) for member in members)
    return [Predictions(**member.finished()) for member in members]


def all_logits(classifier: Classifier, images: list[bytes], batch_size: int) -> torch.Tensor:
    scores = []
    for _, inputs in prepared_batches(images, [classifier], batch_size, "cpu"):
        batch = inputs[classifier.input_key]
        assert isinstance(batch, torch.Tensor)
        scores.append(logits_of(classifier, batch, "cpu"))
    return torch.cat(scores)


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_results_do_not_depend_on_the_batch_size(sharp: Classifier, batch_size: int) -> None:
    images = [encoded(seed) for seed in range(14)]
    reference = all_logits(sharp, images, 14)
    logits = all_logits(sharp, images, batch_size)
    torch.testing.assert_close(logits, reference, rtol=1e-4, atol=1e-4)
    assert torch.equal(logits.argmax(1), reference.argmax(1))


def test_logits_equal_timms_own_use_of_the_model(sharp: Classifier) -> None:
    images = [encoded(seed) for seed in range(3)]
    transform = sharp.transform()
    expected = []
    for image in images:
        tensor = transform(Image.open(io.BytesIO(image)).convert("RGB"))
        with torch.no_grad():
            expected.append(sharp.module(tensor[None])[0])
    torch.testing.assert_close(
        all_logits(sharp, images, 2), torch.stack(expected), rtol=1e-4, atol=1e-4
    )


def test_models_of_other_inputs_share_a_pass_without_changing_each_other(
    sharp: Classifier, tmp_path: Path
) -> None:
    larger = load_classifier(f"local-dir:{save_colour_model(tmp_path / 'larger', size=48)}")
    assert larger.input_key != sharp.input_key
    images: list[bytes | None] = [encoded(seed) for seed in range(9)]
    for classifier, shared in zip(
        (sharp, larger), answers_of([sharp, larger], images, 4), strict=True
    ):
        alone = answers_of([classifier], images, 4)[0]
        assert np.array_equal(shared.prediction, alone.prediction)
        assert np.array_equal(shared.confidence, alone.confidence)


def test_unreadable_images_are_marked_and_harm_no_other(sharp: Classifier) -> None:
    good = [encoded(seed) for seed in range(6)]
    images = [
        good[0],
        b"",
        good[1],
        good[2][: len(good[2]) // 2],
        good[3],
        None,
        b"no image at all",
        good[4],
    ]
    answers = answers_of([sharp], images, 2)[0]
    assert answers.readable.tolist() == [True, False, True, False, True, False, False, True]
    alone = answers_of([sharp], [good[index] for index in (0, 1, 3, 4)], 2)[0]
    assert np.array_equal(answers.prediction[answers.readable], alone.prediction)
    assert not answers.correct[~answers.readable].any()


@pytest.mark.parametrize(
    ("mode", "format"), [("L", "PNG"), ("RGBA", "PNG"), ("P", "PNG"), ("CMYK", "JPEG")]
)
def test_every_kind_of_picture_becomes_rgb(mode: str, format: str) -> None:
    image = readable_image(encoded(0, mode, format))
    assert image is not None
    assert (image.mode, image.size) == ("RGB", (30, 24))


def test_a_model_that_gives_no_numbers_fails_by_name_and_the_others_go_on(
    sharp: Classifier, models: dict[str, str]
) -> None:
    broken = load_classifier(models["no_red"])
    torch.nn.init.constant_(broken.module.get_classifier().bias, float("nan"))
    images: list[bytes | None] = [encoded(seed) for seed in range(5)]
    failing, whole = members = [
        AskedModel(MappedClassifier(classifier, MAP, "cpu")) for classifier in (broken, sharp)
    ]
    assert list(ask(images, np.zeros(5, dtype=np.int64), members, device="cpu", batch_size=2)) == [
        2,
        4,
        5,
    ]
    assert isinstance(failing.failure, RunFailure)
    assert "no_red" in str(failing.failure) and "not finite" in str(failing.failure)
    assert np.array_equal(
        Predictions(**whole.finished()).prediction, answers_of([sharp], images, 2)[0].prediction
    )


def test_fewer_images_than_rows_is_a_failure(sharp: Classifier) -> None:
    member = AskedModel(MappedClassifier(sharp, MAP, "cpu"))
    with pytest.raises(RunFailure, match="2 images were expected and 1 were read"):
        list(ask([encoded(0)], np.zeros(2, np.int64), [member], device="cpu", batch_size=4))


@pytest.mark.parametrize(("device", "ahead"), [("cpu", 0), ("cuda", 2)])
def test_a_pass_reads_no_further_than_it_is_asked(
    sharp: Classifier, device: str, ahead: int
) -> None:
    """With a GPU, the next batch is decoded while one is computed; with a CPU, one after the
    other."""
    read: list[int] = []

    def images() -> Iterator[bytes]:
        for index in range(9):
            read.append(index)
            yield encoded(index)

    threads = set(threading.enumerate())
    batches = prepared_batches(images(), [sharp], 2, device)
    assert read == []
    assert [len(next(batches)[0]), len(next(batches)[0])] == [2, 2]
    assert read == list(range(4 + ahead))
    batches.close()
    assert not set(threading.enumerate()) - threads
    assert len(read) == 4 + ahead


def test_a_model_that_changed_since_its_class_map_was_made_is_refused(
    models: dict[str, str], tmp_path: Path
) -> None:
    """Its outputs would be matched to classes of the old order, and score near zero silently."""
    image = encoded(0)
    images = LabelledImages(
        "one", "content", ("a",), np.zeros(1, np.int64), np.zeros(1, np.int64), ("all",),
        lambda keys: iter([("a", image)]),
    )  # fmt: skip
    classifier = load_classifier(models["sharp"])
    for other in (
        replace(classifier, label_names=("b", "c", "a")),
        replace(classifier, num_classes=4),
    ):
        old = ClassMap(
            "names", 3, ((0,), (1,), (2,)), ("a", "b", "c") if other.label_names else None
        )
        with pytest.raises(RunFailure, match="changed while the run started"):
            score_models(images, ["m"], {"m": old}, tmp_path, "cpu", 1, lambda name, o=other: o)


def test_one_process_answers_where_others_would_begin_too_late() -> None:
    def placement(workers: int, *devices: str) -> Placement:
        return Placement(LocalEngine(workers, devices), devices[0], ())

    assert (
        placement(2, "cpu").worth_for(1_999) is None
        and placement(2, "cpu").worth_for(2_000) is not None
    )
    assert (
        placement(1, "cpu").worth_for(10**6) is None
        and placement(1, "cuda:0").worth_for(10**6) is None
    )
    # several devices are always used
    assert placement(1, "cuda:0", "cuda:1").worth_for(1) is not None


@pytest.mark.parametrize(
    ("workers", "stretches", "threads"), [(2, 1, 6), (2, 5, 3), (4, 3, 2), (8, 9, 1), (2, 0, 6)]
)
def test_processes_share_the_threads_of_this_one(
    workers: int, stretches: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    assert Placement(LocalEngine(workers), "cpu", ()).threads(stretches) == threads
    assert Placement(LocalEngine(workers, ("cuda:0",)), "cuda:0", ()).threads(stretches) == 1
