"""Load chat models by name: from the Hub's providers, a server with OpenAI's protocol, or into this
process.

model = load_chat("Qwen/Qwen3-8B")
model = load_chat("qwen3", base_url="http://localhost:8000/v1")
model = load_chat("transformers:HuggingFaceTB/SmolLM3-3B")  # or local-dir:PATH
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from counterfoil.models.chat import of_hub, of_transformers
from counterfoil.models.chat.of_hub import Messages
from counterfoil.models.names import LOCAL
from counterfoil.recipe.names import TRANSFORMERS, is_local


class ChatModel(Protocol):
    @property
    def name(self) -> str:
        """The name as the user gave it."""
        ...

    def answer(
        self,
        messages: Messages,
        *,
        schema: Mapping[str, Any],
        seed: int,
        most_tokens: int,
        temperature: float,
    ) -> str:
        """Return the text of the next turn, which follows `schema`, a JSON Schema, if the model
        supports schemas.

        The text may be empty, may not be JSON, and is not trusted. Raise UserError if the model
        cannot be used under its name, RunFailure if it gives no answer.
        """
        ...


# Maps a name's prefix to its loader. The first prefix that fits is taken. A path counts as LOCAL.
CHAT_KINDS: Mapping[str, Callable[[str, str | None, str], ChatModel]] = {
    TRANSFORMERS: of_transformers.load,
    LOCAL: of_transformers.load,
    "": of_hub.load,
}


def load_chat(name: str, *, base_url: str | None = None, device: str = "cpu") -> ChatModel:
    """Load a chat model without contacting its server."""
    of_hub.refuse_misnamed(name)
    known = LOCAL if is_local(name) else name
    load = next(kind for prefix, kind in CHAT_KINDS.items() if known.startswith(prefix))
    return load(name, base_url, device)
