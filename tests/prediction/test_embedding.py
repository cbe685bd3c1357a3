"""Features of images: computed once, found again, resumed after a kill; and contents by their
bytes."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from counterfoil.data.labelled_images import LabelledImages
from counterfoil.errors import RunFailure
from counterfoil.models.classifiers import load_classifier
from counterfoil.models.clip import load_clip, pin_clip
from counterfoil.prediction import answer_cache
from counterfoil.prediction.embedding import (
    Embedder,
    classifier_embedder,
    clip_embedder,
    contents_of,
    embed,
    first_of_content,
)
from counterfoil.progress import Stage, listening
from driven import given_up
from support.images import encoded, noise
from support.labelled_pictures import labelled

N = 23


class Counting:
    """The lab's CLIP, which counts the images that it sees."""

    def __init__(self) -> None:
        self.seen = 0
        inner = clip_embedder(load_clip("lab:clip"), pin_clip("lab:clip", None))
        self.embedder = replace(
            inner, features=lambda images, size: self._counted(inner, images, size)
        )

    def _counted(self, inner: Embedder, images, size: int) -> np.ndarray:
        self.seen += len(images)
        return inner.features(images, size)


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture(scope="module")
def pictures() -> list[bytes | None]:
    return [encoded(noise(seed, 16, 16)) for seed in range(N)]


def test_they_are_what_the_model_gives(
    counting: Counting, pictures: list[bytes | None], tmp_path: Path
) -> None:
    features = embed(
        labelled(pictures), counting.embedder, tmp_path, batch_size=5, precision="float32"
    )
    clip = load_clip("lab:clip")
    images = [Image.open(io.BytesIO(picture or b"")).convert("RGB") for picture in pictures]
    assert np.array_equal(features, clip.embed_images(images, 5))
    half = embed(labelled(pictures), counting.embedder, tmp_path, batch_size=5)
    assert half.dtype == np.float16
    assert np.allclose(half, features, atol=1e-3)


def test_they_are_computed_once(
    counting: Counting, pictures: list[bytes | None], tmp_path: Path
) -> None:
    first = embed(labelled(pictures), counting.embedder, tmp_path)
    again = embed(labelled(pictures), counting.embedder, tmp_path)
    assert counting.seen == N
    assert np.array_equal(first, again)
    embed(labelled(pictures, content="another"), counting.embedder, tmp_path)
    embed(labelled(pictures), replace(counting.embedder, key="another"), tmp_path)
    assert counting.seen == 3 * N


def test_a_killed_run_goes_on(
    counting: Counting,
    pictures: list[bytes | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = embed(labelled(pictures), counting.embedder, tmp_path / "whole", batch_size=4)
    monkeypatch.setattr(answer_cache, "PART_ROWS", 8)
    with given_up(lambda stage: stage.done == 12):
        embed(labelled(pictures), counting.embedder, tmp_path / "killed", batch_size=4)
    counting.seen = 0
    resumed = embed(labelled(pictures), counting.embedder, tmp_path / "killed", batch_size=4)
    assert counting.seen == N - 8
    assert np.array_equal(resumed, whole)
    assert [path.suffix for path in (tmp_path / "killed").iterdir()] == [".parquet"]


def test_each_batch_is_reported_until_all_are_done(
    counting: Counting, pictures: list[bytes | None], tmp_path: Path
) -> None:
    heard: list[Stage] = []
    name = f"{counting.embedder.name}: pictures"
    with listening(heard.append):
        embed(labelled(pictures), counting.embedder, tmp_path, batch_size=10)
        assert heard == [Stage(name, 10, N), Stage(name, 20, N), Stage(name, N, N)]
        embed(labelled(pictures), counting.embedder, tmp_path, batch_size=10)
    assert heard[3:] == [Stage(name, N, N)]
    assert counting.seen == N


@pytest.mark.parametrize("batch_size", [1, 4])
def test_what_cannot_be_decoded_is_no_number_and_harms_no_other(
    counting: Counting, pictures: list[bytes | None], batch_size: int, tmp_path: Path
) -> None:
    damaged = [None, b"no image", *pictures[:5], b""]
    features = embed(
        labelled(damaged), counting.embedder, tmp_path / "damaged", batch_size=batch_size
    )
    assert np.isnan(features).all(axis=1).tolist() == [True, True, *[False] * 5, True]
    alone = embed(
        labelled(pictures[:5], content="two"), counting.embedder, tmp_path, batch_size=batch_size
    )
    assert np.array_equal(features[2:7], alone)


def test_a_damaged_file_is_made_again(
    counting: Counting, pictures: list[bytes | None], tmp_path: Path
) -> None:
    first = np.array(embed(labelled(pictures), counting.embedder, tmp_path))
    (file,) = tmp_path.iterdir()
    several = io.BytesIO()
    np.savez(several, a=first)
    for content in (
        b"",
        file.read_bytes()[:-7],
        b"\x93NUMPY nonsense",
        several.getvalue(),
        b"PK\x03\x04",
    ):
        file.unlink()
        file.write_bytes(content)
        assert np.array_equal(embed(labelled(pictures), counting.embedder, tmp_path), first)


def test_fewer_images_than_keys_is_a_failure(
    counting: Counting, pictures: list[bytes | None], tmp_path: Path
) -> None:
    short = replace(labelled(pictures), read=lambda keys: iter([("k0", pictures[0])]))
    with pytest.raises(RunFailure, match="23 images were expected and 1 were read"):
        embed(short, counting.embedder, tmp_path)


def test_a_classifiers_features_are_what_its_last_layer_sees(
    pictures: list[bytes | None], tmp_path: Path
) -> None:
    model = load_classifier("lab:resnet10t")
    features = embed(
        labelled(pictures),
        classifier_embedder(model, "cpu"),
        tmp_path,
        batch_size=4,
        precision="float32",
    )
    images = [Image.open(io.BytesIO(picture or b"")).convert("RGB") for picture in pictures]
    batch = torch.stack([model.transform()(image) for image in images])
    with torch.inference_mode():
        from_features = model.module.get_classifier()(torch.from_numpy(np.array(features)))
    assert torch.allclose(from_features, model.logits(batch, "cpu"), atol=1e-4)


def test_features_that_the_disk_has_no_room_for_are_reported(
    counting: Counting, pictures: list[bytes | None], small_disk: Path
) -> None:
    """They are mapped: a write to a page without room would end the process by a signal."""
    wide = replace(
        counting.embedder,
        features=lambda images, size: np.ones((len(images), 50_000), dtype=np.float32),
    )
    with pytest.raises(RunFailure, match="No space left"):
        embed(labelled(pictures), wide, small_disk / "cache")


ENCODED = [b"one", b"two", None, b"one", b"", b"two", b"three"]


def some_images(
    content: str, encoded: list[bytes | None], most: int | None = None
) -> tuple[LabelledImages, list[int]]:
    """Return images, and a list that gets the row of each image that is read."""
    read: list[int] = []

    def reading(keys: frozenset[str] | None) -> Iterator[tuple[str, bytes | None]]:
        for row, image in enumerate(encoded[:most]):
            read.append(row)
            yield str(row), image

    zeros = np.zeros(len(encoded), dtype=np.int64)
    keys = tuple(map(str, range(len(encoded))))
    return LabelledImages("some", content, keys, zeros, zeros, ("all",), reading), read


def test_they_are_hashes_of_the_bytes_and_read_once(tmp_path: Path) -> None:
    images, read = some_images("a", ENCODED)
    contents = contents_of(images, tmp_path)
    for row, image in zip(contents, ENCODED, strict=True):
        assert row.tobytes() == (bytes(32) if image is None else hashlib.sha256(image).digest())
    assert first_of_content(contents).tolist() == [True, True, True, False, True, False, True]
    assert np.array_equal(contents_of(images, tmp_path), contents) and len(read) == len(ENCODED)
    other, _ = some_images("b", list(reversed(ENCODED)))
    assert np.array_equal(contents_of(other, tmp_path), contents[::-1])


def test_fewer_images_than_keys_end_it_and_leave_nothing(tmp_path: Path) -> None:
    images, _ = some_images("a", ENCODED, most=3)
    with pytest.raises(RunFailure, match="7 images were expected and 3 were read"):
        contents_of(images, tmp_path)
    assert not list(tmp_path.iterdir())
