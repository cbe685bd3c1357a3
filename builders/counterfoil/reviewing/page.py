"""The page on which people select images: one HTML file, with no outside resource."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from counterfoil import __version__
from counterfoil.recipe import sha256_json
from counterfoil.report.templates import template_environment
from counterfoil.reviewing.accepted_images import AcceptedImage, control_id, image_id
from counterfoil.reviewing.answers import FORM, MOST_NAME
from counterfoil.reviewing.grids import Grid, ShownPicture
from counterfoil.reviewing.wording import asked_of_class, asked_of_shift

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe

TEMPLATE = "review.html.j2"
_SHEET = 16  # characters: which page of a dataset answers are of


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
