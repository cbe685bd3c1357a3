"""Make candidate captions of classes from grammars, and say in plain words what a caption adds to its class."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import ConfigDict, Field, ValidationError, model_validator

from counterfoil.arrays import Ints
from counterfoil.errors import UserError, first_of, some_of
from counterfoil.models.names import refuse_elsewhere
from counterfoil.recipe.layering import bundled_folder, text_of
from counterfoil.recipe.names import did_you_mean, is_local
from counterfoil.recipe.parts import RecipePath, RecipeProblem, as_mapping, as_sequence
from counterfoil.recipe.problems import problem_lines, shown_path
from counterfoil.recipe.prompts import ABOUT_CLASS, RecipeClass
from counterfoil.recipe.schema import with_tuples
from counterfoil.recipe.section import Section, raise_problem
from counterfoil.recipe.strict_yaml import LocatedList, LocatedMapping, Origin, read_yaml
from counterfoil.regular_files import named_path

_BARE = re.compile(r"[A-Za-z0-9_-]+")


class WordFile(Section):
    """A file of words. A plain list, or the lines of a text file, are the values of the key `kind`.

    The string below a key describes it, in messages too.

    kind: also the name of the folder of bundled files. expected, called: how messages name such a file.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)
    kind: ClassVar[str]
    expected: ClassVar[str]
    called: ClassVar[str]

    @staticmethod
    def problems(document: Mapping[str, Any]) -> Iterator[RecipeProblem]:
        """Yield every problem as (path in the file, message). Parts of a wrong type are skipped."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _whole(self) -> Self:
        problems = [
            f"{shown_path(path)}: {problem}" for path, problem in self.problems(self.model_dump())
        ]
        raise_problem("; ".join(problems) or None)
        return self

    @classmethod
    def load(cls, source: str | Path) -> Self:
        """Load a bundled name (`imagenet`), a YAML file or a plain list (YAML or .txt). UserError with all problems."""
        path = _path_of(source, cls.kind)
        kind = cls.kind
        shown = str(path)
        text = text_of(path)
        if path.suffix == ".txt":
            lines = []
            origins = []
            for number, line in enumerate(text.split("\n"), start=1):
                line = line.strip()
                if line and not line.startswith("#"):
                    lines.append(line)
                    origins.append(Origin(shown, number))
            raw = LocatedList(lines, origins)
        else:
            raw = read_yaml(text, shown)
        if isinstance(raw, LocatedList):
            raw = LocatedMapping({kind: raw}, {kind: Origin(shown)})
        if not isinstance(raw, LocatedMapping):
            raise UserError(f"{shown}: found neither keys nor a list, expected {cls.expected}")
        try:
            return cls.model_validate(with_tuples(raw), strict=True)
        except ValidationError as error:
            lines = problem_lines(cls, raw, error, across=cls.problems)
            example = bundled_folder() / kind / "wardrobe.yaml"
            raise UserError(lines, f"For an example of {cls.called}, see {example}") from error


def _path_of(source: str | Path, kind: str) -> Path:
    files = (bundled_folder() / kind).glob("*.yaml")
    known = {path.stem: path for path in sorted(files)}
    bundled = f"Bundled {kind}: {', '.join(known)}. A file is named by its path, as in"
    if isinstance(source, str):
        if source in known:
            return known[source]
        if _BARE.fullmatch(source):
            raise UserError(
                f"there are no bundled {kind} named '{source}'{did_you_mean(source, known)}",
                f"{bundled} ./{source}.yaml.",
            )
        if not is_local(source):
            raise UserError(
                f"{kind}: '{source[:200]}' is neither a bundled name nor a path",
                f"{bundled} ./{source[:100]}.",
            )
    refuse_elsewhere(str(source), kind)
    return named_path(source)


NOUN = "noun"
CLASS = "class"
PARTS = {"adjective": "adjectives", "preposition": "prepositions"}
ABOUT = (NOUN, CLASS, "category", "parent")
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
# CLIP's text encoders read 77 tokens.
LONGEST_CAPTION = 500


def grammar_problems(document: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    """Yield every problem as (path in the file, message)."""
    sections: list[tuple[RecipePath, Mapping[str, Any]]] = [((), document)]
    for name, words in as_mapping(document.get("by_name")).items():
        if isinstance(words, Mapping):
            sections.append((("by_name", name), words))
    used: set[str] = set()
    for index, template in _texts(document.get("templates")):
        path = ("templates", index)
        for problem in _text_problems(template, (*PARTS, *ABOUT)):
            yield path, problem
        placeholders = set(PLACEHOLDER.findall(template))
        used |= placeholders
        if not {NOUN, CLASS} & placeholders:
            expected = f"expected it to contain '{{{NOUN}}}' or '{{{CLASS}}}'"
            yield path, f"found '{template[:80]}', {expected}"
    for section, words in sections:
        yield from _captions(section, words)
        for key in PARTS.values():
            yield from _words(section, words, key)
    for name, nouns in as_mapping(document.get("hyponyms")).items():
        yield from _words(("hyponyms",), {name: nouns}, name)
        if isinstance(nouns, Sequence) and not nouns:
            yield ("hyponyms", name), "found an empty list, expected at least one noun"
    for part, key in PARTS.items():
        for section, words in sections:
            # Words that no template uses would be dropped silently.
            if part not in used and any(as_sequence(words.get(key))):
                problem = f"no template uses '{{{part}}}'; expected one that does, or no {key}"
                yield (*section, key), problem
    yield from uncovered_names(document)
    has_captions = any(words.get("captions") for _, words in sections)
    if not document.get("templates") and not has_captions:
        yield (), "found no captions, expected `templates` or `captions`"


def uncovered_names(document: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    """Yield the names of `by_name` that are not in `covers`, if a file of words has this key."""
    covers = [name for _, name in _texts(document.get("covers"))]
    for name in as_mapping(document.get("by_name")) if covers else ():
        if name not in covers:
            expected = f"expected a name of `covers`{did_you_mean(name, covers)}"
            yield ("by_name", name), f"found '{name[:80]}', {expected}"


def _captions(path: RecipePath, words: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    for index, caption in _texts(words.get("captions")):
        for problem in _text_problems(caption, ABOUT):
            yield (*path, "captions", index), problem
    reference = words.get("reference")
    if isinstance(reference, str):
        for problem in _text_problems(reference, ABOUT):
            yield (*path, "reference"), problem


def _words(
    path: RecipePath,
    words: Mapping[str, Any],
    key: str,
) -> Iterator[RecipeProblem]:
    """Yield problems of adjectives, prepositions and nouns. They must be plain words, and each word may occur once."""
    seen: set[str] = set()
    for index, word in _texts(words.get(key)):
        word_path = (*path, key, index)
        for problem in _text_problems(word, ()):
            yield word_path, problem
        if word in seen:
            yield word_path, f"found '{word[:80]}' again, expected each word once"
        seen.add(word)


def _text_problems(text: str, placeholders: Sequence[str]) -> Iterator[str]:
    shown = text
    if len(text) > 80:
        shown = f"{text[:77]}…"
    if not text.strip():
        yield "found empty text, expected words (for none, write null without quotes)"
    elif not " ".join(text.split()).isprintable():
        yield f"found {shown!r}, expected printable text"
    if len(text) > LONGEST_CAPTION:
        yield f"found '{shown}' of {len(text):,} characters, expected at most {LONGEST_CAPTION}"
    expected = "plain words"
    if placeholders:
        expected = ", ".join(f"'{{{name}}}'" for name in placeholders)
    for name in dict.fromkeys(PLACEHOLDER.findall(text)):
        if name not in placeholders:
            close = did_you_mean(name, placeholders)
            yield f"unknown placeholder '{{{name[:40]}}}' in '{shown}', expected {expected}{close}"
    if re.search(r"[{}]", PLACEHOLDER.sub("", text)):
        yield f"found an unmatched brace in '{shown}'; use braces only around placeholders"


def _texts(value: Any) -> Iterator[tuple[int, str]]:
    for index, item in enumerate(as_sequence(value)):
        if isinstance(item, str):
            yield index, item


CaptionNoun = Literal["class", "category", "hyponyms"]
# The most captions of one class. The largest class of CIFAR-Extended has 15,840.
MOST_CAPTIONS = 20_000
# The name of the bundled grammar that fits any class names.
ANY = "any"


@dataclass(frozen=True, slots=True)
class ClassCaptions:
    """The captions of a class, without duplicates."""

    reference: str
    """The caption that only names the class."""
    texts: tuple[str, ...]
    """The candidates."""


# Why a class has no captions by a grammar, and what to do about it.
Misfit = tuple[str, str]


class WordsOfClass(Section):
    """Words for the classes of one name or category, besides those for all classes."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    adjectives: tuple[str | None, ...] = ()
    """More adjectives, for these classes only."""
    prepositions: tuple[str | None, ...] = ()
    """More prepositions, for these classes only."""
    captions: tuple[str, ...] = ()
    """More complete captions, for these classes only."""
    reference: str | None = None
    """The reference caption of these classes."""


class CaptionGrammar(WordFile):
    """Candidate captions that describe what is hard, or easy, about a class."""

    kind = "captions"
    expected = "a caption grammar or a list of captions"
    called = "a grammar"
    problems = staticmethod(grammar_problems)
    about: str | None = None
    """Where the words come from, for people."""
    covers: tuple[str, ...] = ()
    (
        "The names and categories of classes that the grammar was written for; a recipe may use some of them."
        " Without it, every name in `by_name` must be of a class of the recipe."
    )
    reference: str = "a photo of a {noun}"
    """The caption that names only the class; `{noun}` is its name or category, never a hyponym."""
    templates: tuple[str, ...] = ()
    (
        "Captions with `{noun}` (or `{class}`), and optionally `{adjective}`, `{preposition}`, `{category}` and"
        " `{parent}`. Every combination is used; an empty part leaves no space."
    )
    adjectives: tuple[str | None, ...] = (None,)
    """Values of `{adjective}`; null leaves it out."""
    prepositions: tuple[str | None, ...] = (None,)
    """Values of `{preposition}`; null leaves it out."""
    captions: tuple[str, ...] = ()
    (
        "Complete captions, in addition to templates or instead of them. They may use `{noun}`, `{class}`,"
        " `{category}` and `{parent}`."
    )
    by_name: dict[str, WordsOfClass] = Field(default_factory=dict)
    """More words for some classes, by class name or category; a class gets the words of both."""
    hyponyms: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Hyponyms by class name: the values of `{noun}` with `noun: hyponyms`."""

    def captions_or_misfits(
        self,
        cls: RecipeClass,
        noun: CaptionNoun,
    ) -> ClassCaptions | list[Misfit]:
        """Return the captions of a class, or every reason why it has none."""
        words_by_name = []
        for name in listed_names(cls):
            if name in self.by_name:
                words_by_name.append(self.by_name[name])
        texts = [*self.templates, *self.captions]
        # A reference for the class's name takes precedence over a reference for its category. A reference for the
        # category takes precedence over the reference for all classes.
        reference = self.reference
        for words in words_by_name:
            texts += words.captions
            if words.reference is not None:
                reference = words.reference
        called = cls.category if noun == "category" else cls.name
        nouns: Sequence[str] = ()
        if noun == "hyponyms":
            nouns = self.hyponyms.get(cls.name, ())
        elif called is not None:
            nouns = (called,)
        fillings: dict[str, Sequence[str | None]] = {CLASS: (cls.name,), NOUN: nouns}
        for word in ABOUT_CLASS:
            fillings[word] = (getattr(cls, word),)
        for part, key in PARTS.items():
            values = dict.fromkeys(getattr(self, key))
            for words in words_by_name:
                values |= dict.fromkeys(getattr(words, key))
            fillings[part] = tuple(values) or (None,)
        misfits = []
        if noun == "hyponyms" and not nouns:
            advice = "List them under `hyponyms` in the grammar, or set noun: class."
            misfits.append((f"has no hyponyms{did_you_mean(cls.name, self.hyponyms)}", advice))
        for word in ABOUT_CLASS:
            if getattr(cls, word) is not None:
                continue
            way_out = None
            if noun == word:
                way_out = "set noun: class"
            elif any(f"{{{word}}}" in text for text in (*texts, reference)):
                way_out = f"remove {{{word}}} from the captions"
            if way_out is not None:
                advice = f"Give it a `{word}` in the recipe, or {way_out}."
                misfits.append((f"has no {word}", advice))
        count = 0
        for text in texts:
            placeholders = set(PLACEHOLDER.findall(text))
            count += prod(len(fillings[name]) for name in placeholders)
        if count > MOST_CAPTIONS:
            reason = f"has {count:,} captions, expected at most {MOST_CAPTIONS:,}"
            misfits.append((reason, "Leave out some adjectives, prepositions or hyponyms."))
        if misfits:
            return misfits
        (reference_text,) = _filled(reference, fillings | {NOUN: (called,)})
        captions: dict[str, None] = {}
        for template in texts:
            captions |= dict.fromkeys(_filled(template, fillings))
        captions.pop(reference_text, None)
        if not captions:
            advice = "Give the grammar `templates` with more words, or `captions`."
            return [(f"has no caption other than its reference '{reference_text}'", advice)]
        return ClassCaptions(reference_text, tuple(captions))


def _filled(
    template: str,
    fillings: Mapping[str, Sequence[str | None]],
) -> Iterator[str]:
    """Yield the template with every combination of words for its placeholders. Words that look like a placeholder are
    not filled in again.
    """
    names = tuple(dict.fromkeys(PLACEHOLDER.findall(template)))
    for words in product(*(fillings[name] for name in names)):
        chosen = dict(zip(names, words, strict=True))
        text = PLACEHOLDER.sub(lambda match, chosen=chosen: chosen[match[1]] or "", template)
        yield " ".join(text.split())


# The most captions of all classes together. The text encoder of ViT-B/32 takes an hour for them on a CPU.
MOST_TEXTS = 500_000

_MOST_PROBLEMS = 20
Gathered = tuple[tuple[str, ...], tuple[int, ...], tuple[Ints, ...]]


def gather_captions(
    grammar: CaptionGrammar,
    classes: Sequence[RecipeClass],
    noun: CaptionNoun,
) -> Gathered:
    """Return texts, references and candidates, as in `CandidateCaptions`. Raise UserError with all misfits."""
    problems = list(names_of_no_class("captions", grammar.covers, grammar.by_name, classes))
    together: dict[Misfit, list[str]] = {}
    by_class: list[tuple[str, tuple[str, ...]]] = []
    distinct: set[str] = set()
    for cls in classes:
        captions = grammar.captions_or_misfits(cls, noun)
        if not isinstance(captions, ClassCaptions):
            for misfit in captions:
                together.setdefault(misfit, []).append(cls.name)
            continue
        by_class.append((captions.reference, captions.texts))
        distinct.add(captions.reference)
        distinct.update(captions.texts)
        if len(distinct) > MOST_TEXTS:
            reached = f"class '{cls.name}', {len(by_class)} of {len(classes)}"
            raise UserError(
                f"captions: more than {MOST_TEXTS:,} in total, reached at {reached}",
                "Set noun: category, or leave out adjectives, prepositions or hyponyms.",
            )
    hints: dict[str, None] = {}
    for (reason, advice), names in together.items():
        quoted = [f"'{name}'" for name in names]
        which = f"class {quoted[0]}"
        if len(names) > 1:
            which = f"each of {len(names):,} classes ({some_of(quoted)})"
        problems.append(f"captions: {which} {reason}")
        hints[advice] = None
    if problems:
        raise UserError(first_of(problems), " ".join(hints) or None)
    return caption_table(by_class)


def caption_table(captions: Iterable[tuple[str, Iterable[str]]]) -> Gathered:
    """Return texts, references and candidates of classes, from the reference and the captions of each."""
    rows: dict[str, int] = {}
    references = []
    candidates = []
    for reference, texts in captions:
        references.append(rows.setdefault(reference, len(rows)))
        of_class = [rows.setdefault(text, len(rows)) for text in texts]
        candidates.append(np.asarray(of_class, dtype=np.int64))
    return tuple(rows), tuple(references), tuple(candidates)


def listed_names(cls: RecipeClass) -> list[str]:
    """Return the names by which a file of words may list a class, the category first."""
    if cls.category is None or cls.category == cls.name:
        return [cls.name]
    return [cls.category, cls.name]


def names_of_no_class(
    kind: str,
    covers: Sequence[str],
    by_name: Iterable[str],
    classes: Sequence[RecipeClass],
) -> Iterator[str]:
    """Yield problems of names that match no class. A file with `covers` was already compared with those names."""
    if covers:
        return
    known: dict[str, None] = {}
    for cls in classes:
        known |= dict.fromkeys(listed_names(cls))
    unknown = [name for name in by_name if name not in known]
    for position, name in enumerate(unknown):
        # Searching for thousands of similar names is slow.
        close = did_you_mean(name, known) if position < _MOST_PROBLEMS else ""
        expected = f"expected the name or category of a class of the recipe{close}"
        yield f"{kind}: by_name.{name[:80]}: {expected}"


_LEAD = re.compile(
    r"^(?:(?:an? )?(?:photo|photograph|picture|image)(?: of(?= )|$) ?)?(?:(?:an?|the) )?",
    re.IGNORECASE,
)
_COMPANION_BEFORE = re.compile(r"(?:an? )?(.+) and an?")
_COMPANION_AFTER = re.compile(r"and (an? .+)")


def words_of(
    class_name: str,
    caption: str,
    reference: str,
    role: Literal["hard", "far_from"],
) -> str:
    """Describe the images of a class that are near a caption ("checked coat") or far from it ("coat, not checked"). The
    name of the class replaces the noun of the reference caption. A caption with another noun is shown whole ("kob
    inside (deer)").
    """
    subject = _without_lead(caption)
    added = _added(subject, _without_lead(reference)) or _added(subject, class_name)
    if added is None:
        if role == "hard":
            return f"{subject} ({class_name})"
        return f"{class_name}, not {article_for(subject)} {subject}"
    adjective, after = added
    if role == "hard":
        parts = (adjective, class_name, after)
        return " ".join(filter(None, parts))
    if adjective.endswith(" of"):
        return f"{class_name}, not a {adjective} {class_name} {after}".rstrip()
    if adjective and after:
        return f"{class_name}, not {article_for(adjective)} {adjective} one {after}"
    if adjective:
        return f"{class_name}, not {adjective}"
    if after.startswith("with "):
        return f"{class_name} without {after.removeprefix('with ')}"
    return f"{class_name} not {after}" if after else class_name


def _without_lead(text: str) -> str:
    plain = " ".join(text.split())
    return _LEAD.sub("", plain, count=1)


def _added(subject: str, noun: str) -> tuple[str, str] | None:
    """Return the words before and after the noun; None if the subject does not contain it."""
    words = subject.split()
    folded = subject.casefold().split()
    sought = noun.casefold().split()
    size = len(sought)
    starts = range(len(folded) - size + 1) if sought else ()
    for start in starts:
        end = start + size
        if folded[start:end] == sought:
            break
    else:
        return None
    before = " ".join(words[:start])
    after = " ".join(words[end:])
    if companion := _COMPANION_BEFORE.fullmatch(before):
        before = ""
        after = f"with {article_for(companion[1])} {companion[1]} {after}".strip()
    elif companion := _COMPANION_AFTER.fullmatch(after):
        after = f"with {companion[1]}"
    return before, after


def article_for(words: str) -> str:
    """Return "a" or "an", by the first letter."""
    return "an" if words[:1].lower() in "aeiou" else "a"
