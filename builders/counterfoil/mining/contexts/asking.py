"""Ask a chat model for the contexts of each class, understand its answers whole or not at all, and ask again.

An answer is taken where it is the JSON that was asked for and nothing else; any other is told to the model with what is
wrong with it. What is recorded is not asked again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from counterfoil.errors import RunFailure
from counterfoil.mining.contexts.checks import context_problem
from counterfoil.mining.contexts.recorded import LONGEST_ANSWER, Answered, Record, Turn
from counterfoil.progress import report
from counterfoil.recipe.prompts import fill
from counterfoil.recipe.schema_mine import ChatSettings, ContextsSettings

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"contexts": {"type": "array", "items": {"type": "string"}}},
    "required": ["contexts"],
    "additionalProperties": False,
}
_FORM = 'Answer with JSON alone: {"contexts": ["...", "..."]}'
_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?```", re.DOTALL | re.IGNORECASE)
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
# A model that fails so many classes fails the others too.
_MOST_FAILED = 5
_MOST_TOLD = 3
_STAGE = "contexts"


class ChatAnswer(Protocol):
    """Who answers: `ChatModel.answer`."""

    def __call__(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        schema: Mapping[str, Any],
        seed: int,
        most_tokens: int,
        temperature: float,
    ) -> str: ...


@dataclass(frozen=True, slots=True)
class Understood:
    """The contexts of an answer, or what is wrong with it; one of the two is empty."""

    contexts: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def ask_contexts(
    chat_answer: ChatAnswer, class_names: Sequence[str], settings: ContextsSettings, record: Record
) -> dict[int, list[str]]:
    """Contexts by label, as the model named them. `settings.chat` is set.

    Raises RunFailure with every class (five at most) whose answers could not be used, and what `chat_answer` raises;
    what was answered until then is in the record.
    """
    assert settings.chat is not None
    report(_STAGE, 0, len(class_names))
    found: dict[int, list[str]] = {}
    failed: list[str] = []
    for label, name in enumerate(class_names):
        understood, last = _asked(chat_answer, name, settings, settings.chat, record)
        if understood.problems:
            said = f"'{_shown(last)}'" if last.strip() else "nothing"
            failed.append(
                f"chat model '{record.model}': no answer about class '{name}' can be used after {settings.chat.tries}"
                f" {'tries' if settings.chat.tries > 1 else 'try'}: {understood.problems[0]}; it said {said}"
            )
            if len(failed) == _MOST_FAILED:
                break
        found[label] = list(understood.contexts)
        report(_STAGE, label + 1, len(class_names))
    record.save()
    if failed:
        raise RunFailure(
            failed,
            "Name another model, or allow it more: mine.settings.chat.tries, most_tokens, temperature. Answers that"
            f" could be used are kept in {record.path.name}, and run again only these classes are asked.",
        )
    return found


def first_question(settings: ContextsSettings, chat: ChatSettings, class_name: str) -> str:
    """What the model is asked about a class."""
    sentence = settings.caption(class_name, "...")
    return (
        f"{fill(settings.asked(), class_name)} Give {chat.most}, all different, each a few words that complete the"
        f' sentence "{sentence}" in place of the three dots. {_FORM}'
    )


def understood(text: str, class_name: str, settings: ContextsSettings, most: int) -> Understood:
    """What an answer says. White space, a code fence around all of it and a thought before it are nothing in it."""
    plain = _THOUGHT.sub("", text, count=1).strip() if text.lstrip().startswith("<think>") else text.strip()
    fenced = _FENCED.fullmatch(plain)
    try:
        document = json.loads(fenced[1] if fenced else plain, object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        return Understood(problems=("it is not JSON",))
    contexts = document.get("contexts") if isinstance(document, dict) else None
    if not isinstance(contexts, list) or len(document) != 1:
        return Understood(problems=('expected one key, "contexts", with a list',))
    problems = []
    if not 1 <= len(contexts) <= most:
        problems.append(f"found {len(contexts):,} contexts, expected {most}")
    for context in contexts[: most + 1]:
        if not isinstance(context, str):
            problems.append(f"found {type(context).__name__} among the contexts, expected texts")
            continue
        problem = context_problem(context)
        if problem is None and _repeats(class_name, settings.caption(class_name, context)):
            problem = f"found '{context}', expected it without '{class_name}': the sentence has it"
        problems += [problem] if problem is not None else []
    return Understood(problems=tuple(problems)) if problems else Understood(tuple(contexts))


def _asked(
    chat_answer: ChatAnswer, class_name: str, settings: ContextsSettings, chat: ChatSettings, record: Record
) -> tuple[Understood, str]:
    """What is understood of the last answer about a class, and that answer."""
    turns = [Turn(role="user", content=first_question(settings, chat, class_name))]
    start, known = list(turns), []
    while len(known) < chat.tries and (answered := record.find(_question(turns, chat, record))) is not None:
        outcome = understood(answered.text, class_name, settings, chat.most)
        if not outcome.problems:
            return outcome, answered.text
        known.append(answered)
        turns = _again(turns, answered.text, outcome)
    if len(known) == chat.tries:
        # An earlier run ended there, and who runs it again wants it asked again.
        record.forget(known)
        turns, known = start, []
    outcome, text = Understood(problems=("it was not asked",)), ""
    for _ in range(chat.tries - len(known)):
        question = _question(turns, chat, record)
        text = chat_answer(
            [turn.model_dump() for turn in turns],
            schema=SCHEMA,
            seed=chat.seed,
            most_tokens=chat.most_tokens,
            temperature=chat.temperature,
        )
        # As it is written and read back: what is understood is what is kept.
        text = text[:LONGEST_ANSWER].encode("utf-8", "replace").decode()
        outcome = understood(text, class_name, settings, chat.most)
        record.keep(question.model_copy(update={"text": text, "taken": not outcome.problems}))
        if not outcome.problems:
            break
        turns = _again(turns, text, outcome)
    return outcome, text


def _question(turns: Sequence[Turn], chat: ChatSettings, record: Record) -> Answered:
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


def _again(turns: Sequence[Turn], text: str, outcome: Understood) -> list[Turn]:
    told = "; ".join(outcome.problems[:_MOST_TOLD])
    asked = Turn(role="user", content=f"That cannot be used: {told}. {_FORM}")
    # Some templates refuse an empty turn.
    return [*turns, Turn(role="assistant", content=text.strip() or "..."), asked]


def _shown(text: str) -> str:
    """The beginning of a model's words, in one line that a terminal shows and does not obey."""
    words = " ".join(text[:1000].split())[:80]
    return "".join(character if character.isprintable() else "�" for character in words)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def _repeats(class_name: str, caption: str) -> bool:
    """Whether a caption says the class twice in a row: "a photo of a sandal a sandal in the snow"."""
    name = re.escape(class_name)
    return re.search(rf"\b{name}\W+(?:(?:a|an|the)\W+)?{name}\b", caption, re.IGNORECASE) is not None
