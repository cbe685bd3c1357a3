"""Caption grammars: the words from which the candidate captions of a class are made, and how they are read.

A grammar is a YAML file: every template is filled with every combination of the parts that it uses (Jain 2023, A.6: "a
photo of a <adjective> <noun> <preposition>", adjective and preposition optional). A plain list of captions will do too,
in YAML or as text with one caption a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, model_validator

from counterfoil.errors import UserError
from counterfoil.mining.captions.checks import NOUN, PARTS, PLACEHOLDER, grammar_problems
from counterfoil.mining.word_files import read_words, with_tuples
from counterfoil.recipe.layering import bundled_folder
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.problems import problem_lines, shown_path
from counterfoil.recipe.prompts import ABOUT_CLASS, RecipeClass
from counterfoil.section import Section, refuse

CaptionNoun = Literal["class", "category", "hyponyms"]

MOST_CAPTIONS = 20_000
"""Of one class. CIFAR-Extended's largest class has 15,840."""
_FOLDER = "captions"
ANY = "any"
"""The bundled grammar for classes of any names."""


@dataclass(frozen=True, slots=True)
class ClassCaptions:
    """A class's reference caption, which says the class alone, and its candidates, which say more; each once."""

    reference: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a class has no captions by a grammar, and what to do about it."""

    reason: str
    advice: str


class WordsOfClass(Section):
    """What a grammar says of the classes of one name or category, beside what it says of all."""

    adjectives: tuple[str | None, ...] = Field(default=(), description="Adjectives beside those of all classes.")
    prepositions: tuple[str | None, ...] = Field(default=(), description="Prepositions beside those of all classes.")
    captions: tuple[str, ...] = Field(default=(), description="Whole captions beside those of all classes.")
    reference: str | None = Field(default=None, description="The reference caption of these classes.")


class CaptionGrammar(Section):
    """Which captions are candidates to say what is hard, or easy, about a class."""

    about: str | None = Field(default=None, description="Where the words come from, for people.")
    covers: tuple[str, ...] = Field(
        default=(),
        description="The names and categories of classes that the grammar was written for; a recipe may have a part of"
        " them. Without it, every name in `by_name` must be of a class of the recipe.",
    )
    reference: str = Field(
        default="a photo of a {noun}",
        description="The caption that says the class alone; `{noun}` is its name or category, never a hyponym.",
    )
    templates: tuple[str, ...] = Field(
        default=(),
        description="Captions with `{noun}` (or `{class}`), and perhaps `{adjective}`, `{preposition}`, `{category}`"
        " and `{parent}`, filled in every combination; an empty part leaves no space.",
    )
    adjectives: tuple[str | None, ...] = Field(default=(None,), description="What `{adjective}` may be; null is none.")
    prepositions: tuple[str | None, ...] = Field(
        default=(None,), description="What `{preposition}` may be; null is none."
    )
    captions: tuple[str, ...] = Field(
        default=(),
        description="Whole captions, beside templates or in place of them, perhaps with `{noun}`, `{class}`,"
        " `{category}` or `{parent}`.",
    )
    by_name: dict[str, WordsOfClass] = Field(
        default_factory=dict,
        description="More words for some classes, by their name or their category; a class has the words of both.",
    )
    hyponyms: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="By class name, what `{noun}` may be with `noun: hyponyms`."
    )

    @model_validator(mode="after")
    def _whole(self) -> CaptionGrammar:
        problems = [f"{shown_path(path)}: {problem}" for path, problem in grammar_problems(self.model_dump())]
        refuse("; ".join(problems) or None)
        return self

    def with_hyponyms(self, hyponyms: Mapping[str, Sequence[str]]) -> CaptionGrammar:
        """The same grammar with other hyponyms, by class name. ValidationError for what are no words."""
        nouns = {name: tuple(words) for name, words in hyponyms.items()}
        return type(self).model_validate(self.model_dump() | {"hyponyms": nouns}, strict=True)

    def of(self, cls: RecipeClass, noun: CaptionNoun) -> ClassCaptions:
        """The captions of a class, the reference not among the candidates. UserError with every reason against it."""
        found = self.captions_or_misfits(cls, noun)
        if isinstance(found, ClassCaptions):
            return found
        problems = [f"captions: class '{cls.name}' {misfit.reason}" for misfit in found]
        raise UserError(problems, hint=" ".join(dict.fromkeys(misfit.advice for misfit in found)))

    def captions_or_misfits(self, cls: RecipeClass, noun: CaptionNoun) -> ClassCaptions | list[Misfit]:
        """The captions of a class, or every reason why it has none: many classes are told together (`gather`)."""
        own = self._own(cls)
        texts = (*self.templates, *self.captions, *(text for words in own for text in words.captions))
        # What is said of its name goes before what is said of its category, and that before what is said of all.
        reference = [self.reference, *(words.reference for words in own if words.reference is not None)][-1]
        fillings: dict[str, Sequence[str | None]] = {"class": (cls.name,), NOUN: self._nouns(cls, noun)}
        fillings |= {word: (getattr(cls, word),) for word in ABOUT_CLASS}
        for part, key in PARTS.items():
            words = [*getattr(self, key), *(word for ours in own for word in getattr(ours, key))]
            fillings[part] = tuple(dict.fromkeys(words)) or (None,)
        misfits = list(self._missing(cls, noun, (*texts, reference)))
        count = sum(_combinations(text, fillings) for text in texts)
        if count > MOST_CAPTIONS:
            reason = f"has {count:,} captions, expected at most {MOST_CAPTIONS:,}"
            misfits.append(Misfit(reason, "Leave out some adjectives, prepositions or hyponyms."))
        if misfits:
            return misfits
        called = cls.category if noun == "category" else cls.name
        (said,) = _filled(reference, fillings | {NOUN: (called,)})
        found = dict.fromkeys(text for template in texts for text in _filled(template, fillings))
        found.pop(said, None)
        if not found:
            advice = "Give the grammar `templates` with more words, or `captions`."
            return [Misfit(f"has no caption beside its reference '{said}'", advice)]
        return ClassCaptions(said, tuple(found))

    def _nouns(self, cls: RecipeClass, noun: CaptionNoun) -> tuple[str, ...]:
        if noun == "hyponyms":
            return self.hyponyms.get(cls.name, ())
        called = cls.category if noun == "category" else cls.name
        return () if called is None else (called,)

    def _missing(self, cls: RecipeClass, noun: CaptionNoun, texts: Sequence[str]) -> Iterator[Misfit]:
        """What captions would say of a class, and nobody has told."""
        if noun == "hyponyms" and not self._nouns(cls, noun):
            advice = "List them under `hyponyms` in the grammar, or say noun: class."
            yield Misfit(f"has no hyponyms{did_you_mean(cls.name, self.hyponyms)}", advice)
        for word in ABOUT_CLASS:
            if getattr(cls, word) is None and noun == word:
                yield Misfit(f"has no {word}", f"Give it a `{word}` in the recipe, or say noun: class.")
            elif getattr(cls, word) is None and any(f"{{{word}}}" in text for text in texts):
                advice = f"Give it a `{word}` in the recipe, or take {{{word}}} out of the captions."
                yield Misfit(f"has no {word}", advice)

    def _own(self, cls: RecipeClass) -> list[WordsOfClass]:
        names = dict.fromkeys(name for name in (cls.category, cls.name) if name is not None)
        return [self.by_name[name] for name in names if name in self.by_name]


def bundled_captions() -> tuple[str, ...]:
    """The names of the bundled grammars, sorted."""
    return tuple(sorted(path.stem for path in (bundled_folder() / _FOLDER).glob("*.yaml")))


def load_captions(source: str | Path) -> CaptionGrammar:
    """The grammar of a bundled name (`imagenet`), of a YAML file, or of a list of captions (YAML, or .txt).

    In a text file each line is a caption; empty lines, and those that begin with `#`, are none. Raises UserError with
    every problem, each with its file and line.
    """
    raw = read_words(source, _FOLDER, "a caption grammar or a list of captions")
    try:
        return CaptionGrammar.model_validate(with_tuples(raw), strict=True)
    except ValidationError as error:
        problems = problem_lines(CaptionGrammar, raw, error, across=grammar_problems)
        hint = f"A grammar to start from: {bundled_folder() / _FOLDER / 'wardrobe.yaml'}"
        raise UserError(problems, hint) from error


def _combinations(template: str, fillings: Mapping[str, Sequence[str | None]]) -> int:
    return prod(len(fillings[name]) for name in set(PLACEHOLDER.findall(template)))


def _filled(template: str, fillings: Mapping[str, Sequence[str | None]]) -> Iterator[str]:
    """The template with every combination of what its placeholders may be. What is filled in is never a template."""
    names = tuple(dict.fromkeys(PLACEHOLDER.findall(template)))
    for words in product(*(fillings[name] for name in names)):
        chosen = dict(zip(names, words, strict=True))
        text = PLACEHOLDER.sub(lambda found, chosen=chosen: chosen[found[1]] or "", template)
        yield " ".join(text.split())
