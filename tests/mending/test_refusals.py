"""What teaches and what judges share nothing: told by pixels, units and noise, each alone."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from counterfoil.errors import RunFailure, UserError
from counterfoil.mending.context_rows import context_of_rows
from counterfoil.mending.debug_images import Context
from counterfoil.mending.pixels import pixel_steps
from counterfoil.mending.refusals import Known, refuse_shared
from counterfoil.mending.seen import refuse_infinite
from counterfoil.recipe import load_recipe
from counterfoil.sources import LabelledImages
from counterfoil.under_way import finish

OURS = Known("ours", ("a", "b"), ("1", None), ("u", "v"), "photos", frozenset({5}))
THEIRS = Known("theirs", ("x", "y"), ("2", None), ("w", "z"), "photos", frozenset({6}))


def test_two_sides_that_share_nothing_pass() -> None:
    """What cannot be decoded is no common picture, and units of another dataset are other units."""
    refuse_shared([OURS], [THEIRS])
    refuse_shared([OURS], [replace(THEIRS, units=("u", "z"), of="other photos")])


@pytest.mark.parametrize(
    ("shared", "says"),
    [
        ({"pixels": ("1", None)}, "1 image of ours and theirs are the same, such as x"),
        ({"units": ("v", "u")}, "ours and theirs share 2 units, such as u"),
        ({"seeds": frozenset({5, 6})}, "1 image of ours began with the noise"),
    ],
)
def test_each_thing_that_is_shared_is_refused(shared: dict, says: str) -> None:
    with pytest.raises(UserError) as error:
        refuse_shared([OURS], [THEIRS, replace(THEIRS, **shared)])
    assert len(error.value.problems) == 1 and says in error.value.problems[0]


def encoded(picture: Image.Image, form: str) -> bytes:
    with io.BytesIO() as stream:
        picture.save(stream, form, **({"lossless": True} if form == "WEBP" else {}))
        return stream.getvalue()


def images_of(*contents: bytes) -> LabelledImages:
    keys = tuple(f"{place}" for place in range(len(contents)))
    zeros = np.zeros(len(contents), dtype=np.int64)
    name = f"{hash(contents):x}"
    read = dict(zip(keys, contents, strict=True))
    return LabelledImages(
        name, f"test-{name}", keys, zeros, zeros, ("all",),
        lambda wanted: ((key, one) for key, one in read.items() if wanted is None or key in wanted),
    )  # fmt: skip


def test_a_picture_is_the_same_however_it_is_encoded() -> None:
    rng = np.random.default_rng(0)
    picture, other = (Image.fromarray(rng.integers(0, 256, (8, 6, 3), dtype=np.uint8)) for _ in range(2))
    turned = Image.fromarray(np.asarray(picture).reshape(6, 8, 3))  # the same bytes in another shape
    images = images_of(
        encoded(picture, "PNG"), encoded(picture, "WEBP"), encoded(other, "PNG"), b"no image", encoded(turned, "PNG")
    )
    found = finish(pixel_steps(images))
    assert found[0] == found[1] and found[3] is None
    assert len({found[0], found[2], found[4]}) == 3
    # What is kept is found again without an image being read.
    assert finish(pixel_steps(replace(images, read=lambda wanted: iter(())))) == found


def test_a_row_is_in_the_context_of_its_class_that_it_is_most_like_or_in_none() -> None:
    recipe = load_recipe("wardrobe-mini")
    contexts = [
        Context("a", 0, "first", "first"),
        Context("b", 0, "second", "second"),
        Context("c", 1, "third", "third"),
    ]
    vectors = {"first": 0, "second": 1, "third": 2, "a photo of a t-shirt": 3, "a photo of a trouser": 4}

    def embed(texts):
        return np.eye(5, dtype=np.float32)[[vectors[text] for text in texts]]

    features = np.eye(5, dtype=np.float32)
    found = context_of_rows(contexts, recipe, features, np.asarray([0, 0, 0, 0, 1]), embed)
    # The third is like the context of another class alone, the last two like their class without any.
    assert found.tolist() == [0, 1, -1, -1, -1]
    assert context_of_rows(contexts, recipe, features[2:3], np.asarray([1]), embed).tolist() == [2]
    assert context_of_rows([], recipe, features, np.zeros(5, dtype=np.int64), embed).tolist() == [-1] * 5


def test_features_that_are_no_numbers_are_told() -> None:
    features = np.zeros((3, 2))
    refuse_infinite("m", features, "photos")
    features[1, 0] = np.nan
    with pytest.raises(RunFailure, match="1 of 3 images of photos"):
        refuse_infinite("m", features, "photos")
