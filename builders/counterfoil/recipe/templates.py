"""The text templates of a recipe: `{class}`, `{parent}`, `{category}` and `{caption}`, checked and filled."""

from __future__ import annotations

import re
from collections.abc import Sequence

from counterfoil.recipe.names import did_you_mean

CLASS = "class"
CLASS_ID = "class_id"
# What a class list may say of a class beside its name, and prompts may use.
ABOUT_CLASS = ("parent", "category")
# What prompts that edit a real image may hold: what is told of that image.
CAPTION = "caption"
LONGEST_KEY = 200
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def fill(template: str, class_text: str, about: Sequence[str | None] = (), caption: str | None = None) -> str:
    """The template with `{class}` replaced by a class name or a placeholder token.

    `about` are the class's words for `ABOUT_CLASS`, `caption` what is told of the image that is edited; ValueError for
    a template that uses one that is None. What is filled in is never read as a template.
    """
    words = {CLASS: class_text, CAPTION: caption} | dict(zip(ABOUT_CLASS, about, strict=False))

    def word(found: re.Match[str]) -> str:
        text = words.get(found[1])
        if text is None:
            raise ValueError(f"no {found[1]} to fill '{template}' with")
        return text

    return _PLACEHOLDER.sub(word, template)


def uses(template: str | None) -> tuple[str, ...]:
    """The words of `ABOUT_CLASS` that a template uses; none where there is no template."""
    if template is None:
        return ()
    found = set(_PLACEHOLDER.findall(template))
    return tuple(word for word in ABOUT_CLASS if word in found)


def asks_caption(template: str | None) -> bool:
    """Whether a template asks for the caption of an image."""
    return template is not None and CAPTION in _PLACEHOLDER.findall(template)


def template_problem(
    template: str, *, with_class: bool | None, about_class: bool = False, captioned: bool = False
) -> str | None:
    """What is wrong with a template, or None.

    `with_class`: whether the template must hold `{class}` (prompts, object captions) or must not (the
    caption of a shift, which says only the shift); None: it may. `about_class`: whether it may hold `{parent}` and
    `{category}` too; `captioned`: and `{caption}`, in place of `{class}` also.
    """
    if not template.strip():
        return "is empty, expected text"
    known = (CLASS, *ABOUT_CLASS) if about_class else (CLASS,)
    listed = " or ".join(f"'{{{name}}}'" for name in known)
    names = _PLACEHOLDER.findall(template)
    for name in names:
        if with_class is False and name in (CLASS, *ABOUT_CLASS):
            return f"found '{template}', expected a caption of the shift alone, without '{{{name}}}'"
        if captioned and name == CAPTION:
            continue
        if name not in known:
            close = did_you_mean(name, known)
            hint = close.replace("mean '", "mean '{").replace("'?", "}'?")
            expected = f"expected {listed}" if about_class else f"the only one is {listed}"
            return f"unknown placeholder '{{{name}}}' in '{template}'; {expected}{hint}"
    if re.search(r"[{}]", _PLACEHOLDER.sub("", template)):
        return f"a lone brace in '{template}'; braces only stand in {listed}"
    if with_class and CLASS not in names and not (captioned and CAPTION in names):
        return f"found '{template}', expected '{{{CLASS}}}' somewhere in it"
    return None


def embedding_key(template: str, class_id: str) -> str:
    """The key of a class's vector: the template with `{class_id}` replaced."""
    return template.replace(f"{{{CLASS_ID}}}", class_id)


def embedding_key_problem(template: str) -> str | None:
    """What is wrong with the template of a vector's key, or None."""
    if not template.strip() or len(template) > LONGEST_KEY or not template.isprintable():
        return f"found {template[:80]!r}, expected a key of 1 to {LONGEST_KEY} printable characters"
    if re.search(r"[{}]", embedding_key(template, "")):
        return f"found '{template}', expected no braces but those of '{{{CLASS_ID}}}'"
    return None


def own_key(shift: str, template: str) -> str:
    """The template of a shift's keys in a dataset's own file, which holds the vectors of several files of any keys."""
    return f"{shift}/{{{CLASS_ID}}}" if f"{{{CLASS_ID}}}" in template else shift
