"""What may be wrong with a caption grammar beside the types of its keys; parts that are wrong themselves are borne."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from counterfoil.recipe.checks import RecipePath, RecipeProblem
from counterfoil.recipe.names import did_you_mean

NOUN, CLASS = "noun", "class"
PARTS = {"adjective": "adjectives", "preposition": "prepositions"}
"""What a template combines, and the keys that list it."""
ABOUT = (NOUN, CLASS, "category", "parent")
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")

# CLIP's text encoders read 77 tokens; what is longer is no caption.
LONGEST_CAPTION = 500


def grammar_problems(grammar: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    """Every problem as (path in the file, message)."""
    by_name = {name: own for name, own in _mapping(grammar.get("by_name")).items() if isinstance(own, Mapping)}
    places: list[tuple[RecipePath, Mapping[str, Any]]] = [((), grammar)]
    places += [(("by_name", name), own) for name, own in by_name.items()]
    yield from _templates(grammar)
    for path, words in places:
        yield from _captions(path, words)
        for key in PARTS.values():
            yield from _words(path, words, key)
    for name, nouns in _mapping(grammar.get("hyponyms")).items():
        yield from _words(("hyponyms",), {name: nouns}, name)
        if isinstance(nouns, Sequence) and not nouns:
            yield ("hyponyms", name), "found an empty list, expected at least one noun"
    yield from _unused_parts(grammar, places)
    yield from _not_covered(grammar, by_name)
    if not grammar.get("templates") and not any(words.get("captions") for _, words in places):
        yield (), "found no captions, expected `templates` or `captions`"


def _templates(grammar: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    for index, template in _texts(grammar.get("templates")):
        path = ("templates", index)
        yield from ((path, problem) for problem in _text_problems(template, (*PARTS, *ABOUT)))
        if not {NOUN, CLASS} & set(PLACEHOLDER.findall(template)):
            yield path, f"found '{template[:80]}', expected '{{{NOUN}}}' or '{{{CLASS}}}' somewhere in it"


def _captions(path: RecipePath, words: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    for index, caption in _texts(words.get("captions")):
        yield from (((*path, "captions", index), problem) for problem in _text_problems(caption, ABOUT))
    if isinstance(words.get("reference"), str):
        yield from (((*path, "reference"), problem) for problem in _text_problems(words["reference"], ABOUT))


def _words(path: RecipePath, words: Mapping[str, Any], key: str) -> Iterator[RecipeProblem]:
    """Adjectives, prepositions and nouns are plain words, each once."""
    seen: set[str] = set()
    for index, word in _texts(words.get(key)):
        here = (*path, key, index)
        yield from ((here, problem) for problem in _text_problems(word, ()))
        if word in seen:
            yield here, f"found '{word[:80]}' again, expected each once"
        seen.add(word)


def _text_problems(text: str, placeholders: Sequence[str]) -> Iterator[str]:
    shown = text if len(text) <= 80 else f"{text[:77]}…"
    if not text.strip():
        yield "found empty text, expected words (null, without quotes, stands for none)"
    elif not all(character.isprintable() or character.isspace() for character in text):
        yield f"found {shown!r}, expected text that can be printed"
    if len(text) > LONGEST_CAPTION:
        yield f"found '{shown}' of {len(text):,} characters, expected at most {LONGEST_CAPTION}"
    listed = ", ".join(f"'{{{name}}}'" for name in placeholders)
    for name in dict.fromkeys(PLACEHOLDER.findall(text)):
        if name not in placeholders:
            expected = f"expected {listed}" if placeholders else "expected plain words"
            yield f"unknown placeholder '{{{name[:40]}}}' in '{shown}', {expected}{did_you_mean(name, placeholders)}"
    if re.search(r"[{}]", PLACEHOLDER.sub("", text)):
        yield f"a lone brace in '{shown}'; braces stand around placeholders alone"


def _unused_parts(
    grammar: Mapping[str, Any], places: Sequence[tuple[RecipePath, Mapping[str, Any]]]
) -> Iterator[RecipeProblem]:
    """Words that no template asks for: they would be left out without a word."""
    used = {name for _, text in _texts(grammar.get("templates")) for name in PLACEHOLDER.findall(text)}
    for part, key in PARTS.items():
        for path, words in places:
            if part not in used and any(word for word in _sequence(words.get(key))):
                yield (*path, key), f"no template has '{{{part}}}'; expected one that does, or no {key}"


def _not_covered(grammar: Mapping[str, Any], by_name: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    covers = [name for _, name in _texts(grammar.get("covers"))]
    for name in by_name:
        if covers and name not in covers:
            yield ("by_name", name), f"found '{name[:80]}', expected a name of `covers`{did_you_mean(name, covers)}"


def _texts(value: Any) -> Iterator[tuple[int, str]]:
    return ((index, item) for index, item in enumerate(_sequence(value)) if isinstance(item, str))


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
