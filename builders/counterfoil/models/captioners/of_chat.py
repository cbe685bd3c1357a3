"""Write captions with chat models that take images. Examples become earlier turns of the chat.

The model's cache of question and image is used only if it does not change likelihoods (`_tried`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from counterfoil.errors import RunFailure
from counterfoil.models.captioners.captioner import Captioner, CaptionExample, SeenImage
from counterfoil.models.loading_errors import error_line
from counterfoil.models.messages import refusal
from counterfoil.models.text_models import (
    AS_RENDERED,
    TextModelConfig,
    ends_of,
    files_alone,
    never_of,
    render_chat,
)
from counterfoil.models.transformers_files import input_key_of, quiet_transformers

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

# The question about each image. It is part of the key, because it changes the captions.
QUESTION = "Describe this image in one sentence."
_MANNER = "Describe this image in one sentence, in the manner of these: {}"
# Tolerance for the log-likelihood of one caption; float32 sums in another order differ by some
# 1e-5.
_SAME = 1e-2
_IMAGE_TOKENS = ("image_token_id", "image_token_index", "video_token_id", "audio_token_id")


@dataclass(frozen=True, kw_only=True)
class ChatCaptioner(Captioner):
    """A chat model. lead: the white space before an answer in its template. goes_on: whether it
    uses its cache."""

    processor: Any
    lead: str
    goes_on: bool = True

    def reply(self, image: Image, question: str, most_tokens: int) -> tuple[torch.Tensor, str]:
        """Answer a question about an image. Return the scores of the first token [vocabulary],
        float32 on the CPU, and the greedy answer of at most `most_tokens` tokens.

        The question is not trusted: special tokens in it count as white space. Raise RunFailure if
        the model fails.
        """
        import torch

        lines = [self._plain(line) for line in question.splitlines()]
        with self._computing("answer a question", ()), torch.inference_mode():
            seen = self._seen(image, (), "\n".join(lines))
            (chosen,) = self._decode(seen, [], [torch.Generator()], most_tokens)
            return seen.scores.float().cpu(), self._text("", [], chosen)

    def _seen(
        self, image: Image, examples: Sequence[CaptionExample], own_question: str | None = None
    ) -> SeenImage:
        inputs = self._asked(image, examples, own_question)
        out = self.module(**inputs, use_cache=self.goes_on, logits_to_keep=1)
        cache = out.past_key_values if self.goes_on else _Read()
        return SeenImage(out.logits[0, -1], cache, inputs)

    def _went_on(self, seen: SeenImage, cache: Any, ids: torch.Tensor, done: int) -> torch.Tensor:
        if self.goes_on:
            return self.module(input_ids=ids, past_key_values=cache, use_cache=True).logits
        import torch

        rows = []
        for row in cache.taken(ids):
            inputs = _with(seen.more, row[None])
            out = self.module(**inputs, use_cache=False)
            rows.append(out.logits)
        return torch.cat(rows)[:, -ids.shape[1] :]

    def _tokens(self, text: str) -> list[int]:
        return super()._tokens(self.lead + text) if text else []

    def _asked(
        self, image: Image, examples: Sequence[CaptionExample], own_question: str | None = None
    ) -> dict[str, Any]:
        """Return the model's inputs for a question about an image, a batch of one. own_question: the
        question, if not the one for captions."""
        texts = [self._plain(example.text) for example in examples if example.image is None]
        question = _MANNER.format(" / ".join(texts)) if texts else own_question or QUESTION
        turns: list[dict[str, Any]] = []
        for example in examples:
            if example.image is not None:
                turns += [_question(question, example.image), _answer(self._plain(example.text))]
        turns.append(_question(question, image))
        # Templates of reasoning models read `enable_thinking`; other templates ignore it.
        more = {} if own_question is None else {"enable_thinking": False}
        text = render_chat(self.name, self.processor, turns, add_generation_prompt=True, **more)
        # The processor prepares images and special tokens. Its template is replaced by one that
        # repeats `rendered`.
        inputs = self.processor.apply_chat_template(
            turns,
            chat_template=AS_RENDERED,
            rendered=text,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )
        placed = dict(inputs)
        for key, value in placed.items():
            if hasattr(value, "to"):
                placed[key] = value.to(self.device)
        return placed

    def _plain(self, text: str) -> str:
        """Remove special tokens, which separate turns and images, from a text that is not
        trusted."""
        tokens: list[str] = list(self.tokenizer.get_added_vocab())
        for token in sorted(tokens, key=len, reverse=True):
            text = text.replace(token, " ")
        return " ".join(text.split())


class _Read:
    """The tokens of the captions so far. Models that read everything again use them in place of a
    cache."""

    def __init__(self) -> None:
        self.ids: torch.Tensor | None = None

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Do nothing, because `taken` gets the ids of all rows."""

    def taken(self, ids: torch.Tensor) -> torch.Tensor:
        import torch

        if self.ids is not None:
            ids = torch.cat([self.ids, ids], dim=1)
        self.ids = ids
        return ids


def load(parts: dict[str, Any], config: TextModelConfig) -> ChatCaptioner:
    """Make a captioner. parts: from `load_text_model`."""
    from transformers import AutoProcessor

    name = parts["name"]
    with files_alone(config) as folder, quiet_transformers():
        try:
            processor = AutoProcessor.from_pretrained(folder, trust_remote_code=False)
        except Exception as error:  # damaged files may raise anything
            reason = error_line(error)
            where = f"model {name!r}"
            raise refusal("invalid-config.made", where, reason, "processor") from error
    if (
        getattr(processor, "tokenizer", None) is None
        or getattr(processor, "image_processor", None) is None
    ):
        where = f"model {name!r}"
        raise refusal("invalid-config.parts", where)
    module = parts["module"]
    settings = module.config.get_text_config()
    tokenizer = processor.tokenizer
    ends = ends_of(
        name,
        config.special.get("eos_token_id"),
        config.document.get("eos_token_id"),
        getattr(settings, "eos_token_id", None),
        tokenizer.eos_token_id,
    )
    if isinstance(tokenizer.eos_token_id, int):
        # Tuned models may end a turn with a token that only their tokenizer names.
        ends = tuple(dict.fromkeys((*ends, tokenizer.eos_token_id)))
    rows = module.get_input_embeddings().num_embeddings
    ends = tuple(end for end in ends if end < rows)
    if not ends:
        where = f"model {name!r}"
        raise refusal("invalid-config.no-token", where, rows)
    # These tokens stand for images, which an answer does not have.
    images = [getattr(module.config, key, None) for key in _IMAGE_TOKENS]
    captioner = ChatCaptioner(
        **parts | {"tokenizer": tokenizer},
        ends=ends,
        longest=None,
        never=never_of(tokenizer, ends, rows, *images),
        takes_examples=True,
        input_key=input_key_of(processor, question=[QUESTION, _MANNER]),
        processor=processor,
        lead=_lead(name, processor),
    )
    return _tried(captioner)


def _tried(captioner: ChatCaptioner) -> ChatCaptioner:
    """Return the captioner, without its cache if the cache changes the likelihoods."""
    from PIL import Image

    image = Image.new("RGB", (64, 64), "grey")
    texts = ["a photo of a dog in the snow"]
    whole = replace(captioner, goes_on=False)
    expected, _ = whole.log_likelihoods(image, texts)
    try:
        cached, _ = captioner.log_likelihoods(image, texts)
    except RunFailure:  # the cache cannot be repeated, or the model cannot continue from it
        return whole
    difference = abs(float(cached[0] - expected[0]))
    return captioner if difference <= _SAME else whole


def _lead(name: str, processor: Any) -> str:
    """Return the white space that a template writes before an answer."""
    from PIL import Image

    question = _question(QUESTION, Image.new("RGB", (8, 8)))
    word = "quokka"  # is in no template
    try:
        prompt = render_chat(name, processor, [question], add_generation_prompt=True)
        whole = render_chat(name, processor, [question, _answer(word)])
    except RunFailure:  # the template cannot render an answer
        return ""
    lead, separator, _ = whole[len(prompt) :].partition(word)
    return lead if whole.startswith(prompt) and separator and not lead.strip() else ""


def _question(text: str, image: Image) -> dict[str, Any]:
    return {
        "role": "user",
        "content": [
            {"type": "image", "image": image.convert("RGB")},
            {"type": "text", "text": text},
        ],
    }


def _answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def _with(inputs: Mapping[str, Any], ids: torch.Tensor) -> dict[str, Any]:
    import torch

    grown = dict(inputs)
    width = inputs["input_ids"].shape
    for key, value in inputs.items():
        if key == "input_ids":
            grown[key] = torch.cat([value, ids], dim=1)
        elif isinstance(value, torch.Tensor) and value.shape == width:
            more = torch.ones_like(ids) if key == "attention_mask" else torch.zeros_like(ids)
            grown[key] = torch.cat([value, more.to(value.dtype)], dim=1)
    return grown
