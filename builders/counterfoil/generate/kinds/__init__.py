"""Make the images of each kind of generator. Each kind has a file, and `kind.py` describes the
methods."""

from __future__ import annotations

from collections.abc import Mapping

from counterfoil.generate.kinds.corrupt import CorruptMaker
from counterfoil.generate.kinds.diffusers import DiffusersMaker
from counterfoil.generate.kinds.drawn_elsewhere import DrawnElsewhereMaker
from counterfoil.generate.kinds.edit import EditMaker
from counterfoil.generate.kinds.kind import ChosenTable, ImageMaker, Materials
from counterfoil.generate.kinds.retrieve import RetrieveMaker
from counterfoil.generate.kinds.rows import RowsMaker
from counterfoil.recipe import Recipe

# `MAKERS` maps the key of a kind (`recipe/kinds/`) to the maker of its images.
MAKERS: Mapping[str, ImageMaker] = {
    "diffusers": DiffusersMaker(),
    "rows": RowsMaker(),
    "drawn_elsewhere": DrawnElsewhereMaker(),
    "retrieve": RetrieveMaker(),
    "edit": EditMaker(),
    "corrupt": CorruptMaker(),
}


def maker_of(recipe: Recipe) -> ImageMaker:
    kind = recipe.kind
    return MAKERS[kind.key] if kind.key in MAKERS else kind.maker()


__all__ = ["MAKERS", "ChosenTable", "ImageMaker", "Materials", "maker_of"]
