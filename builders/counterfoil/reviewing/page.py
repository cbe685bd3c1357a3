"""The page on which people select images: its words, its small pictures, and one HTML file with no outside resource."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil import __version__
from counterfoil.card.pictures import encoded_images, reduced
from counterfoil.errors import RunFailure
from counterfoil.recipe import sha256_json
from counterfoil.report.templates import template_environment
from counterfoil.report.words import spoken
from counterfoil.reviewing.answers import FORM, MOST_NAME
from counterfoil.reviewing.grids import AcceptedImage, Grid, ShownPicture, control_id, image_id
from counterfoil.store.receipts import remake_hint

if TYPE_CHECKING:
    from PIL.Image import Image

    from counterfoil.recipe import Recipe, RecipeClass, Shift
    from counterfoil.store import Receipt

TEMPLATE = "review.html.j2"
SIDE = 160
_SHEET = 16  # characters: which page of a dataset answers are of
# Pictures have at most 8 kB each, and none tells how large its image was.
_MOST_BYTES = 8_000
# Noise compresses badly: such pictures are made worse, then smaller, until they fit.
_WAYS = ((SIDE, 75), (SIDE, 50), (SIDE, 25), (SIDE // 2, 50), (SIDE // 2, 10))
_LONGEST = 160
_CAPTIONS_BEGIN = ("a photo of ", "a photo ")


def page_of_review(
    recipe: Recipe, directory: str, content: str, grids: Sequence[Grid], pictures: Mapping[ShownPicture, str]
) -> str:
    """The page as text: equal datasets and settings give equal bytes. `pictures` are data URIs."""
    ids = {picture: _id(recipe, content, picture) for picture in pictures}
    asked = {cls.id: asked_of_class(cls) for cls in recipe.classes}
    shifts = {shift.name: asked_of_shift(shift) for shift in recipe.all_shifts()}
    shown: list[dict[str, Any]] = [
        {
            "task": grid.task,
            "label": grid.label,
            "asked": (asked if grid.task == "class" else shifts)[grid.label],
            "shown": [ids[picture] for picture in grid.pictures],
        }
        for grid in grids
    ]
    environment = template_environment(TEMPLATE)
    return environment.get_template(TEMPLATE).render(
        name=recipe.name,
        directory=directory,
        data={
            **FORM,
            "content": content,
            "sheet": sha256_json([content, [[grid["task"], grid["label"], grid["shown"]] for grid in shown]])[:_SHEET],
            "grids": shown,
            "pictures": {ids[picture]: uri for picture, uri in sorted(pictures.items(), key=lambda each: ids[each[0]])},
        },
        most_name=MOST_NAME,
        tasks=sorted({grid.task for grid in grids}),
        version=__version__,
    )


def _id(recipe: Recipe, content: str, picture: ShownPicture) -> str:
    if isinstance(picture, AcceptedImage):
        return image_id(content, picture)
    return control_id(content, recipe.classes[picture.label].id, picture.number)


def thumbnails(
    directory: Path, receipts: Sequence[Receipt], images: Sequence[AcceptedImage]
) -> Mapping[AcceptedImage, str]:
    """A picture of each image. RunFailure for one that is not there or does not open."""
    by_receipt: dict[int, dict[str, AcceptedImage]] = {}
    for image in images:
        by_receipt.setdefault(image.at, {})[image.key] = image
    found: dict[AcceptedImage, str] = {}
    for at, own in sorted(by_receipt.items()):
        receipt = receipts[at]
        file = receipt.file("data")
        assert file is not None  # its rows were read
        for key, encoded in encoded_images(directory / file.path, set(own)):
            found[own[key]] = thumbnail(reduced(encoded, f"{file.path}: {key}", SIDE))
        missing = [key for key, image in own.items() if image not in found]
        if missing:
            raise RunFailure(f"{directory / file.path} has no row {missing[0]}", remake_hint(directory, receipt.path))
    return found


def thumbnail(image: Image) -> str:
    """One picture, at most 160 pixels a side."""
    encoded = b""
    for side, quality in _WAYS:
        small = image.copy()
        small.thumbnail((side, side))
        with io.BytesIO() as file:
            small.save(file, "WEBP", quality=quality, method=4)
            encoded = file.getvalue()
        if len(encoded) <= _MOST_BYTES:
            break
    return f"data:image/webp;base64,{base64.b64encode(encoded).decode()}"


def asked_of_class(cls: RecipeClass) -> str:
    """“Select every image that shows a coat”."""
    return f"Select every image that shows {_with_article(_short(cls.name))}"


def asked_of_shift(shift: Shift) -> str:
    """“Select every image that shows this: in the snow”."""
    return f"Select every image that shows this: {shift_words(shift)}"


def shift_words(shift: Shift) -> str:
    """A shift's caption without “a photo”; its name where it has none."""
    caption = " ".join((shift.caption or "").split())
    for beginning in _CAPTIONS_BEGIN:
        if caption.lower().startswith(beginning):
            caption = caption[len(beginning) :]
            break
    return _short(caption or spoken(shift.name))


def _with_article(name: str) -> str:
    """A name with “a” or “an”; names that look like a plural (“trousers”), or begin with no letter, stand alone."""
    plural = name.endswith("s") and not name.endswith(("ss", "us", "is"))
    if plural or not name[:1].isalpha():
        return name
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
