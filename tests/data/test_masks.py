"""Masks of input datasets: folders, palettes and numbers are read, and what is unfit is refused
before it is decoded."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image

from counterfoil.building.build_dataset import build
from counterfoil.data.masks import decoded_mask
from counterfoil.data.open_source import open_source
from counterfoil.data.pool import pool_of
from counterfoil.errors import CounterfoilError
from counterfoil.recipe import Recipe
from counterfoil.recipe.loader import load_recipe_text
from support.masks import COLOURS, RECIPE, mask_folder, masks_read
from support.refusals import problems_of, refuses


def recipe_of(folder: Path, *changes: str) -> Recipe:
    return load_recipe_text(RECIPE.format(folder=folder), changes)


def masks_of_folder(folder: Path, *changes: str) -> list[np.ndarray]:
    return masks_read(recipe_of(folder, *changes), (80, 60))


def test_numbers_of_the_data_become_positions_and_others_no_class(tmp_path: Path) -> None:
    masks = mask_folder(tmp_path / "patches", 3)
    read = masks_of_folder(
        tmp_path / "patches", "source.masks={classes: [sign, ground], numbers: [2, 0]}"
    )
    number_of = np.full(256, 255)
    number_of[[2, 0]] = [0, 1]
    for classes, drawn in zip(read, masks, strict=True):
        assert (classes == number_of[drawn]).all()


def test_a_mask_of_16_bits_is_read_if_its_numbers_are_of_classes(tmp_path: Path) -> None:
    drawn = mask_folder(tmp_path / "patches", 2)
    for number, mask in enumerate(drawn):
        path = tmp_path / "patches" / "masks" / f"{number:03d}.png"
        path.write_bytes(saved(mask.astype(np.uint16)))
        with Image.open(path) as picture:
            assert picture.mode.startswith("I")
    for read, mask in zip(masks_of_folder(tmp_path / "patches"), drawn, strict=True):
        assert (read == mask).all()


def test_zero_may_be_no_class_and_255_a_class(tmp_path: Path) -> None:
    """As in ADE20K, where classes begin at 1, and in masks of one class, where it is white."""
    drawn = mask_folder(tmp_path / "patches", 2)
    from_one = ("source.masks={classes: [box, sign], numbers: [1, 2]}",)
    for read, mask in zip(masks_of_folder(tmp_path / "patches", *from_one), drawn, strict=True):
        assert (read[mask == 0] == 255).all() and (read[mask == 1] == 0).all()
    for number, mask in enumerate(drawn):
        white = np.where(mask == 1, 255, 0).astype(np.uint8)
        (tmp_path / "patches" / "masks" / f"{number:03d}.png").write_bytes(saved(white))
    unsaid = recipe_of(tmp_path / "patches", "source.masks={classes: [ground, box]}")
    with refuses(
        "invalid-mask",
        "source.masks.numbers",
        "no pixel has 'box'",
    ):
        build(unsaid, tmp_path / "out", device="cpu", workers=1)
    white = ("source.masks={classes: [ground, box], numbers: [0, 255]}",)
    for read, mask in zip(masks_of_folder(tmp_path / "patches", *white), drawn, strict=True):
        assert (read == (mask == 1)).all()


@pytest.mark.parametrize(
    ("images", "masks"),
    [
        ("images/training", "annotations/training"),
        ("JPEGImages", "SegmentationClass"),
        ("image", "label"),
        ("images", "labels"),
        ("img", "mask"),
    ],
)
def test_folders_may_be_called_as_in_ade20k_and_voc(
    tmp_path: Path, images: str, masks: str
) -> None:
    drawn = mask_folder(tmp_path / "plain", 2)
    for side, name in (("images", images), ("masks", masks)):
        (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "plain" / side).rename(tmp_path / "folder" / name)
    for read, mask in zip(masks_of_folder(tmp_path / "folder"), drawn, strict=True):
        assert (read == mask).all()


def test_folders_of_other_names_beside_masks_are_none(tmp_path: Path) -> None:
    drawn = mask_folder(tmp_path / "patches", 2)
    for name in ("label", "image"):
        (tmp_path / "patches" / name).mkdir()
        Image.new("RGB", (80, 60)).save(tmp_path / "patches" / name / "000.png")
    for read, mask in zip(
        masks_of_folder(tmp_path / "patches"),
        drawn,
        strict=True,
    ):
        assert (read == mask).all()


@pytest.mark.parametrize("turn", [3, 6])
def test_the_recipe_says_whether_masks_are_of_turned_photographs(tmp_path: Path, turn: int) -> None:
    """Refuse a half turn too: it keeps the size, so nothing else says that a mask is upside down."""
    (_, drawn) = mask_folder(tmp_path / "patches", 2)
    path = tmp_path / "patches" / "images" / "001.png"
    picture = Image.open(path)
    exif = picture.getexif()
    exif[0x0112] = turn
    picture.save(path, exif=exif)
    with refuses("unclear-exif", "source.exif", "1 photograph", "masks"):
        build(recipe_of(tmp_path / "patches"), tmp_path / "out", device="cpu", workers=1)
    stored = masks_of_folder(tmp_path / "patches", "source.exif=ignore")
    assert (stored[1] == drawn).all()


@pytest.mark.parametrize("year", ["", "2017", "_2012"])
@pytest.mark.parametrize("form", ["images/{}", "{}/images"])
def test_splits_and_pairs_by_stem(tmp_path: Path, form: str, year: str) -> None:
    mask_folder(tmp_path / "plain", 3)
    folder = tmp_path / "split"
    form = form.replace("{}", f"{{}}{year}")
    for side in ("images", "masks"):
        for number, split in enumerate(("train", "val", "val")):
            target = folder / form.format(split).replace("images", side)
            target.mkdir(parents=True, exist_ok=True)
            source = tmp_path / "plain" / side / f"{number:03d}.png"
            (target / source.name).write_bytes(source.read_bytes())
    lonely = folder / form.format("val") / "009.png"
    lonely.write_bytes((tmp_path / "plain" / "images" / "000.png").read_bytes())
    recipe = recipe_of(folder, "generator.split=validation", "source.validation_split=validation")
    source = open_source(pool_of(recipe))
    assert set(source.splits) == {"train", "validation"}
    rows = source.rows("validation", labelled=False)
    assert rows.count == 2 and rows.notes == ("1 image without a mask, and left out",)


def test_lists_of_pascal_voc_are_splits(tmp_path: Path) -> None:
    mask_folder(tmp_path / "plain", 5)
    home = tmp_path / "split" / "VOC2012"
    lists = home / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    (tmp_path / "plain" / "images").rename(home / "JPEGImages")
    (tmp_path / "plain" / "masks").rename(home / "SegmentationClass")
    for name, stems in (("train", "000 003"), ("val", "001 002 009"), ("trainval", "000 001")):
        (lists / f"{name}.txt").write_text("\n".join(stems.split()))
    source = open_source(pool_of(recipe_of(tmp_path / "split")))
    stems = {}
    for split in source.splits:
        paths = source.rows(split, labelled=False).paths() or ()
        stems[split] = sorted(Path(path).stem for path in paths)
    assert stems == {"train": ["000", "003"], "validation": ["001", "002"]}
    assert source.rows("train", labelled=False).notes == (
        "1 image in no list of ImageSets/Segmentation, and left out",
    )


def test_masks_may_be_a_column_of_a_table(tmp_path: Path) -> None:
    """In a metadata.csv beside images, and in Parquet with two columns of images."""
    drawn = mask_folder(tmp_path / "patches", 3)
    folder = tmp_path / "listed" / "train"
    folder.mkdir(parents=True)
    lines = ["file_name,mask_file_name"]
    rows = []
    for number in range(3):
        content = {}
        for side in ("images", "masks"):
            file = tmp_path / "patches" / side / f"{number:03d}.png"
            content[side] = file.read_bytes()
            (folder / f"{number}-{side}.png").write_bytes(content[side])
        lines.append(f"{number}-images.png,{number}-masks.png")
        rows.append({name: {"bytes": content[name], "path": None} for name in content})
    (folder / "metadata.csv").write_text("\n".join(lines))
    features = datasets.Features({"images": datasets.Image(), "masks": datasets.Image()})
    (tmp_path / "parquet").mkdir()
    table = datasets.Dataset.from_list(rows, features=features)
    table.to_parquet(tmp_path / "parquet" / "train.parquet")
    changes = ("source.image_column=images", "source.masks.column=masks")
    for read in (
        masks_of_folder(tmp_path / "listed"),
        masks_of_folder(tmp_path / "parquet", *changes),
    ):
        assert all((mask == other).all() for mask, other in zip(read, drawn, strict=True))


def bomb() -> bytes:
    """Return a small PNG that declares 10,000 × 10,000 pixels."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    header = struct.pack(
        ">IIBBBBB",
        10_000,
        10_000,
        8,
        0,
        0,
        0,
        0,
    )
    data = zlib.compress(bytes(10_001))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


def saved(pixels: np.ndarray, format: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format)
    return stream.getvalue()


UNFIT: dict[str, tuple[bytes, str]] = {
    "another size": (
        saved(np.zeros((60, 79), np.uint8)),
        "it has 79×60 pixels, and its image 80×60",
    ),
    "16 bits": (
        saved(np.full((60, 80), 300, np.uint16)),
        "it has the number 300, expected at most 255",
    ),
    "colours": (saved(np.zeros((60, 80, 3), np.uint8)), "it has the channels RGB"),
    "a JPEG": (saved(np.zeros((60, 80), np.uint8), "JPEG"), "it is JPEG, expected PNG"),
    "a number beyond": (
        saved(np.full((60, 80), 3, np.uint8)),
        "it has the number 3, and the recipe",
    ),
    "a bomb": (bomb(), "it declares 10000×10000 pixels"),
    "no picture": (b"no", "UnidentifiedImageError"),
    "empty": (b"", "it is empty"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_unfit_masks_are_refused_before_any_image_is_made(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "patches"
    mask_folder(folder, 3)
    content, problem = UNFIT[name]
    (folder / "masks" / "001.png").write_bytes(content)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.format(folder=folder))
    (shown,) = problems_of(
        build,
        recipe,
        tmp_path / "built",
        device="cpu",
        workers=1,
    )
    assert (shown.code, shown.path) == ("invalid-mask", "source.masks")
    assert problem in shown
    assert "row 1" in shown
    assert not list((tmp_path / "built").glob("data/**/*.parquet"))


def test_palettes_in_which_a_colour_has_several_numbers_are_refused(tmp_path: Path) -> None:
    """As those of colours reduced file by file, in which the rarest colour comes first."""
    folder = tmp_path / "patches"
    for number, mask in enumerate(mask_folder(folder, 4)):
        reduced = Image.fromarray(COLOURS[np.minimum(mask, 3)]).quantize(4)
        reduced.save(folder / "masks" / f"{number:03d}.png")
    recipe = recipe_of(folder, "source.masks.classes=[a, b, c, d]")
    with refuses(
        "invalid-mask",
        "source.masks",
        "has the number",
        "in another mask",
    ):
        build(recipe, tmp_path / "built", device="cpu", workers=1)


def test_palettes_may_be_of_any_length_and_repeat_a_colour(tmp_path: Path) -> None:
    """Two classes may share a colour, and unused numbers may have any."""
    folder = tmp_path / "patches"
    drawn = mask_folder(folder, 4)
    same = [(9, 9, 9), (200, 60, 60), (200, 60, 60)]
    for number, colours in enumerate((COLOURS.tolist(), same, same[:2])):
        mask = np.minimum(drawn[number], len(colours[:3]) - 1)
        written = Image.fromarray(mask.astype(np.uint8))
        written.putpalette(np.array(colours, np.uint8).tobytes())
        written.save(folder / "masks" / f"{number:03d}.png")
    assert build(
        recipe_of(folder),
        tmp_path / "built",
        device="cpu",
        workers=1,
    )


def test_a_size_is_judged_before_pixels_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(picture: Any) -> Any:
        raise AssertionError("it was decoded")

    monkeypatch.setattr("counterfoil.data.masks.load_image", load)
    for content, _ in (UNFIT["another size"], UNFIT["colours"], UNFIT["a bomb"]):
        with pytest.raises(ValueError, match="it "):
            decoded_mask(content, (80, 60))


FOLDERS: dict[str, tuple[Callable[[Path], Any], str, str]] = {
    "no class": (
        lambda masks: [
            path.write_bytes(saved(np.full((60, 80), 255, np.uint8))) for path in masks.iterdir()
        ],
        "invalid-mask",
        "no pixel",
    ),
    "two of one name": (
        lambda masks: (masks / "000.bmp").write_bytes(b""),
        "invalid-mask",
        "'masks/000.bmp' and 'masks/000.png'",
    ),
    "a lossy mask": (
        lambda masks: (masks / "000.png").rename(masks / "000.jpg"),
        "invalid-mask",
        "'masks/000.jpg'",
    ),
    "a link": (
        lambda masks: (
            (masks / "000.png").unlink(),
            (masks / "000.png").symlink_to("/etc/hostname"),
        ),
        "unreadable-data",
        "is a link",
    ),
    "no pair": (
        lambda masks: [path.rename(masks / f"other-{path.name}") for path in masks.iterdir()],
        "no-images",
        "mask",
    ),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_that_cannot_be_paired_are_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "patches"
    mask_folder(folder, 2)
    change, code, words = FOLDERS[name]
    change(folder / "masks")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.format(folder=folder))
    with refuses(code, None, words, kind=CounterfoilError):
        build(recipe, tmp_path / "built", device="cpu", workers=1)
