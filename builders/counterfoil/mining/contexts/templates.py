"""A class in a context as a prompt, and without it; and the context of a caption again.

`ContextsSettings.caption` fills the same templates with names, for CLIP.
"""

from __future__ import annotations

from counterfoil.recipe.schema_mine import ContextsSettings

_CONTEXT, _CLASS = "{context}", "{class}"


def prompt_in(settings: ContextsSettings, context: str) -> str:
    """The template in a context, with `{class}` left for its name or its token."""
    return settings.prompt.replace(_CONTEXT, context)


def plain_prompt(settings: ContextsSettings) -> str:
    """The template without a context: `a photo of a {class}`."""
    return " ".join(settings.prompt.replace(_CONTEXT, " ").split())


def plain_caption(settings: ContextsSettings, class_name: str) -> str:
    """The class alone, which captions of contexts are compared with."""
    return plain_prompt(settings).replace(_CLASS, class_name)


def words_alone(settings: ContextsSettings, class_name: str, caption: str) -> str:
    """The context of a caption that `settings.caption` made of this class."""
    before, _, after = settings.prompt.partition(_CONTEXT)
    return caption.removeprefix(before.replace(_CLASS, class_name)).removesuffix(after.replace(_CLASS, class_name))
