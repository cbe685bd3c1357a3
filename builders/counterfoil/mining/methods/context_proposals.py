"""Propose contexts of every class (Chegini 2023), from a person's list, a chat model, or both.

The answer of a chat model must be exactly the requested JSON. The answer is stored under the hash of everything that
decides it, so that a run can be repeated without the model.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from counterfoil.arrays import AnyFloats
from counterfoil.documents import parse_json
from counterfoil.errors import RunFailure, UserError, first_of, some_of
from counterfoil.mining.captions import (
    WordFile,
    listed_names,
    names_of_no_class,
    uncovered_names,
)
from counterfoil.models.chat import ChatModel, Messages, load_chat
from counterfoil.progress import report_progress
from counterfoil.recipe import Recipe
from counterfoil.recipe.names import ELSEWHERE, without_folders
from counterfoil.recipe.parts import RecipePath, RecipeProblem, as_mapping, as_sequence
from counterfoil.recipe.prompts import RecipeClass, fill_template
from counterfoil.recipe.schema import with_tuples
from counterfoil.recipe.schema_mine import ChatSettings, ContextsSettings
from counterfoil.recipe.section import Section
from counterfoil.regular_files import named_path, read_regular
from counterfoil.store.atomic import write_atomically

LONGEST_CONTEXT = 200  # characters
MOST_CONTEXTS = 2_000  # of one class: of a list, or of a list and a chat model together


def context_problem(text: str) -> str | None:
    """Return why a text cannot be a context, or None if it can."""
    shown = text
    if len(text) > 60:
        shown = f"{text[:57]}…"
    if not text.strip():
        return "found empty text, expected words"
    if not text.isprintable():
        return f"found {shown!r}, expected words in one line that can be printed"
    if len(text) > LONGEST_CONTEXT:
        return f"found '{shown}' of {len(text):,} characters, expected at most {LONGEST_CONTEXT}"
    if "{" in text or "}" in text:
        return f"found '{shown}', expected plain words without braces"
    if not any(map(str.isalnum, text)):
        return f"found '{shown}', expected words"
    return None


def list_problems(document: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    """Yield every problem of a list of contexts as (path in the file, message). Parts of a wrong type are skipped."""
    contexts = document.get("contexts")
    names = as_mapping(document.get("by_name"))
    yield from _contexts(("contexts",), contexts)
    for name, class_contexts in names.items():
        yield from _contexts(("by_name", name), class_contexts)
        if not class_contexts and class_contexts is not None:
            yield ("by_name", name), "found an empty list, expected at least one context"
    yield from uncovered_names(document)
    if not contexts and not names:
        yield (), "found no contexts, expected `contexts` or `by_name`"


def _contexts(path: RecipePath, value: Any) -> Iterator[RecipeProblem]:
    texts = as_sequence(value)
    if len(texts) > MOST_CONTEXTS:
        yield path, f"found {len(texts):,} contexts, expected at most {MOST_CONTEXTS:,}"
        return
    for index, text in enumerate(texts):
        problem = context_problem(text) if isinstance(text, str) else None
        if problem is not None:
            yield (*path, index), problem


_WORD = re.compile(r"[^\W_]+")
_ARTICLES = frozenset({"a", "an", "the"})


def same_words(text: str) -> str:
    """Return a text in lower case, without punctuation and articles. Two contexts with the same result count as one."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = _WORD.findall(re.sub("['’]", "", folded))
    plain = [word for word in words if word not in _ARTICLES]
    return " ".join(plain or words)


def without_same_words(contexts: Sequence[str]) -> list[int]:
    """Return the indices of contexts that do not repeat the words of an earlier context."""
    first: dict[str, int] = {}
    for index, text in enumerate(contexts):
        first.setdefault(same_words(text), index)
    return list(first.values())


def without_duplicates(
    contexts: Sequence[str],
    vectors: AnyFloats,
    similarity: float,
) -> list[int]:
    """Return the indices of contexts that do not repeat an earlier context. A context repeats another one if it has the
    same words, or if the cosine of their captions is above `similarity`. vectors: (n, d), unit vectors of the captions.
    """
    rows = np.asarray(vectors, dtype=np.float64)
    chosen: list[int] = []
    for row in without_same_words(contexts):
        if not chosen or (rows[chosen] @ rows[row]).max() <= similarity:
            chosen.append(row)
    return chosen


class ContextList(WordFile):
    """Contexts of classes along one axis. A class has those of all classes, of its category and of its name."""

    kind = "contexts"
    expected = "a list of contexts"
    called = "a list"
    problems = staticmethod(list_problems)
    about: str | None = None
    """Where the contexts come from, for people."""
    axis: str | None = Field(default=None, min_length=1)
    """What they describe: background, colour, size, light."""
    covers: tuple[str, ...] = ()
    (
        "The names and categories of classes that the list was written for; a recipe may use some of them. Without"
        " it, every name in `by_name` must be of a class of the recipe."
    )
    contexts: tuple[str, ...] = ()
    """Contexts of all classes."""
    by_name: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """More contexts of some classes, by class name or category."""

    def of(self, cls: RecipeClass) -> tuple[str, ...]:
        """Return the contexts of a class, as written."""
        contexts = list(self.contexts)
        for name in listed_names(cls):
            contexts += self.by_name.get(name, ())
        return tuple(contexts)

    def refuse_unfit(self, classes: Sequence[RecipeClass], axis: str) -> None:
        """Raise UserError if the list has another axis, an unknown class, or too many contexts of one class."""
        problems = []
        if self.axis is not None and self.axis != axis:
            problems.append(
                f"mine.settings.axis: found '{axis}', but the contexts are for the axis '{self.axis}';"
                f" expected the same: --set mine.settings.axis={self.axis}"
            )
        problems += names_of_no_class("contexts", self.covers, self.by_name, classes)
        for cls in classes:
            count = len(self.of(cls))
            if count > MOST_CONTEXTS:
                problems.append(
                    f"contexts: class '{cls.name}' has {count:,}, expected at most {MOST_CONTEXTS:,}"
                )
        if problems:
            raise UserError(first_of(problems))


ANSWERS = "answers.json"
FORMAT = 1
# Longer answers are cut before they are parsed, so that the stored text is the text that was parsed.
LONGEST_ANSWER = 100_000
_MOST_BYTES = 1 << 28


class Turn(Section):
    role: Literal["user", "assistant"]
    content: str = Field(max_length=LONGEST_ANSWER + 10_000)


class Answered(Section):
    """A question with everything that decides its answer, and the answer; `taken` if it could be used."""

    model: str
    messages: tuple[Turn, ...]
    answer_schema: dict[str, Any]
    seed: int
    temperature: float
    most_tokens: int
    text: str = Field(max_length=LONGEST_ANSWER)
    taken: bool

    @property
    def sha256(self) -> str:
        request = self.model_dump(mode="json", exclude={"text", "taken"})
        request["temperature"] = float(self.temperature)
        text = json.dumps(request, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


class _Document(Section):
    format: Literal[1]
    answers: tuple[Answered, ...]


@dataclass
class Record:
    """The answers in a folder, by the hash of the question."""

    path: Path
    model: str
    answers: dict[str, Answered]
    earlier: Mapping[str, Answered] = field(default_factory=dict)
    """The answers of an earlier run that are used again."""

    @classmethod
    def open(
        cls,
        folder: Path,
        settings: ChatSettings,
        model: str | None,
    ) -> Record:
        """Read the answers in `folder` and in `settings.answers`. model: the model's name under which questions are
        stored; by default, the name in the recorded answers. Raise UserError for files that hold no recorded answers,
        or answers of several models.
        """
        path = folder / ANSWERS
        recorded = _read(path) if path.exists() else {}
        earlier: dict[str, Answered] = {}
        if settings.answers is not None:
            if settings.answers.startswith(ELSEWHERE):
                raise UserError(
                    f"mine.settings.chat.answers: {settings.answers.removeprefix(ELSEWHERE)} is a file on another"
                    " machine",
                    "Give its path here: --set mine.settings.chat.answers=PATH",
                )
            earlier = _read(named_path(settings.answers))
        if model is None:
            answers = earlier or recorded
            models = sorted({answer.model for answer in answers.values()})
            if len(models) != 1:
                origin = f"{len(models)} models ({', '.join(models[:3])})" if models else "no model"
                raise UserError(
                    f"mine.settings.chat: the recorded answers come from {origin}, and no model is named",
                    "Name the model whose answers to replay: --set mine.settings.chat.model=NAME",
                )
            model = models[0]
        return cls(path, model, recorded, earlier)

    def find(self, question: Answered) -> Answered | None:
        """Return the answer to a question, or None. An answer of an earlier run is copied to this record."""
        key = question.sha256
        if key not in self.answers and key in self.earlier:
            self.answers[key] = self.earlier[key]
        return self.answers.get(key)

    def forget(self, answers: Sequence[Answered]) -> None:
        """Remove answers, so that their questions are asked again."""
        for answer in answers:
            self.answers.pop(answer.sha256, None)

    def keep(self, answered: Answered) -> None:
        """Store an answer on disk."""
        self.answers[answered.sha256] = answered
        self.save()

    def save(self) -> None:
        answers = [answer.model_dump(mode="json") for answer in self.answers.values()]
        document = {"format": FORMAT, "answers": answers}
        text = json.dumps(document, indent=1, ensure_ascii=False)
        # A server may send halves of surrogate pairs, which UTF-8 cannot encode.
        write_atomically(self.path, f"{text}\n".encode("utf-8", "backslashreplace"))


def _read(path: Path) -> dict[str, Answered]:
    begins = f"recorded answers: {path}"
    expected = f"expected the {ANSWERS} of an earlier run"
    try:
        raw = parse_json(read_regular(path, _MOST_BYTES))
        document = _Document.model_validate(with_tuples(raw), strict=True)
    except OSError as error:
        raise UserError(f"{begins}: {error.strerror or error}; {expected}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        location = ".".join(map(str, first["loc"])) or "the whole"
        raise UserError(f"{begins}: {location}: {first['msg']}; {expected}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{begins} is not readable JSON; {expected}") from error
    return {answer.sha256: answer for answer in document.answers}


SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"contexts": {"type": "array", "items": {"type": "string"}}},
    "required": ["contexts"],
    "additionalProperties": False,
}
_FORM = 'Answer with JSON alone: {"contexts": ["...", "..."]}'
_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?```", re.DOTALL | re.IGNORECASE)
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
# The model is given up after this many classes without a usable answer.
_MOST_FAILED = 5
_MOST_REASONS = 3
_STAGE = "proposing contexts"


# `ChatModel.answer` takes messages, and by name schema, seed, most_tokens and temperature.
ChatAnswer = Callable[..., str]


@dataclass(frozen=True, slots=True)
class Understood:
    """The contexts of an answer, or the problems of the answer. One of the two fields is empty."""

    contexts: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def ask_contexts(
    chat_answer: ChatAnswer,
    class_names: Sequence[str],
    settings: ContextsSettings,
    chat: ChatSettings,
    record: Record,
) -> dict[int, list[str]]:
    """Return contexts by label. Raise RunFailure that names the classes without a usable answer, at most five."""
    report_progress(_STAGE, 0, len(class_names))
    contexts_by_label: dict[int, list[str]] = {}
    failed: list[str] = []
    for label, name in enumerate(class_names):
        outcome, last = _asked(chat_answer, name, settings, chat, record)
        if outcome.problems:
            # The message is one line without control characters, which a terminal would obey.
            words = " ".join(last[:1000].split())
            answer_shown = "nothing"
            if last.strip():
                shown = map(_printable, words[:80])
                answer_shown = f"'{''.join(shown)}'"
            tries = "tries" if chat.tries > 1 else "try"
            failed.append(
                f"chat model '{record.model}': no answer about class '{name}' can be used after"
                f" {chat.tries} {tries}: {outcome.problems[0]}; it said {answer_shown}"
            )
            if len(failed) == _MOST_FAILED:
                break
        contexts_by_label[label] = list(outcome.contexts)
        report_progress(_STAGE, label + 1, len(class_names))
    record.save()
    if failed:
        raise RunFailure(
            failed,
            f"Name another model, or raise mine.settings.chat.tries, most_tokens or temperature. Usable"
            f" answers are kept in {record.path.name}: run again to ask only about these classes.",
        )
    return contexts_by_label


def _printable(character: str) -> str:
    return character if character.isprintable() else "�"


def parse_answer(
    text: str,
    class_name: str,
    settings: ContextsSettings,
    most: int,
) -> Understood:
    """Parse an answer. White space, a code fence around the answer, and a thought before it are removed first."""
    plain = text.strip()
    if plain.startswith("<think>"):
        plain = _THOUGHT.sub("", plain, count=1).strip()
    if fenced := _FENCED.fullmatch(plain):
        plain = fenced[1]
    try:
        document = json.loads(plain, object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        return Understood(problems=("it is not JSON",))
    contexts = document.get("contexts") if isinstance(document, dict) else None
    if not isinstance(contexts, list) or len(document) != 1:
        return Understood(problems=('expected one key, "contexts", with a list',))
    problems = []
    if not 1 <= len(contexts) <= most:
        problems.append(f"found {len(contexts):,} contexts, expected {most}")
    # A context must not begin with the class: "a photo of a sandal a sandal in the snow" names it twice in a row.
    name = re.escape(class_name)
    twice = re.compile(rf"\b{name}\W+(?:(?:a|an|the)\W+)?{name}\b", re.IGNORECASE)
    for context in contexts[: most + 1]:
        if not isinstance(context, str):
            problems.append(f"found {type(context).__name__} among the contexts, expected texts")
            continue
        problem = context_problem(context)
        if problem is None and twice.search(settings.caption(class_name, context)):
            problem = f"found '{context}', expected it without '{class_name}': the sentence has it"
        if problem is not None:
            problems.append(problem)
    if problems:
        return Understood(problems=tuple(problems))
    return Understood(tuple(contexts))


def _asked(
    chat_answer: ChatAnswer,
    class_name: str,
    settings: ContextsSettings,
    chat: ChatSettings,
    record: Record,
) -> tuple[Understood, str]:
    sentence = settings.caption(class_name, "...")
    first = (
        f"{fill_template(settings.asked(), class_name)} Give {chat.most}, all different, each a few"
        f' words that complete the sentence "{sentence}" in place of the three dots. {_FORM}'
    )
    start = [Turn(role="user", content=first)]
    turns = start
    known = []
    while len(known) < chat.tries:
        answered = record.find(_question(turns, chat, record))
        if answered is None:
            break
        outcome = parse_answer(answered.text, class_name, settings, chat.most)
        if not outcome.problems:
            return outcome, answered.text
        known.append(answered)
        turns = _again(turns, answered.text, outcome)
    if len(known) == chat.tries:
        # An earlier run gave up here; ask again.
        record.forget(known)
        turns = start
        known = []
    outcome = Understood(problems=("it was not asked",))
    text = ""
    for _ in range(chat.tries - len(known)):
        question = _question(turns, chat, record)
        text = chat_answer(
            [turn.model_dump() for turn in turns],
            schema=SCHEMA,
            seed=chat.seed,
            most_tokens=chat.most_tokens,
            temperature=chat.temperature,
        )
        # Parse the text as it will be read back from disk.
        text = text[:LONGEST_ANSWER].encode("utf-8", "replace").decode()
        outcome = parse_answer(text, class_name, settings, chat.most)
        taken = not outcome.problems
        answer = {"text": text, "taken": taken}
        record.keep(question.model_copy(update=answer))
        if taken:
            break
        turns = _again(turns, text, outcome)
    return outcome, text


def _question(
    turns: Sequence[Turn],
    chat: ChatSettings,
    record: Record,
) -> Answered:
    return Answered(
        model=record.model,
        messages=tuple(turns),
        answer_schema=dict(SCHEMA),
        seed=chat.seed,
        temperature=chat.temperature,
        most_tokens=chat.most_tokens,
        text="",
        taken=False,
    )


def _again(
    turns: Sequence[Turn],
    text: str,
    outcome: Understood,
) -> list[Turn]:
    reasons = "; ".join(outcome.problems[:_MOST_REASONS])
    turn = Turn(role="user", content=f"That cannot be used: {reasons}. {_FORM}")
    # Some templates refuse an empty turn.
    answer = Turn(role="assistant", content=text.strip() or "...")
    return [*turns, answer, turn]


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = dict(pairs)
    if len(keys) != len(pairs):
        raise ValueError("a key twice")
    return keys


def proposed_contexts(
    recipe: Recipe,
    settings: ContextsSettings,
    folder: Path,
    device: str,
) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    """Return the contexts of every class by label, and notes for people. A model's answers are kept in `folder`."""
    listed = None
    if settings.contexts is not None:
        listed = ContextList.load(settings.contexts)
        listed.refuse_unfit(recipe.classes, settings.axis)
    answered: dict[int, list[str]] = {}
    chat = settings.chat
    if chat is not None:
        model = None if chat.model is None else without_folders(chat.model)
        record = Record.open(folder, chat, model)
        names = [cls.name for cls in recipe.classes]
        answered = ask_contexts(_Asked(chat, device), names, settings, chat, record)
    by_label = []
    empty = []
    for cls in recipe.classes:
        contexts = answered.get(cls.label, [])
        if listed is not None:
            contexts = [*listed.of(cls), *contexts]
        texts = [" ".join(text.split()) for text in contexts]
        distinct = [texts[index] for index in without_same_words(texts)]
        by_label.append(tuple(distinct))
        if not texts:
            empty.append(repr(cls.name))
    if empty:
        raise UserError(
            f"contexts: the list has no context for {some_of(empty)}",
            "Add `contexts` for all classes, or `by_name` for these; or ask a chat model too: mine.settings.chat",
        )
    notes: tuple[str, ...] = ()
    named = {frozenset(map(same_words, texts)) for texts in answered.values()}
    if len(answered) > 1 and len(named) == 1:
        (same,) = named
        note = (
            f"the chat model names the same {len(same)} contexts for all {len(answered)} classes:"
            " it may not have understood the question"
        )
        notes = (note,)
    return tuple(by_label), notes


class _Asked:
    """The chat model of the settings, loaded at the first question without a recorded answer."""

    def __init__(self, settings: ChatSettings, device: str) -> None:
        self.settings = settings
        self.device = device
        self.model: ChatModel | None = None

    def __call__(self, messages: Messages, **options: Any) -> str:
        if self.settings.model is None:
            raise UserError(
                f"mine.settings.chat.answers: {self.settings.answers} has no usable answer to the question"
                f" '{messages[0]['content'][:100]}…'",
                "Name the model to ask: --set mine.settings.chat.model=NAME; or change the settings back"
                " to those of the run that recorded them.",
            )
        if self.model is None:
            url = self.settings.base_url
            self.model = load_chat(self.settings.model, base_url=url, device=self.device)
        return self.model.answer(messages, **options)
