"""Chat models that take images: asked in their own template, and shown example descriptions as earlier turns.

Any of transformers' image-text-to-text models that comes with a chat template. What question and image left in the
model is kept, and captions go on from there. When a model is loaded, that is compared with reading all at once: a model
that does not go on as it would have read is read whole for every caption, which is slower.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.captioners.captioner import Captioner, CaptionExample, SeenImage
from counterfoil.models.loading_errors import one_line
from counterfoil.models.text_models import (
    AS_RENDERED,
    TextModelConfig,
    ends_of,
    files_alone,
    loaded,
    never_of,
    rendered,
)
from counterfoil.models.transformers_files import ModelFiles, input_key_of, quiet

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

# What a model is asked about each image. A change of it changes captions: the key holds it.
QUESTION = "Describe this image in one sentence."
_MANNER = "Describe this image in one sentence, in the manner of these: {}"
# Of a caption of four tokens at load; float32 sums in another order differ by some 1e-5.
_SAME = 1e-2
_PLACES_OF_IMAGES = ("image_token_id", "image_token_index", "video_token_id", "audio_token_id")


@dataclass(frozen=True, kw_only=True)
class ChatCaptioner(Captioner):
    """`processor` is the model's own, with its template. `goes_on` says whether what was read may be kept."""

    processor: Any
    lead: str
    goes_on: bool = True

    def _seen(self, image: Image, examples: Sequence[CaptionExample]) -> SeenImage:
        asked = self._asked(image, examples)
        out = self.module(**asked, use_cache=self.goes_on, logits_to_keep=1)
        return SeenImage(out.logits[0, -1], out.past_key_values if self.goes_on else _Read(), asked)

    def _went_on(self, seen: SeenImage, cache: Any, ids: torch.Tensor, done: int) -> torch.Tensor:
        if self.goes_on:
            return self.module(input_ids=ids, past_key_values=cache, use_cache=True).logits
        import torch

        known = cache.taken(ids)
        rows = [self.module(**_with(seen.more, own[None]), use_cache=False).logits for own in known]
        return torch.cat(rows)[:, -ids.shape[1] :]

    def _tokens(self, text: str) -> list[int]:
        # As the template writes an answer: some begin it with a space.
        return super()._tokens(self.lead + text) if text else []

    def _asked(self, image: Image, examples: Sequence[CaptionExample]) -> dict[str, Any]:
        """The question about an image as the model takes it, a batch of one."""
        texts = [self._plain(one.text) for one in examples if one.image is None]
        question = _MANNER.format(" / ".join(texts)) if texts else QUESTION
        turns: list[dict[str, Any]] = []
        for one in examples:
            if one.image is not None:
                turns += [_question(question, one.image), _answer(self._plain(one.text))]
        turns.append(_question(question, image))
        text = rendered(self.name, self.processor, turns, add_generation_prompt=True)
        # Its own way with images and special tokens, and none with templates.
        given = self.processor.apply_chat_template(
            turns, chat_template=AS_RENDERED, rendered=text, tokenize=True, return_dict=True, return_tensors="pt"
        )
        return {key: value.to(self.device) if hasattr(value, "to") else value for key, value in given.items()}

    def _plain(self, text: str) -> str:
        """A text of somebody else's without the names of tokens by which a template tells turns and images apart."""
        tokens: list[str] = list(self.tokenizer.get_added_vocab())
        for token in sorted(tokens, key=len, reverse=True):
            text = text.replace(token, " ")
        return " ".join(text.split())


class _Read:
    """In the place of a cache, for models that are read whole: the tokens of the caption so far."""

    def __init__(self) -> None:
        self.ids: torch.Tensor | None = None

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Nothing was read yet, and what is taken has its rows."""

    def taken(self, ids: torch.Tensor) -> torch.Tensor:
        import torch

        self.ids = ids if self.ids is None else torch.cat([self.ids, ids], dim=1)
        return self.ids


def load(name: str, files: ModelFiles, config: TextModelConfig, device: str) -> ChatCaptioner:
    """Load the captioner on `device`. Raises as `loaded`, and where it cannot be asked about an image."""
    from transformers import AutoProcessor

    parts = loaded(name, files, config, device)
    with files_alone(config) as folder, quiet():
        try:
            processor = AutoProcessor.from_pretrained(folder, trust_remote_code=False)
        except Exception as error:  # whatever files of any content make it raise
            raise UserError(f"model {name!r}: no processor can be made from its files: {one_line(error)}") from error
    if getattr(processor, "tokenizer", None) is None or getattr(processor, "image_processor", None) is None:
        raise UserError(f"model {name!r}: its processor does not take images and texts")
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
        # Tuned models end a turn by a token of their tokenizer's that their configuration may not know.
        ends = tuple(dict.fromkeys((*ends, tokenizer.eos_token_id)))
    rows = module.get_input_embeddings().num_embeddings
    ends = tuple(end for end in ends if end < rows)
    if not ends:
        raise UserError(f"model {name!r}: the tokens that end a caption are none of its {rows:,}")
    # In an answer they would ask for an image that nobody gave.
    images = [getattr(module.config, key, None) for key in _PLACES_OF_IMAGES]
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
    """The captioner, after its first look at an image: read whole where going on gives other likelihoods."""
    from PIL import Image

    image, texts = Image.new("RGB", (64, 64), "grey"), ["a photo of a dog in the snow"]
    whole = replace(captioner, goes_on=False)
    expected, _ = whole.log_likelihoods(image, texts)
    try:
        found, _ = captioner.log_likelihoods(image, texts)
    except RunFailure:  # a model whose cache cannot be repeated, or that takes nothing behind it
        return whole
    return captioner if abs(float(found[0] - expected[0])) <= _SAME else whole


def _lead(name: str, processor: Any) -> str:
    """What a template writes between the sign of an answer and the answer."""
    from PIL import Image

    asked = _question(QUESTION, Image.new("RGB", (8, 8)))
    word = "quokka"  # of no template
    try:
        begun = rendered(name, processor, [asked], add_generation_prompt=True)
        whole = rendered(name, processor, [asked, _answer(word)])
    except RunFailure:  # a template that knows no such thing writes nothing between them
        return ""
    between, found, _ = whole[len(begun) :].partition(word)
    return between if whole.startswith(begun) and found and not between.strip() else ""


def _question(text: str, image: Image) -> dict[str, Any]:
    return {
        "role": "user",
        "content": [{"type": "image", "image": image.convert("RGB")}, {"type": "text", "text": text}],
    }


def _answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def _with(asked: Mapping[str, Any], ids: torch.Tensor) -> dict[str, Any]:
    """The question with the tokens of an answer behind it: words, and no image's."""
    import torch

    grown = dict(asked)
    width = asked["input_ids"].shape
    for key, value in asked.items():
        if key == "input_ids":
            grown[key] = torch.cat([value, ids], dim=1)
        elif isinstance(value, torch.Tensor) and value.shape == width:
            more = torch.ones_like(ids) if key == "attention_mask" else torch.zeros_like(ids)
            grown[key] = torch.cat([value, more.to(value.dtype)], dim=1)
    return grown
