"""Sections of a recipe on mining: which classifier is audited on what, each method's settings, and
`mined_from`."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import Field, ValidationError, model_validator

from counterfoil.errors import UserError
from counterfoil.recipe.keep.misclassified import FAILURE_MEANS, failure_problem
from counterfoil.recipe.names import (
    LOCAL,
    TRANSFORMERS,
    address_problem,
    did_you_mean,
    nameless_problem,
)
from counterfoil.recipe.parts import as_mapping, as_sequence
from counterfoil.recipe.problems import problem_lines
from counterfoil.recipe.prompts import RecipeClass, template_problem
from counterfoil.recipe.rows_table import one_line
from counterfoil.recipe.schema_prompts import free_form_problem
from counterfoil.recipe.section import NonEmpty, Section, field_check
from counterfoil.recipe.strict_yaml import LocatedMapping
from counterfoil.registry import Registry

LONGEST = 200
MOST_CLASSES = 12
# The images of a test: a set and the rest of its class; images rendered for it and their base;
# both; pairs by noise.
TESTED_ON = ("rows", "rendered", "both", "pairs")
PERHAPS_WRONG_LABELS = "perhaps wrong labels"
WORDS_UNTRUSTED = "words untrusted"
MARKS = (PERHAPS_WRONG_LABELS, WORDS_UNTRUSTED)


@dataclass(frozen=True, slots=True)
class MinedFacts:
    """The origin of a mined shift; None for facts that are missing or in another form."""

    words: str | None = None
    caption: str | None = None
    role: str | None = None
    method: str | None = None
    target: str | None = None
    target_sha256: str | None = None
    set_rate: float | None = None
    rest_rate: float | None = None
    """The shares of the finding's images and of those compared with them that fail by the rule
    `failure`."""
    p: float | None = None
    q: float | None = None
    classes: tuple[str, ...] = ()
    tested_on: str | None = None
    """The kind of these images, one of `TESTED_ON`."""
    failure: str | None = None
    marks: tuple[str, ...] = ()
    """Doubts about the finding, of `MARKS`."""


def mined_facts(record: Mapping[str, Any] | None) -> MinedFacts:
    """Return the facts in a shift's `mined_from`, which may come from anybody; without one, empty
    facts."""
    facts = as_mapping(record)
    marks = [mark for mark in MARKS if mark in as_sequence(facts.marks)]
    classes = map(shown_text, as_sequence(facts.classes))
    return MinedFacts(
        words=shown_text(facts.words),
        caption=shown_text(facts.caption),
        role=shown_text(facts.role),
        method=_named(facts.method),
        target=_named(facts.target),
        target_sha256=shown_text(as_mapping(facts.target).sha256),
        set_rate=_share(as_mapping(facts.set).rate),
        rest_rate=_share(as_mapping(facts.rest).rate),
        p=_share(facts.p),
        q=_share(facts.q),
        tested_on=facts.tested_on if facts.tested_on in TESTED_ON else None,
        failure=shown_text(facts.failure),
        marks=tuple(marks),
        classes=tuple(filter(None, classes)),
    )


def shown_text(value: Any) -> str | None:
    """Return a text in one printable line, cut if long; None for other types and empty texts."""
    if not isinstance(value, str):
        return None
    line = one_line(value[: 4 * LONGEST])
    if len(line) > LONGEST:
        line = f"{line[: LONGEST - 1]}…"
    return line or None


def _named(value: Any) -> str | None:
    if isinstance(value, Mapping):
        value = value.get("name")
    return shown_text(value)


def _share(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= 1 else None


CONFIRM = ("rows", "rendered", "both")


class Mine(Section):
    """How `counterfoil mine` searches for failures of a classifier. It changes no image of a
    dataset."""

    method: NonEmpty = "directions"
    """Method that finds hypotheses: {names of methods}. slices needs no CLIP and runs where none is
    available."""
    target: NonEmpty | None = None
    """The classifier to audit, named as in evaluate.models: `predictions:FILE` for one that runs
    elsewhere."""
    on: tuple[str, ...] = Field(default=("validation",), min_length=1)
    """Images to audit the classifier on: splits of the source that it was not trained on, or one
    built dataset."""
    failure: str = Field(default="top1", description=f"What a failure is. {FAILURE_MEANS}")
    margin: float = Field(default=0.05, ge=0, lt=1)
    """How much higher the failure rate of a finding must be than that of the rest of its class."""
    fdr: float = Field(default=0.1, gt=0, lt=1)
    """False discovery rate: the share of reported findings that may be false, on average."""
    seed: int = Field(default=0, ge=0, lt=2**53)
    """Seed of the halves, the folds and the permutations."""
    confirm: Literal["rows", "rendered", "both"] = "rows"
    """Images that hypotheses are tested on: `rows` of the confirm half, newly `rendered` ones
    (mine.rendered for each), or `both`."""
    rendered: int = Field(default=50, ge=10, le=100_000)
    """confirm rendered: images per hypothesis, and as many of its base."""
    train_rows: int = Field(default=10_000, ge=2, le=10_000_000)
    """Maximum number of rows of the train split used to whiten features."""
    limit: int | None = Field(default=None, ge=1)
    """Make a preview: at most so many rows of each split. Every page says so.

    Rows are as even over classes as they come."""
    others: tuple[str, ...] | None = None
    """Other classifiers to measure each finding on; null: evaluate.models."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """The method's own settings."""

    _has_a_name = field_check("target", by=nameless_problem)
    _known_failure = field_check("failure", by=failure_problem)
    _plain_settings = field_check("settings", by=free_form_problem)


_CLASS_PLACE = "{class}"


class MostDrawn(NamedTuple):
    """The most images that a method draws, for the estimate.

    a_hypothesis: images of one hypothesis, and as many of its base. described, base: of all
    hypotheses, which share the base of a class. a_finding: pairs that estimate the rates of a
    confirmed finding.
    """

    a_hypothesis: int
    hypotheses: int
    described: int
    base: int = 0
    a_finding: int = 0


def drawn_for(sizes: Iterable[int], classes: Sequence[RecipeClass], mine: Mine) -> MostDrawn | None:
    """Return what `mine.confirm` draws for hypotheses with these numbers of classes, or None.

    A hypothesis takes `mine.rendered` images, divided over its classes and rounded up; a class's
    base is drawn once.
    """
    if mine.confirm == "rows":
        return None
    described = [size * math.ceil(mine.rendered / size) for size in sizes]
    base = len(classes) * mine.rendered
    return MostDrawn(
        mine.rendered,
        len(described),
        sum(described),
        base,
    )


class MethodSection(Section):
    """The form of `mine.settings`, for each method."""

    def most_drawn(self, classes: Sequence[RecipeClass], mine: Mine) -> MostDrawn | None:
        """Return the most images that its tests draw, or None."""
        return None


class ExampleDescription(Section):
    """An image with a description by a person, for captioners that take examples."""

    image: NonEmpty
    """Path of the image, from the recipe's folder."""
    text: str = Field(min_length=1, max_length=1000)
    """Its description: a few short sentences."""


def _base_problem(base: str) -> str | None:
    problem = template_problem(base, with_class=True, about_class=True)
    if problem is None and base.count(_CLASS_PLACE) != 1:
        return f"found '{base}', expected {_CLASS_PLACE} once"
    return problem


class BugsSettings(MethodSection):
    """Settings of `bugs` (Wiles 2022, section 3): render images, find failures, describe and test
    them."""

    captioner: NonEmpty
    """The captioner that describes failures: one of the Hub, `local-dir:…` or `lab:captioner`."""
    base: str | None = None
    """Prompt for a class, with {class}; null: the recipe's base. Wiles 2022: `a realistic
    photograph of a {class} ({parent}).`"""
    classes: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Ids of the classes to search; null: all."""
    baseline: int = Field(default=64, ge=8, le=1_000_000)
    """Base images per class in which failures are searched."""
    clusters: int = Field(default=4, ge=1, le=100)
    """Maximum number of descriptions per class, one per cluster of failures."""
    fewest_failures: int = Field(default=2, ge=1, le=1000)
    """Minimum number of failures in a cluster."""
    captions: int = Field(default=4, ge=1, le=100)
    """Captions per image: the likeliest one, and sampled ones."""
    described: int = Field(default=8, ge=1, le=1000)
    """Maximum number of images of a cluster that are described."""
    sentences: int = Field(default=2, ge=1, le=10)
    """Maximum number of sentences (or phrases) that a description combines."""
    seeds: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Describe failures on existing images instead of base images: splits of the source, or one
    built dataset (Wiles 2022, section 4.2: ImageNet-A)."""
    rank: Literal["product", "likelihood", "contrast"] = "contrast"
    """What a description maximises. `product`: the product of its likelihoods over its images, with
    `sentences` sentences if there are as many (Wiles 2022). `likelihood`: the mean likelihood per
    token, until it does not rise. `contrast`: how far that is above the likelihood of images of the
    class that the classifier gets right."""
    examples: tuple[ExampleDescription, ...] = Field(default=(), max_length=8)
    """Example images with descriptions, shown to the captioner first if it takes examples."""
    batch: int = Field(default=16, ge=4, le=100_000)
    """Pairs before the first interim test. Each further test doubles them."""
    pairs: int = Field(default=128, ge=8, le=1_000_000)
    """Maximum number of pairs per hypothesis."""
    images: int = Field(default=5000, ge=100, le=100_000_000)
    """Maximum number of images that the search renders. Images that estimate the rates of its
    findings come on top."""
    half_width: float = Field(default=0.05, gt=0, lt=1)
    """Target half-width of the interval of a finding's difference. Enough fresh pairs are rendered
    after the test to reach it."""
    estimate_pairs: int = Field(default=512, ge=8, le=1_000_000)
    """Maximum number of fresh pairs per finding, whatever half_width needs."""
    shorten: bool = True
    """Try shorter texts for confirmed descriptions, and each part by itself for the others."""
    until: int | None = Field(default=None, ge=2, le=10_000)
    """Also estimate each finding's failure rate by rendering until this many failures (Wiles 2022:
    20)."""
    adversarial: int = Field(default=0, ge=0, le=1_000_000)
    """Failures per description that adversarial.yaml collects (Wiles 2022: from at most 1,000
    images each); 0: no such recipe is written."""
    at_most: int = Field(default=1000, ge=1, le=1_000_000)
    """Maximum number of images per description that adversarial.yaml renders."""

    _names_the_class = field_check("base", by=_base_problem)

    def problem(self) -> str | None:
        if self.batch > self.pairs:
            return f"batch is {self.batch}, expected at most pairs ({self.pairs})"
        if self.adversarial > self.at_most:
            return f"at_most is {self.at_most}, expected at least adversarial ({self.adversarial})"
        return None

    def most_drawn(self, classes: Sequence[RecipeClass], mine: Mine) -> MostDrawn:
        """Return the budget of the whole search, its base included."""
        searched = len(classes if self.classes is None else self.classes)
        hypotheses = searched * self.clusters
        return MostDrawn(
            self.pairs,
            hypotheses,
            self.images,
            a_finding=self.estimate_pairs,
        )


CONTEXT = "context"
_CONTEXT_PLACES = ("{class}", f"{{{CONTEXT}}}")
# The question to a chat model for each known axis. Chegini 2023, section 3.1, asks for uncommon
# backgrounds.
QUESTIONS = {
    "background": "What are uncommon backgrounds that a {class} can appear in?",
    "colour": "What are uncommon colours that a {class} can have?",
    "size": "What are uncommon sizes or distances at which a {class} can appear?",
    "light": "What are uncommon lights or weathers that a {class} can be photographed in?",
}
# The sentence for a context of an axis. Chegini 2023, Table 4, for the first and for all others.
_BEHIND = "a photo of a {class} {context}"
_PROMPTS = {"colour": "a photo of a {context} {class}"}


class ChatSettings(Section):
    """A chat model that proposes contexts. Its key comes from the login or the environment, never
    from the recipe."""

    model: NonEmpty | None = None
    """A chat model of the Hub's providers, or one that `base_url` serves.
    `transformers:NAME[@REVISION]` and `local-dir:PATH` run in this process. null: replay the
    recorded `answers`."""
    base_url: NonEmpty | None = None
    """An address that speaks OpenAI's protocol, such as http://localhost:8000/v1 (vLLM, llama.cpp,
    Ollama, `transformers serve`). If it needs a key, set OPENAI_API_KEY in the environment."""
    most: int = Field(default=8, ge=1, le=100)
    """Contexts to ask for, per class."""
    tries: int = Field(default=3, ge=1, le=20)
    """Maximum number of questions per class. An answer that cannot be used is asked again."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Seed of the answers, if the model takes one."""
    temperature: float = Field(default=0.0, ge=0, le=2)
    """0: the likeliest answer; more than 0: sampled answers."""
    most_tokens: int = Field(default=512, ge=16, le=32_768)
    """Maximum number of tokens per answer."""
    answers: NonEmpty | None = None
    """Recorded answers (`answers.json` of an earlier run), as a path from the recipe's folder.
    Questions in it are answered from it; the model is not asked again."""

    _is_an_address = field_check("base_url", by=address_problem)

    def problem(self) -> str | None:
        if self.model is None and self.base_url is not None:
            return "base_url needs model: the name of a model served there"
        if self.model is None and self.answers is None:
            return "found neither model nor answers, expected a chat model or recorded answers"
        local_names = (TRANSFORMERS, LOCAL, "/", "./", "../", "~")
        if self.base_url is not None and (self.model or "").startswith(local_names):
            return f"model '{self.model}' runs in this process, expected no base_url"
        return None


def _prompt_problem(prompt: str) -> str | None:
    bare = prompt
    for placeholder in _CONTEXT_PLACES:
        if prompt.count(placeholder) != 1:
            return f"found '{prompt}', expected {placeholder} once"
        bare = bare.replace(placeholder, "")
    if "{" in bare or "}" in bare:
        return f"found '{prompt}', expected no braces but {' and '.join(_CONTEXT_PLACES)}"
    return None


class ContextsSettings(MethodSection):
    """Settings of `contexts` (Chegini 2023): propose contexts of each class, and choose by
    failures."""

    axis: str = Field(default="background", min_length=1, max_length=100)
    """What contexts describe: background, colour, size or light. Any other needs `question`."""
    question: str | None = Field(default=None, max_length=1000)
    """The question to the chat model, with {class}; null: the question of the axis."""
    contexts: NonEmpty | None = None
    """Contexts that people wrote: a bundled list (`wardrobe`, `wardrobe-colours`, `cifar10`,
    `cifar100`, `imagenet`), or a YAML file of your own."""
    chat: ChatSettings | None = None
    """A chat model that proposes contexts, in addition to a list or instead of one."""
    similarity: float = Field(default=0.97, gt=0, le=1)
    """If the captions of two contexts of a class have a larger CLIP cosine, only the first is
    kept."""
    k: int = Field(default=3, ge=1, le=100)
    """Maximum number of contexts per class that are tested."""
    rank: Literal["count", "lift"] = "count"
    """How contexts of a class are ranked. `count`: by failures that CLIP assigns to them (Chegini
    2023). `lift`: by their share among failures divided by their share among right answers, with
    one image of each kind added per context."""
    fewest_failures: int = Field(default=2, ge=1, le=1000)
    """Minimum number of failures for a context to be chosen."""
    pooled: tuple[str, ...] = ()
    """Further classifiers whose failures also choose contexts. All share one set of images (Chegini
    2023, section 5.3.2, type 1)."""
    prompt: str = Field(default=_BEHIND, min_length=1, max_length=1000)
    """Caption and prompt of a class in a context, with {class} and {context} once each. Default for
    colours: `a photo of a {context} {class}`."""
    images: int = Field(default=5, ge=1, le=1000)
    """Images to render per failure (Chegini 2023)."""
    at_most_images: int = Field(default=100, ge=1, le=1_000_000)
    """Maximum number of images per context."""
    controls: bool = True
    """Also render controls: as many images of class names alone, and of random other contexts."""

    @model_validator(mode="before")
    @classmethod
    def _prompt_of_the_axis(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or data.get("prompt") is not None:
            return data
        prompt = _PROMPTS.get(str(data.get("axis")))
        return data if prompt is None else {**data, "prompt": prompt}

    _asks_of_a_class = field_check("question", by=partial(template_problem, with_class=True))
    _names_both = field_check("prompt", by=_prompt_problem)

    def problem(self) -> str | None:
        if self.contexts is None and self.chat is None:
            return (
                "found neither contexts nor chat, expected `contexts` (a list), `chat` (a"
                " model), or both"
            )
        if self.chat is not None and self.question is None and self.axis not in QUESTIONS:
            known = ", ".join(QUESTIONS)
            return (
                f"axis is '{self.axis}', which has no built-in question (only {known} have one);"
                " expected `question` with {class}"
            )
        return None

    def asked(self) -> str:
        """Return the question to a chat model, with {class}. KeyError for an unknown axis without a
        question."""
        if self.question is None:
            return QUESTIONS[self.axis]
        return self.question

    def caption(self, class_name: str, context: str) -> str:
        """Return the prompt of a class in a context; inserted text is never read as a template."""
        words = dict(zip(_CONTEXT_PLACES, (class_name, context), strict=True))
        return re.sub("|".join(_CONTEXT_PLACES), lambda match: words[match[0]], self.prompt)

    def most_drawn(self, classes: Sequence[RecipeClass], mine: Mine) -> MostDrawn | None:
        return drawn_for([1] * (len(classes) * self.k), classes, mine)


MOST_ALPHA = 0.3  # Jain 2023, A.7: above this nothing of the caption is left
_Section = TypeVar("_Section", bound=Section)


class DirectionsSettings(MethodSection):
    """The settings of the method `directions`."""

    captions: NonEmpty | None = None
    """Candidate captions: a bundled grammar (`any`, `cifar`, `imagenet`, `wardrobe`), or a file;
    null: `any`, which fits any class names."""
    noun: Literal["class", "category", "hyponyms"] = "class"
    """What captions call a class: its name, its category, or its hyponyms."""
    score: Literal["difference", "shifted"] = "difference"
    """How a caption c with reference r is scored: `difference`, (c - r) normalised, as the paper
    says; `shifted`, ((c - r) - mean) / deviation normalised, as the released code does."""
    fewest_errors: int = Field(default=10, ge=2)
    """Minimum number of failures for a class to have a direction."""
    permutations: int = Field(default=200, ge=0, le=100_000)
    """Permutations for the p-value of a strength."""
    alpha: float = Field(default=0.1, ge=0, le=MOST_ALPHA)
    """How far a decoded vector is turned away from the caption's vector: 0 to 0.3."""
    vector_norm: float = Field(default=1.0, gt=0, le=1e6)
    """Vector length that the generator of embeddings expects."""
    pool: bool = True
    """Also search for one direction per category, if classes have categories."""

    def most_drawn(self, classes: Sequence[RecipeClass], mine: Mine) -> MostDrawn | None:
        """Return the budget of a hypothesis for each class and for each category of several
        classes."""
        categories = Counter(cls.category for cls in classes if cls.category is not None)
        sizes = [1] * len(classes)
        if self.pool:
            sizes += [size for size in categories.values() if size > 1]
        return drawn_for(sizes, classes, mine)


class SlicesSettings(MethodSection):
    """Settings of `slices`: groups of images by answers, measures, shifts and the classifier's own
    features."""

    fewest_errors: int = Field(default=10, ge=2)
    """Minimum number of failures for a class to be searched."""
    most: int = Field(default=3, ge=1, le=100)
    """Maximum number of groups of each kind that are tested per class."""
    clusters: int = Field(default=5, ge=1, le=100)
    """Groups of look-alikes per class, in the classifier's features; 1: none."""


# The method without a CLIP.
SLICES = "slices"
METHOD_SETTINGS: Mapping[str, type[MethodSection]] = {
    "directions": DirectionsSettings,
    "bugs": BugsSettings,
    "contexts": ContextsSettings,
    SLICES: SlicesSettings,
}
# A plugin's method names its settings itself (`mining/method.py`).
_PLUGINS: Registry[Any] = Registry("counterfoil.methods", {}, lambda registered: None)


def method_settings(mine: Mine) -> MethodSection:
    """Return the settings of the method that `mine` names. UserError with every problem of them."""
    method = mine.method
    if method in _PLUGINS:
        section = _PLUGINS[method].settings
    elif method in METHOD_SETTINGS:
        section = METHOD_SETTINGS[method]
    else:
        raise unknown_method(method, [*METHOD_SETTINGS, *_PLUGINS])
    return validate_settings(section, mine.settings, "mine.settings")


def unknown_method(method: str, known: Iterable[str]) -> UserError:
    problem = f"mine.method: found '{method}'{did_you_mean(method, known)}"
    return UserError(problem, f"Known methods: {', '.join(known)}.")


def validate_settings(section: type[_Section], values: Mapping[str, Any], key: str) -> _Section:
    """Validate a section of a recipe and the command line. UserError with every problem, after the
    section's key."""
    try:
        return section.model_validate(values)
    except ValidationError as error:
        lines = problem_lines(section, LocatedMapping(values), error, lambda raw: ())
        problems = [f"{key}.{line}" for line in lines]
        for details in error.errors(include_url=False):
            if not details["loc"] and details["type"] == "value_error":  # a problem between keys
                context = details.get("ctx", {})
                problems.append(f"{key}: {context.get('error', details['msg'])}")
        raise UserError(problems) from error
