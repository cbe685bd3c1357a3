"""Contexts of every class of a recipe: of a list, of a chat model, or of both, each once a class by its words.

What says the same in other words is dropped where CLIP is at hand (`doubles.without_doubles`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from counterfoil.errors import UserError
from counterfoil.mining.contexts.asking import ask_contexts
from counterfoil.mining.contexts.doubles import same_words, without_same_words
from counterfoil.mining.contexts.lists import load_contexts
from counterfoil.mining.contexts.recorded import Record
from counterfoil.models.chat import ChatModel, Messages, load_chat
from counterfoil.recipe import Recipe
from counterfoil.recipe.names import without_folders
from counterfoil.recipe.schema_mine import ChatSettings, ContextsSettings

ProposedBy = Literal["list", "chat"]


@dataclass(frozen=True, slots=True)
class Proposed:
    """Contexts by label, in the order in which they were proposed: a list's before a chat model's.

    sources: of the same shape, who proposed each first. notes: what is odd about them, for people.
    """

    by_label: tuple[tuple[str, ...], ...]
    sources: tuple[tuple[ProposedBy, ...], ...]
    notes: tuple[str, ...] = ()


def proposed_contexts(recipe: Recipe, settings: ContextsSettings, folder: Path, device: str) -> Proposed:
    """Contexts of every class of the recipe, none without any.

    What a chat model is asked and answers is recorded in `folder` (`recorded.ANSWERS`); a run that was killed goes on
    behind the last answer. Raises UserError for lists that cannot be used and classes without contexts, and as
    `asking.ask_contexts`.
    """
    listed = None
    if settings.contexts is not None:
        listed = load_contexts(settings.contexts)
        listed.refuse_unfit(recipe.classes, settings.axis)
    answered: dict[int, list[str]] = {}
    if settings.chat is not None:
        model = None if settings.chat.model is None else without_folders(settings.chat.model)
        record = Record.open(folder, settings.chat, model)
        names = [cls.name for cls in recipe.classes]
        answered = ask_contexts(_Asked(settings.chat, device), names, settings, record)
    by_label, sources = [], []
    for cls in recipe.classes:
        of_list = () if listed is None else listed.of(cls)
        of_chat = answered.get(cls.label, ())
        texts = [" ".join(text.split()) for text in (*of_list, *of_chat)]
        kept = without_same_words(texts).kept
        by_label.append(tuple(texts[place] for place in kept))
        sources.append(tuple("list" if place < len(of_list) else "chat" for place in kept))
    _refuse_empty(recipe, by_label)
    return Proposed(tuple(by_label), tuple(sources), tuple(_odd(list(answered.values()))))


class _Asked:
    """The chat model of the settings, loaded when it is first asked: what is recorded needs none."""

    def __init__(self, settings: ChatSettings, device: str) -> None:
        self.settings, self.device = settings, device
        self.model: ChatModel | None = None

    def __call__(self, messages: Messages, **options: Any) -> str:
        if self.settings.model is None:
            raise UserError(
                f"mine.settings.chat.answers: {self.settings.answers} has no answer that can be used to the question"
                f" '{messages[0]['content'][:100]}…'",
                "Name the model that is to be asked: --set mine.settings.chat.model=NAME; or change the settings back"
                " to those of the run that recorded them.",
            )
        if self.model is None:
            self.model = load_chat(self.settings.model, base_url=self.settings.base_url, device=self.device)
        return self.model.answer(messages, **options)


def _odd(answered: Sequence[Sequence[str]]) -> Iterator[str]:
    """What is odd about a model's answers, for people."""
    named = {frozenset(map(same_words, texts)) for texts in answered}
    if len(answered) > 1 and len(named) == 1:
        yield (
            f"the chat model names the same {len(next(iter(named)))} contexts for all {len(answered)} classes:"
            " look whether it has read the question"
        )


def _refuse_empty(recipe: Recipe, by_label: list[tuple[str, ...]]) -> None:
    empty = [cls.name for cls, texts in zip(recipe.classes, by_label, strict=True) if not texts]
    if empty:
        more = f", … and {len(empty) - 5} more" if len(empty) > 5 else ""
        raise UserError(
            f"contexts: the list has none of {', '.join(repr(name) for name in empty[:5])}{more}",
            "Add `contexts` for all classes, or `by_name` for these; or ask a chat model too: mine.settings.chat",
        )
