"""Write captions of an image, and compute the likelihood of given captions, with one decoder.

transformers' `generate` is not used, because it takes settings from the model and draws the random
numbers of all captions from one generator. A kind of captioner reads an image once (`_seen`) and
continues from there (`_went_on`). Captions and likelihoods both use these two steps, so they agree.
Neither depends on the other captions of a call.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.arrays import Floats, Ints
from counterfoil.models.loading_errors import explain_computing
from counterfoil.models.messages import failure, refusal

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

# Every batch has this many rows, and its captions have equal lengths after rounding up to a step.
# So a caption's likelihood does not depend on the other captions.
SCORED_TOGETHER = 8
LENGTH_STEP = 8


@dataclass(frozen=True, slots=True)
class CaptionExample:
    text: str
    image: Image | None = None


@dataclass(frozen=True, slots=True)
class CaptionerAbout:
    """A captioner's description, known before any weight is loaded. `revision` is a commit of the
    Hub."""

    name: str
    model_type: str
    architecture: str
    takes_examples: bool
    revision: str | None


@dataclass(frozen=True, slots=True)
class SeenImage:
    """A model's state after it has read an image. `scores` [vocabulary] are those of the first
    token."""

    scores: torch.Tensor
    cache: Any
    more: Any = None


@dataclass(frozen=True, kw_only=True)
class Captioner:
    """A trained captioner in eval mode; each kind is a subclass in a file of its own."""

    name: str
    """The name by which a person names it."""
    model_type: str
    """transformers' name of its kind."""
    architecture: str
    """transformers' name of its class."""
    sha256: str
    """Of configuration, tokenizer and weights."""
    input_key: str
    """Captioners with the same key turn an image or text into the same tensors."""
    device: str
    """Where the module is."""
    module: Any
    """The torch module."""
    tokenizer: Any
    """The tokenizer of transformers."""
    ends: tuple[int, ...]
    """Tokens that end a caption."""
    longest: int | None
    """The most tokens of a caption, its end included, or None if unknown."""
    never: tuple[int, ...] = ()
    """Tokens that may not be in a caption."""
    takes_examples: bool = False
    """Whether captions may follow examples."""

    @property
    def key(self) -> str:
        """Hash all that captions and likelihoods depend on, except the arguments of a call."""
        from importlib.metadata import version

        import torch

        from counterfoil.documents import sha256_json

        # The last bits of floats differ between kinds of device and between versions of these
        # libraries.
        versions = {
            name: version(name)
            for name in ("torch", "transformers", "tokenizers", "pillow", "torchvision")
        }
        return sha256_json(
            [_FORMAT, self.sha256, self.input_key, torch.device(self.device).type, versions]
        )

    def captions(
        self,
        image: Image,
        *,
        prefix: str = "",
        number: int = 1,
        seed: int = 0,
        most_tokens: int = 40,
        examples: Sequence[CaptionExample] = (),
    ) -> list[str]:
        """Write `number` captions: the greedy one, then others sampled from the likeliest tokens
        (top-p 0.9).

        Each begins with `prefix`, ends at most `most_tokens` tokens after the prefix, and may be
        unfinished or empty. Captions depend only on the image's pixels and these arguments. Raise
        UserError for a prefix that is too long, or for examples if the model takes none; RunFailure
        if the model fails.
        """
        import torch

        begun = _readable(prefix)
        with self._computing("caption an image", examples), torch.inference_mode():
            forced = self._tokens(begun)
            most = most_tokens
            if self.longest is not None:
                most = min(most_tokens, self.longest - len(forced))
            if most < 1:
                where = f"model {self.name!r}"
                raise refusal("unfit-input.prefix", where, begun, self.longest, tokens=len(forced))
            generators = [_generator(image, seed, index) for index in range(number)]
            chosen = self._decode(self._seen(image, examples), forced, generators, most)
            return [self._text(begun, forced, tokens) for tokens in chosen]

    def log_likelihoods(
        self, image: Image, captions: Sequence[str], *, examples: Sequence[CaptionExample] = ()
    ) -> tuple[Floats, Ints]:
        """Return the natural log-likelihoods (k,) of captions given the image, and their numbers of
        tokens (k,).

        Both include the end of the caption. If lengths differ, divide by the number of tokens,
        because log-likelihoods favour short captions. Raise UserError for a caption that is too
        long, RunFailure if the model fails.
        """
        import torch

        with self._computing("judge captions", examples), torch.inference_mode():
            tokens = [self._tokens(_readable(caption)) for caption in captions]
            counts = np.array([len(ids) + 1 for ids in tokens], dtype=np.int64)
            for caption, count in zip(captions, counts, strict=True):
                if self.longest is not None and count > self.longest:
                    where = f"model {self.name!r}"
                    raise refusal(
                        "unfit-input.caption",
                        where,
                        caption.strip(),
                        self.longest,
                        tokens=count,
                    )
            sums = np.zeros(len(tokens))
            if tokens:
                seen = self._seen(image, examples)
                first = torch.log_softmax(seen.scores.float().cpu(), dim=-1)
                for rows, width in _batches([len(ids) for ids in tokens]):
                    most = width if self.longest is None else min(width, self.longest - 1)
                    sums[rows] = self._sums(seen, first, [tokens[row] for row in rows], most)
        # Rounding can make a probability more than one.
        return np.minimum(sums, 0.0), counts

    def fits(self, caption: str) -> bool:
        return self.longest is None or len(self._tokens(caption.strip())) + 1 <= self.longest

    def _seen(self, image: Image, examples: Sequence[CaptionExample]) -> SeenImage:
        raise NotImplementedError

    def _went_on(self, seen: SeenImage, cache: Any, ids: torch.Tensor, done: int) -> torch.Tensor:
        """Return scores [rows, width, vocabulary] after each of `ids` [rows, width], and add the
        ids to the cache."""
        raise NotImplementedError

    def _tokens(self, text: str) -> list[int]:
        """Tokenize a text. Special tokens that are written in the text count as ordinary words."""
        if not text:
            return []
        return list(
            self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        )

    def _repeated(self, seen: SeenImage, rows: int) -> Any:
        cache = copy.deepcopy(seen.cache)
        cache.batch_repeat_interleave(rows)
        return cache

    def _decode(
        self, seen: SeenImage, forced: list[int], generators: Sequence[torch.Generator], most: int
    ) -> list[list[int]]:
        """Return the tokens of each caption after the forced tokens, without its end. The first
        caption is greedy."""
        import torch

        rows = len(generators)
        cache = self._repeated(seen, rows)
        scores = seen.scores.expand(rows, -1)
        done = 0
        if forced:
            ids = torch.tensor([forced] * rows, device=self.device)
            scores = self._went_on(seen, cache, ids, 0)[:, -1]
            done = len(forced)
        chosen: list[list[int]] = [[] for _ in range(rows)]
        ended = [False] * rows
        for step in range(most):
            now = scores.float().cpu().clone()
            if bool(torch.isnan(now).any()):
                where = f"model {self.name!r}"
                raise failure("failed-model.scores", where)
            now[:, list(self.never)] = -torch.inf
            for row in range(rows):
                if ended[row]:
                    continue
                token = chosen_token(now[row], generators[row] if row else None)
                ended[row] = token in self.ends
                if not ended[row]:
                    chosen[row].append(token)
            if all(ended) or step + 1 == most:
                return chosen
            # A caption that has ended keeps its row, because the batch must keep its size.
            last = []
            for over, ids in zip(ended, chosen, strict=True):
                last.append(self.ends[0] if over else ids[-1])
            following = torch.tensor(last, device=self.device)[:, None]
            scores = self._went_on(seen, cache, following, done)[:, -1]
            done += 1
        return chosen

    def _text(self, prefix: str, forced: list[int], chosen: list[int]) -> str:
        """Return the caption: the prefix as it was written, then the model's words."""

        def decode(ids: list[int]) -> str:
            return self.tokenizer.decode(
                ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )

        if not prefix:
            return decode(chosen).strip()
        # Decoding both together shows whether the first chosen token begins with a space.
        before = decode(forced)
        whole = decode(forced + chosen)
        if whole.startswith(before):
            return (prefix + whole[len(before) :]).rstrip()
        return f"{prefix} {decode(chosen).strip()}".rstrip()

    def _sums(
        self, seen: SeenImage, first: torch.Tensor, tokens: list[list[int]], width: int
    ) -> Floats:
        """Return log-likelihoods of at most `SCORED_TOGETHER` captions of at most `width`
        tokens."""
        import torch

        ends = list(self.ends)
        begun = []
        for ids in tokens:
            score = first[ids[0]] if ids else torch.logsumexp(first[ends], 0)
            begun.append(float(score))
        if not width:
            return np.array(begun)
        # Attention is causal: the padding after a caption changes no score in it.
        padded = [ids + [self.ends[0]] * (width - len(ids)) for ids in tokens]
        padded += [padded[-1]] * (SCORED_TOGETHER - len(tokens))
        batch = torch.tensor(padded, device=self.device)
        scores = self._went_on(seen, self._repeated(seen, SCORED_TOGETHER), batch, 0)
        sums = []
        for row, ids in enumerate(tokens):
            logarithms = torch.log_softmax(scores[row, : len(ids)].float().cpu(), dim=-1)
            following = logarithms[
                torch.arange(len(ids) - 1), torch.tensor(ids[1:], dtype=torch.long)
            ]
            end = torch.logsumexp(logarithms[-1, ends], 0)
            sums.append(begun[row] + float(following.double().sum()) + float(end))
        return np.array(sums)

    @contextlib.contextmanager
    def _computing(self, doing: str, examples: Sequence[CaptionExample]) -> Iterator[None]:
        from counterfoil.models.trials import ids_in_bounds

        if examples and not self.takes_examples:
            where = f"model {self.name!r}"
            raise refusal("unfit-model.examples", where, self.model_type)
        with (
            explain_computing(f"model {self.name!r}", doing, self.device),
            ids_in_bounds(self.name, self.module),
        ):
            yield


# A part of the key. Increase the number when a change of the decoder changes captions or
# likelihoods.
_FORMAT = 1


def _readable(text: str) -> str:
    """Strip a text, and replace surrogates, which tokenizers refuse."""
    return text.encode("utf-8", "replace").decode().strip()


def _generator(image: Image, seed: int, index: int) -> torch.Generator:
    import torch

    digest = hashlib.sha256(f"{seed}\0{index}\0{image.mode}\0{image.size}\0".encode())
    digest.update(image.tobytes())
    seeded = int.from_bytes(digest.digest()[:8], "big") >> 1
    return torch.Generator().manual_seed(seeded)


def _batches(lengths: Sequence[int]) -> Iterator[tuple[list[int], int]]:
    """Yield the rows of each batch, and its width, which is the length of its rows rounded up to a
    step."""
    widths = [-(-length // LENGTH_STEP) * LENGTH_STEP for length in lengths]
    for width in sorted(set(widths)):
        rows = [row for row, row_width in enumerate(widths) if row_width == width]
        for start in range(0, len(rows), SCORED_TOGETHER):
            yield rows[start : start + SCORED_TOGETHER], width


# Holtzman 2020, section 3.1: sample from the smallest set of tokens that has this share of the
# probability.
TOP_P = 0.9


def chosen_token(scores: torch.Tensor, generator: torch.Generator | None) -> int:
    """Choose the likeliest token by scores [vocabulary] on the CPU, or sample one with the
    generator."""
    import torch

    if generator is None:
        return int(scores.argmax())
    shares = torch.softmax(scores.double(), dim=-1)
    shares, tokens = shares.sort(descending=True, stable=True)
    reached = shares.cumsum(0)
    # The token that reaches the share is kept too.
    last = int((reached < TOP_P).sum())
    whole = reached[: last + 1][-1]
    drawn = whole * torch.rand((), generator=generator, dtype=torch.float64)
    position = int(torch.searchsorted(reached, drawn, right=True))
    return int(tokens[min(position, last)])
