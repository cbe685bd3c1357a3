"""The text templates of a recipe: the one placeholder `{class}`, checked and filled."""

from __future__ import annotations

import re

from counterfoil.recipe.names import did_you_mean

CLASS = "{class}"
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def fill(template: str, class_text: str) -> str:
    """The template with `{class}` replaced by a class name or a placeholder token."""
    return template.replace(CLASS, class_text)


def template_problem(template: str, *, with_class: bool) -> str | None:
    """What is wrong with a template, or None.

    `with_class`: whether the template must hold `{class}` (prompts, object captions) or must not (the
    caption of a shift, which says only the shift).
    """
    if not template.strip():
        return "is empty, expected text"
    names = _PLACEHOLDER.findall(template)
    for name in names:
        if name != "class":
            hint = did_you_mean(name, ["class"]).replace("'class'", f"'{CLASS}'")
            return f"unknown placeholder '{{{name}}}' in '{template}'; the only one is '{CLASS}'{hint}"
    if re.search(r"[{}]", _PLACEHOLDER.sub("", template)):
        return f"a lone brace in '{template}'; braces only stand in '{CLASS}'"
    if with_class and not names:
        return f"found '{template}', expected '{CLASS}' somewhere in it"
    if not with_class and names:
        return f"found '{template}', expected a caption of the shift alone, without '{CLASS}'"
    return None
