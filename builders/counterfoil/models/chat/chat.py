"""What a chat model is here: a name, and answers in text to turns of a talk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Messages = Sequence[Mapping[str, str]]
"""Turns, oldest first, each with its `role` (user, assistant) and its `content`."""


class ChatModel(Protocol):
    """A chat model on this machine or elsewhere."""

    @property
    def name(self) -> str:
        """As it was asked for."""
        ...

    def answer(
        self, messages: Messages, *, schema: Mapping[str, Any], seed: int, most_tokens: int, temperature: float
    ) -> str:
        """The text of the next turn, perhaps empty. `schema` is the JSON Schema that is wished for, where it is taken.

        The text is anybody's: nothing says that it is JSON. Raises UserError where the model cannot be used as it is
        named, RunFailure where it gives no answer.
        """
        ...
