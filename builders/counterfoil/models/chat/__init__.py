"""Chat models by name: of the Hub's providers, of any address that speaks OpenAI's protocol, or in this process.

model = load_chat("Qwen/Qwen3-8B")
model = load_chat("qwen3", base_url="http://localhost:8000/v1")
model = load_chat("transformers:HuggingFaceTB/SmolLM3-3B")  # or local-dir:PATH
model.answer([{"role": "user", "content": "…"}], schema=…, seed=0, most_tokens=512, temperature=0)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from counterfoil.errors import UserError
from counterfoil.models.chat import of_hub, of_transformers
from counterfoil.models.chat.of_hub import Messages
from counterfoil.models.names import LAB, LOCAL, refuse_elsewhere
from counterfoil.recipe.names import is_local

__all__ = ["CHAT_KINDS", "ChatModel", "Messages", "load_chat"]


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


# What a name begins with → the kind, the first that fits; a path is a folder's, and any other name one of a server's.
CHAT_KINDS: Mapping[str, Callable[[str, str | None, str, float], ChatModel]] = {
    of_transformers.PREFIX: of_transformers.load,
    LOCAL: of_transformers.load,
    "": of_hub.load,
}


def load_chat(
    name: str, *, base_url: str | None = None, device: str = "cpu", silence: float = of_hub.SILENCE
) -> ChatModel:
    """The chat model called `name`; one of a server is not asked anything yet.

    `silence` is after how many seconds without a byte a server is given up. Raises UserError for a name that can be
    none, and for files that are of no chat model; RunFailure where they cannot be fetched or read.
    """
    if not name.strip():
        raise UserError("a chat model has no name", "Name one of the Hub, transformers:NAME or local-dir:PATH.")
    refuse_elsewhere(name, "chat model")
    if name.startswith(LAB):
        raise UserError(f"chat model '{name}': the lab has none", "Name one of the Hub, or a list of contexts.")
    known = LOCAL if is_local(name) else name
    load = next(kind for prefix, kind in CHAT_KINDS.items() if known.startswith(prefix))
    return load(name, base_url, device, silence)
