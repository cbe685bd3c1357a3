"""Captions and likelihoods of labelled images: made once, found by content, resumed after a
kill."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from counterfoil.models.captioners import Captioner, load_captioner
from counterfoil.models.captioners.of_decoders import VisionEncoderDecoderCaptioner
from counterfoil.prediction.captioning import caption_images, likelihoods_of
from counterfoil.progress import Stage, listening
from driven import given_up
from support.images import encoded, noise
from support.labelled_pictures import labelled
from tiny_captioners import vision_encoder_decoder

N = 5
CAPTIONS = ["a photo of a bag", "a red sandal in the snow", "", "a photo of a bag"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Captioner:
    return load_captioner(
        f"local-dir:{vision_encoder_decoder(tmp_path_factory.mktemp('captioner') / 'two')}"
    )


class Looks(list[int]):
    """Count how often a captioner looks at an image, while it is watched."""

    def __init__(self, captioner: Captioner) -> None:
        super().__init__()
        assert isinstance(captioner, VisionEncoderDecoderCaptioner)
        self.hook = captioner.module.encoder.register_forward_hook(lambda *_: self.append(1))


@pytest.fixture
def looks(plain: Captioner) -> Iterator[Looks]:
    count = Looks(plain)
    yield count
    count.hook.remove()


@pytest.fixture(scope="module")
def pictures() -> list[bytes | None]:
    return [encoded(noise(seed)) for seed in range(N)]


def test_captions_are_the_captioners(
    plain: Captioner, pictures: list[bytes | None], tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"number": 2, "seed": 3, "most_tokens": 6}
    captions = caption_images(labelled(pictures), plain, tmp_path, prefix=" a photo ", **settings)
    expected = [
        tuple(plain.captions(noise(seed), prefix="a photo", **settings)) for seed in range(N)
    ]
    assert list(captions.items()) == [(f"k{index}", texts) for index, texts in enumerate(expected)]


def test_they_are_made_once_for_what_they_depend_on(
    plain: Captioner, looks: Looks, pictures: list[bytes | None], tmp_path: Path
) -> None:
    first = caption_images(labelled(pictures), plain, tmp_path, most_tokens=5)
    assert len(looks) == N
    steps: list[Stage] = []
    with listening(steps.append):
        caption_images(labelled(pictures), plain, tmp_path, most_tokens=5)
    assert steps == [Stage(plain.name, done, N) for done in range(1, N + 1)]
    # The same images in another order, under other keys.
    turned = caption_images(labelled(pictures[::-1]), plain, tmp_path, most_tokens=5)
    assert list(turned.values()) == list(first.values())[::-1]
    assert len(looks) == N
    others: list[dict[str, Any]] = [
        {"most_tokens": 6},
        {"most_tokens": 5, "seed": 1},
        {"most_tokens": 5, "number": 2},
        {"most_tokens": 5, "prefix": "a"},
    ]
    for index, other in enumerate(others):
        caption_images(labelled(pictures), plain, tmp_path, **other)
        assert len(looks) == (index + 2) * N
    caption_images(labelled(pictures), replace(plain, sha256="another"), tmp_path, most_tokens=5)
    assert len(looks) == (len(others) + 2) * N


def test_a_killed_run_goes_on(
    plain: Captioner, looks: Looks, pictures: list[bytes | None], tmp_path: Path
) -> None:
    with given_up(lambda stage: stage.done == 3):
        caption_images(labelled(pictures), plain, tmp_path, most_tokens=4)
    captions = caption_images(labelled(pictures), plain, tmp_path, most_tokens=4)
    assert len(looks) == N
    assert captions == caption_images(labelled(pictures), plain, tmp_path / "whole", most_tokens=4)
    assert all(path.suffix == ".parquet" for path in tmp_path.rglob("*") if path.is_file())


def test_labels_choose_prefixes_and_keys_choose_images(
    plain: Captioner, looks: Looks, pictures: list[bytes | None], tmp_path: Path
) -> None:
    images = labelled(pictures, [0, 1, 0, 1, 0])
    prefix = {0: "a photo of a bag", 1: "a photo of a coat"}
    captions = caption_images(
        images, plain, tmp_path, keys=["k3", "k0"], prefix=prefix, most_tokens=3
    )
    assert list(captions) == ["k0", "k3"] and len(looks) == 2
    for key, begun in (("k0", prefix[0]), ("k3", prefix[1])):
        assert all(text.startswith(begun) for text in captions[key] or ["none"])
    assert caption_images(images, plain, tmp_path, keys=[]) == {}


def test_what_cannot_be_decoded_has_no_captions_and_harms_no_other(
    plain: Captioner, pictures: list[bytes | None], tmp_path: Path
) -> None:
    damaged = [None, b"no image", pictures[0], (pictures[1] or b"")[:200]]
    for _ in range(2):
        captions = caption_images(labelled(damaged), plain, tmp_path, most_tokens=4)
        assert [texts is None for texts in captions.values()] == [True, True, False, True]
        likelihoods = likelihoods_of(labelled(damaged), CAPTIONS, plain, tmp_path)
        assert np.isnan(likelihoods.sums).all(axis=1).tolist() == [True, True, False, True]
        assert not likelihoods.tokens[[0, 1, 3]].any()
        assert np.isnan(likelihoods.per_token).all(axis=1).tolist() == [True, True, False, True]
    alone = caption_images(labelled(pictures[:1]), plain, tmp_path / "alone", most_tokens=4)
    assert captions["k2"] == alone["k0"]


def pairs(values: list[float], number_type: str = "<f8") -> pa.Array:
    """Return a row of numbers, as a cache keeps rows of several."""
    row = np.array(values, number_type).tobytes()
    return pa.array([row], pa.binary(len(row)))


# Columns that no run writes.
DAMAGED: list[dict[str, Any]] = [
    {},
    {"captions": [1, 2, 3, 4]},
    {"captions": ["a", "b", "c", "d"]},
    {"captions": [b"a"]},
    {"captions": [b"a", b"b", b"c", None]},
    {"captions": [b"a", b"b", b"c", b"\xff"]},
    {"captions": [b"a"], "likelihoods": pairs([1.5, 1])},
    {"captions": [b"a"], "likelihoods": pairs([-1.5, 0])},
    {"captions": [b"a"], "likelihoods": pairs([float("nan"), 1])},
    {"captions": [b"a"], "likelihoods": pairs([-1.5, 1], "<f4")},
    {"captions": [b"a"], "likelihoods": pairs([-1.5])},
    {"captions": [b"a"], "likelihoods": pa.nulls(1, pa.binary(16))},
    {"captions": [b"a"], "likelihoods": [-1.5]},
]


def test_damaged_entries_are_made_again(
    plain: Captioner, pictures: list[bytes | None], tmp_path: Path
) -> None:
    images = labelled(pictures[:2])

    def made() -> tuple[Any, list[list[float]]]:
        captions = caption_images(images, plain, tmp_path, most_tokens=4)
        return captions, likelihoods_of(images, ["a", "a bag"], plain, tmp_path).sums.tolist()

    first = made()
    paths = list(tmp_path.rglob("*.parquet"))
    assert len(paths) == 4
    keys = {path: pq.read_schema(path).metadata for path in paths}
    for columns in DAMAGED:
        for path, key in keys.items():
            pq.write_table(pa.table(columns).replace_schema_metadata(key), path)
        assert made() == first, columns
    for path in paths:
        path.write_bytes(path.read_bytes()[:-9])
    assert made() == first


def test_likelihoods_are_the_captioners_by_image_and_caption(
    plain: Captioner, pictures: list[bytes | None], tmp_path: Path
) -> None:
    likelihoods = likelihoods_of(labelled(pictures), CAPTIONS, plain, tmp_path)
    assert likelihoods.keys == tuple(
        f"k{index}" for index in range(N)
    ) and likelihoods.captions == tuple(CAPTIONS)
    for seed in range(N):
        sums, tokens = plain.log_likelihoods(noise(seed), CAPTIONS)
        assert likelihoods.sums[seed].tolist() == sums.tolist()
        assert likelihoods.tokens[seed].tolist() == tokens.tolist() == [6, 7, 1, 6]
    np.testing.assert_allclose(likelihoods.per_token, likelihoods.sums / likelihoods.tokens)


def test_only_captions_that_are_not_known_are_asked_about(
    plain: Captioner, looks: Looks, pictures: list[bytes | None], tmp_path: Path
) -> None:
    first = likelihoods_of(labelled(pictures), CAPTIONS[:1], plain, tmp_path)
    complete = likelihoods_of(labelled(pictures), CAPTIONS, plain, tmp_path)
    assert len(looks) == 2 * N
    again = likelihoods_of(labelled(pictures), CAPTIONS[::-1], plain, tmp_path, keys=["k1", "k4"])
    assert len(looks) == 2 * N
    assert np.array_equal(again.sums, complete.sums[[1, 4], ::-1])
    assert np.array_equal(first.sums[:, 0], complete.sums[:, 0])
    fresh = likelihoods_of(labelled(pictures), CAPTIONS, plain, tmp_path / "fresh")
    assert np.array_equal(fresh.sums, complete.sums)
    assert likelihoods_of(labelled(pictures), [], plain, tmp_path).sums.shape == (N, 0)


def test_a_caption_of_any_letters_is_remembered(
    plain: Captioner, looks: Looks, tmp_path: Path
) -> None:
    odd = ["a \ud800 bag", "a\u0000bag", 'a "bag" \\ {class}', "sac à main — 包"]
    images = labelled([encoded(noise(0))])
    first = likelihoods_of(images, odd, plain, tmp_path)
    assert np.array_equal(likelihoods_of(images, odd, plain, tmp_path).sums, first.sums)
    assert len(looks) == 1
