"""A class in a context as a caption and as a prompt, and the context alone again."""

from __future__ import annotations

_CONTEXT, _CLASS = "{context}", "{class}"


def caption_of(template: str, class_name: str, context: str) -> str:
    """`a photo of a sandal in the snow` of `a photo of a {class} {context}`."""
    before, _, after = template.partition(_CONTEXT)
    return f"{before}{context}{after}".replace(_CLASS, class_name)


def prompt_in(template: str, context: str) -> str:
    """The same with `{class}` left for its name or its token."""
    return template.replace(_CONTEXT, context)


def plain_prompt(template: str) -> str:
    """The template without its context: `a photo of a {class}`."""
    return " ".join(template.replace(_CONTEXT, " ").split())


def plain_caption(template: str, class_name: str) -> str:
    """The class alone, which captions of contexts are compared with."""
    return plain_prompt(template).replace(_CLASS, class_name)


def words_alone(template: str, class_name: str, caption: str) -> str:
    """The context of a caption that `caption_of` made."""
    before, _, after = template.partition(_CONTEXT)
    return caption.removeprefix(before.replace(_CLASS, class_name)).removesuffix(after.replace(_CLASS, class_name))
