"""Deep grey, turns noted by a camera and damage in pictures are reported before anything is
computed from them."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from counterfoil.building.build_dataset import build
from counterfoil.data.labelled_sources import NamedDataset, labelled_source
from counterfoil.data.open_source import open_source
from counterfoil.data.pictures import SourcePictures, look_at_pictures
from counterfoil.data.resolved_classes import resolve_classes
from counterfoil.evaluation.dataset import open_subject
from counterfoil.recipe import load_recipe
from counterfoil.starting.init_recipe import init
from counterfoil.store.decoding import UNREAD, rgb_image, upright_photograph
from support.images import encoded

CORNER = Image.new("RGB", (24, 16), (250, 250, 250))
CORNER.paste((200, 0, 0), (0, 0, 12, 8))


def with_tag(path: Path, orientation: int) -> Path:
    """Save a picture with a red corner at the top left of its pixels, and a tag that turns it."""
    exif = Image.Exif()
    exif[274] = orientation
    path.parent.mkdir(parents=True, exist_ok=True)
    CORNER.save(path, exif=exif)
    return path


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name in ("mug", "star"):
        with_tag(tmp_path / "photos" / name / "0.png", 1)
        with_tag(tmp_path / "photos" / name / "1.png", 6)
    deep = np.linspace(0, 65535, 24 * 16).reshape(16, 24).astype(np.uint16)
    Image.fromarray(deep).save(tmp_path / "photos" / "mug" / "deep.png")
    Image.fromarray((deep / 65535).astype(np.float32)).save(
        tmp_path / "photos" / "star" / "fractions.tiff"
    )
    return tmp_path / "photos"


@pytest.mark.parametrize(
    ("ending", "orientation"),
    [*(("png", number) for number in range(1, 9)), ("jpg", 6), ("webp", 5), ("tiff", 6)],
)
def test_a_turn_is_what_pillow_makes_of_the_tag(
    ending: str, orientation: int, tmp_path: Path
) -> None:
    file = with_tag(tmp_path / f"1.{ending}", orientation)
    with Image.open(file) as picture:
        stored = picture.convert("RGB")
        turned = ImageOps.exif_transpose(picture).convert("RGB")
    np.testing.assert_array_equal(
        np.asarray(rgb_image(file.read_bytes(), photograph=True)), np.asarray(stored)
    )
    applied = rgb_image(upright_photograph(file.read_bytes()), photograph=True)
    np.testing.assert_array_equal(np.asarray(applied), np.asarray(turned))
    # these Pillow turns by itself
    assert (stored.size == turned.size) == (orientation < 5 or ending == "tiff")


def test_what_cannot_be_turned_stays_as_it_is() -> None:
    for content in (None, b"", b"no image", encoded((1, 2, 3))):
        assert upright_photograph(content) == content


def test_deep_grey_and_turns_are_counted(photos: Path) -> None:
    files = sorted(photos.rglob("*.*"))
    images = [*((file.name, file.read_bytes()) for file in files), ("cut", b"\x89PNG")]
    pictures = look_at_pictures(images, 7, decode=False)
    assert (pictures.deep, pictures.turned, list(pictures.damaged), len(pictures.sides)) == (
        2,
        2,
        ["cut"],
        6,
    )
    grey, turned = pictures.notes(7)
    assert "2 images are grey of 16 or 32 bits" in grey and "2 images have an EXIF tag" in turned
    assert pictures.notes(7, applied=True) == [grey]
    assert "2 images of the 7 that were opened" in pictures.notes(5000)[0]
    # What the note says happens to them.
    white = np.asarray(rgb_image((photos / "mug" / "deep.png").read_bytes(), photograph=True))
    black = np.asarray(
        rgb_image((photos / "star" / "fractions.tiff").read_bytes(), photograph=True)
    )
    assert (white == 255).mean() > 0.95 and black.max() <= 1


def stored_as(kind: str, *pictures: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    first, *others = pictures
    if others:
        options |= {"save_all": True, "append_images": others}
    first.save(file, kind, **options)
    return file.getvalue()


GLASS = Image.new("RGBA", (8, 6), (200, 10, 10, 255))
GLASS.paste((1, 2, 3, 0), (0, 0, 4, 6))
RED = Image.new("RGB", (8, 6), (200, 10, 10))
BLUE = Image.new("RGB", (8, 6), (10, 10, 200))
PALETTE = RED.convert("P")


@pytest.mark.parametrize(
    ("content", "transparent", "moving"),
    [
        (stored_as("PNG", GLASS), 1, 0),
        (stored_as("WEBP", GLASS, lossless=True), 1, 0),
        (stored_as("GIF", GLASS), 1, 0),
        (stored_as("PNG", GLASS.convert("LA")), 1, 0),
        (stored_as("PNG", PALETTE, transparency=PALETTE.getpixel((0, 0))), 1, 0),
        (stored_as("PNG", RED.convert("RGBA")), 0, 0),
        (stored_as("JPEG", RED), 0, 0),
        (stored_as("GIF", RED, BLUE), 0, 1),
        (stored_as("PNG", RED, BLUE), 0, 1),
        (stored_as("WEBP", RED, BLUE), 0, 1),
        (stored_as("TIFF", RED, BLUE), 0, 1),
        (stored_as("MPO", RED, BLUE), 0, 0),
    ],
)
def test_transparent_pixels_and_further_frames_are_counted(
    content: bytes, transparent: int, moving: int
) -> None:
    pictures = look_at_pictures([("picture", content)], 1, decode=False)
    assert (pictures.transparent, pictures.moving) == (transparent, moving)
    notes = " ".join(pictures.notes(1))
    assert notes.startswith("1 image has transparent pixels") == bool(transparent)
    assert ("1 image has several frames or pages" in notes) == bool(moving)
    # What the notes say is read.
    read = np.asarray(rgb_image(content, photograph=True), int)
    assert abs(read[:, 6:] - (200, 10, 10)).max() <= 3 or transparent
    if content == stored_as("PNG", GLASS):
        np.testing.assert_array_equal(read[0, 0], (1, 2, 3))


def test_a_count_of_transparent_images_says_whether_all_were_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    images = [(name, stored_as("PNG", GLASS)) for name in "abc"]
    looked = look_at_pictures(images, 3, decode=False)
    assert looked.notes(3)[0].startswith("3 images have transparent pixels")
    assert looked.notes(9)[0].startswith("3 images of the 3 that were opened have transparent")
    pixels = GLASS.width * GLASS.height + 1
    monkeypatch.setattr("counterfoil.data.pictures.MOST_PIXELS_FOR_ALPHA", pixels)
    looked = look_at_pictures(images, 3, decode=False)
    assert looked.notes(3)[0].startswith("at least 2 images have transparent pixels")


def test_a_damaged_image_that_may_be_transparent_is_counted_once() -> None:
    cut = stored_as("PNG", GLASS.resize((400, 300)))[:300]
    pictures = look_at_pictures([("cut", cut)], 1, decode=False)
    assert (list(pictures.damaged), pictures.sides, pictures.of(1)) == (["cut"], [], "")


def test_init_and_evaluate_tell_them(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for notes in (
        init(photos, device="cpu").notes,
        open_subject(photos, None, None, None, {}).notes,
    ):
        assert any("2 images are grey of 16 or 32 bits" in note for note in notes)
        assert any("2 images have an EXIF tag" in note and "source.exif" in note for note in notes)


def test_a_recipe_that_applies_turns_has_a_hash_and_a_content_of_its_own(
    photos: Path, tmp_path: Path
) -> None:
    text = init(photos, tmp_path / "plain.yaml", device="cpu").path.read_text()
    plain, same, turned = (
        resolve_classes(load_recipe(tmp_path / "plain.yaml", changes))
        for changes in ([], ["source.exif=ignore"], ["source.exif=apply"])
    )
    assert (
        "exif" not in text
        and "exif" not in plain.portable_yaml
        and "exif: apply" in turned.portable_yaml
    )
    assert plain.plan_hash == same.plan_hash != turned.plan_hash
    assert plain.recipe_hash == same.recipe_hash != turned.recipe_hash
    as_stored, as_turned = (open_source(recipe.source).rows("train") for recipe in (plain, turned))
    assert as_stored.pinned != as_turned.pinned
    row = (as_stored.paths() or ()).index("mug/1.png")
    assert as_stored.image(row).size == (24, 16) and as_turned.image(row).size == (16, 24)
    stored = labelled_source(NamedDataset(str(photos)))
    applied = labelled_source(NamedDataset(str(photos), exif="apply"))
    assert stored.content != applied.content and stored.keys == applied.keys


def test_a_build_turns_the_photographs_of_such_a_recipe(photos: Path, tmp_path: Path) -> None:
    for file in (photos / "mug" / "deep.png", photos / "star" / "fractions.tiff"):
        file.unlink()
    init(photos, tmp_path / "own.yaml", device="cpu")
    changes = ["source.exif=apply", "prompts.shifts={fog: {corruption: fog, severity: 3}}"]
    recipe = load_recipe(tmp_path / "own.yaml", changes)
    built = build(recipe, tmp_path / "built", device="cpu", workers=1)
    images = labelled_source(NamedDataset(str(built.directory), "all", config="base"))
    sizes = [image.size for _, raw in images.images() if (image := images.decoded(raw))]
    assert sorted(sizes) == [(16, 24)] * 2 + [(24, 16)] * 2


def test_a_photograph_that_is_too_large_is_named_with_its_size() -> None:
    head = b"IHDR" + struct.pack(">IIBBBBB", 12_000, 9_000, 8, 2, 0, 0, 0)
    vast = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head))
    vast += struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))
    pictures = look_at_pictures([("vast.png", vast)], 1, decode=True)
    assert pictures.damaged == {
        "vast.png": "it declares 12000×9000 pixels, expected at most 89,478,485"
    }
    assert "89,478,485 pixels" in UNREAD


@pytest.mark.parametrize(
    ("sides", "counted"),
    [([], None), ([85, 500], None), ([32], "1 image"), ([32, 84, 85], "2 images")],
)
def test_small_jpeg_files_are_counted(sides: list[int], counted: str | None) -> None:
    words = (
        [f"{counted} {'is' if counted == '1 image' else 'are'} JPEG already and under 85 pixels"]
        if counted
        else []
    )
    pictures = SourcePictures(sides=[(side, side) for side in sides], jpeg_sides=sides)
    assert [note.split(",")[0] for note in pictures.twice_compressed(len(sides))] == words
