"""Plain texts in a recipe where they can only mean one thing, spelled out before layers are laid.

`classes: [mug]` is a class of that name, `base: a photo of a {class}` a prompt. Spelled out, a prompt that is laid over
a whole shift changes the prompt alone, and a class list reads the same whether ids were written or not.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from counterfoil.recipe.strict_yaml import LocatedList, LocatedMapping, Origin


def class_slug(name: str) -> str:
    """The id that a class has by its name: lower case, `-` for what an id cannot hold; empty where nothing is left.

    `Café au lait` is `cafe-au-lait`, `coffee_mug` stays.
    """
    plain = "".join(each for each in unicodedata.normalize("NFKD", name) if not unicodedata.combining(each))
    return re.sub(r"[^a-z0-9_]+", "-", plain.lower()).strip("-")


def spell_out(recipe: LocatedMapping) -> None:
    """Spell out the short forms of a file's recipe, in place. What is of another form is left to the schema."""
    source, prompts = recipe.get("source"), recipe.get("prompts")
    if isinstance(source, LocatedMapping) and isinstance(source.get("classes"), LocatedList):
        listed = source["classes"]
        listed[:] = [_class(entry, origin) for entry, origin in zip(listed, listed.origins, strict=True)]
    if not isinstance(prompts, LocatedMapping):
        return
    _prompt(prompts, "base")
    shifts = prompts.get("shifts")
    if isinstance(shifts, LocatedMapping):
        for name in shifts:
            _prompt(shifts, name)


def _class(entry: Any, origin: Origin) -> Any:
    if isinstance(entry, str):
        entry = LocatedMapping({"name": entry}, {"name": origin})
    if isinstance(entry, LocatedMapping) and entry.get("id") is None and isinstance(entry.get("name"), str):
        slug = class_slug(entry["name"])
        if slug:
            entry["id"], entry.origins["id"] = slug, entry.origins["name"]
    return entry


def _prompt(specs: LocatedMapping, name: str) -> None:
    if isinstance(specs.get(name), str):
        specs[name] = LocatedMapping({"prompt": specs[name]}, {"prompt": specs.origins[name]})
