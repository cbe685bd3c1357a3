"""Run chat models in this process: any text model of transformers with a chat template, checked by
`text_models`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from counterfoil.models.chat.of_hub import Messages
from counterfoil.models.loading_errors import explain_computing
from counterfoil.models.messages import failure, refusal
from counterfoil.models.text_models import (
    CAPTIONER_FILES,
    all_ids,
    checked_chat,
    load_text_model,
    render_chat,
)
from counterfoil.models.transformers_files import found_files, quiet_transformers
from counterfoil.recipe.names import TRANSFORMERS

# A question must leave room for an answer of this many tokens.
_FEWEST_TOKENS = 16


@dataclass(frozen=True)
class TextChat:
    """A text model. ends: tokens that end an answer; longest: the most tokens of question and
    answer."""

    name: str
    module: Any
    tokenizer: Any
    ends: tuple[int, ...]
    longest: int | None
    device: str

    def answer(
        self,
        messages: Messages,
        *,
        schema: Mapping[str, Any],
        seed: int,
        most_tokens: int,
        temperature: float,
    ) -> str:
        """Answer without enforcing the schema. Above temperature 0, tokens are drawn with the
        seed."""
        import torch
        from transformers import GenerationConfig

        from counterfoil.models.trials import ids_in_bounds

        with (
            explain_computing(f"chat model '{self.name}'", "answer", self.device),
            quiet_transformers(),
        ):
            # Templates of reasoning models read `enable_thinking`; other templates ignore it.
            text = render_chat(
                self.name,
                self.tokenizer,
                messages,
                add_generation_prompt=True,
                enable_thinking=False,
            )
            tokens = self.tokenizer(text, add_special_tokens=False, return_tensors="pt")
            inputs = {key: tokens[key].to(self.device) for key in ("input_ids", "attention_mask")}
            width = inputs["input_ids"].shape[1]
            most = most_tokens if self.longest is None else min(most_tokens, self.longest - width)
            if most < _FEWEST_TOKENS:
                where = f"chat model '{self.name}'"
                raise failure("unfit-input.question", where, width, self.longest)
            chosen: dict[str, Any] = {"do_sample": False}
            if temperature > 0:
                chosen = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
            settings = GenerationConfig(
                max_new_tokens=most,
                eos_token_id=list(self.ends),
                pad_token_id=self.ends[0],
                **chosen,
            )
            # torch's own generator of random numbers stays as it was.
            with (
                torch.random.fork_rng(),
                torch.inference_mode(),
                ids_in_bounds(self.name, self.module),
            ):
                torch.manual_seed(seed)
                out = self.module.generate(**inputs, generation_config=settings)
            return self.tokenizer.decode(out[0, width:].tolist(), skip_special_tokens=True).strip()


def load(name: str, base_url: str | None, device: str) -> TextChat:
    if base_url is not None:
        who = f"chat model '{name}'"
        raise refusal("chat-server.in-process", who, base_url)
    files = found_files(name, name.removeprefix(TRANSFORMERS), CAPTIONER_FILES)
    config = checked_chat(name, files)
    parts = load_text_model(name, files, config, device)
    module = parts["module"]
    tokenizer = parts["tokenizer"]
    rows = module.get_input_embeddings().num_embeddings
    # Tuned models may end a turn with a token that only their tokenizer names.
    settings = (
        config.special.get("eos_token_id"),
        config.document.get("eos_token_id"),
        tokenizer.eos_token_id,
    )
    ends = {}
    for setting in settings:
        for end in all_ids(setting):
            if end < rows:
                ends[end] = None
    if not ends:
        where = f"model {name!r}"
        raise refusal("invalid-config.no-end", where, rows)
    longest = getattr(module.config.get_text_config(), "max_position_embeddings", None)
    return TextChat(
        name=name,
        module=module,
        tokenizer=tokenizer,
        ends=tuple(ends),
        longest=longest if isinstance(longest, int) and longest > 0 else None,
        device=device,
    )
