"""What the page asks, in words: a class by its name, a shift by its caption."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from counterfoil.recipe import RecipeClass, Shift

_LONGEST = 160
_CAPTIONS_BEGIN = ("a photo of ", "a photo ")


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
    return _short(caption or shift.name.replace("_", " "))


def _with_article(name: str) -> str:
    """A name with “a” or “an”; names that look like a plural (“trousers”), or begin with no letter, stand alone."""
    plural = name.endswith("s") and not name.endswith(("ss", "us", "is"))
    if plural or not name[:1].isalpha():
        return name
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
