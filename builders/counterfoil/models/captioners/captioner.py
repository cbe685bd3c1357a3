"""What a captioner is: sentences about one image, and the likelihood of given sentences, by one way of decoding.

Nothing here asks transformers' `generate`: its settings come with the model, its chance from one generator for all.
A kind of captioner shows its model an image once (`_seen`) and goes on from there (`_went_on`); both captions and
likelihoods are made of these two steps, so that they cannot disagree.

Pixels, prefix, number, seed, settings and examples decide what is written about an image, whatever came before;
nobody else's chance is drawn from. Likelihoods are sums of logarithms with the end counted, scored in batches of one
size and width, so that the other captions change no bit.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.loading_errors import computing

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

# Captions that are scored together. Batches are always of this many rows, and captions share one with those of their
# length alone (in steps), so that no caption's numbers depend on which others were asked about.
SCORED_TOGETHER = 8
LENGTH_STEP = 8


@dataclass(frozen=True, slots=True)
class CaptionExample:
    """A description that a captioner is shown before it writes its own, of an image where there is one."""

    text: str
    image: Image | None = None


@dataclass(frozen=True, slots=True)
class CaptionerAbout:
    """What a captioner says of itself before any weight is loaded. `revision` is a commit of the Hub, or None."""

    name: str
    model_type: str
    architecture: str
    takes_examples: bool
    revision: str | None


@dataclass(frozen=True, slots=True)
class SeenImage:
    """An image as a model has seen it: the scores [vocabulary] of what a caption begins with, and all it remembers.

    `cache` is transformers' cache of a batch of one. `more` is whatever else the kind goes on with.
    """

    scores: torch.Tensor
    cache: Any
    more: Any = None


@dataclass(frozen=True, kw_only=True)
class Captioner:
    """A trained captioner in eval mode; each kind is a subclass in a file of its own.

    `sha256` is over configuration, tokenizer and weights; equal `input_key`s mean that images and texts become equal
    tensors. `ends` are the tokens that end a caption, `longest` is how many tokens one can have, the end included
    (None: no limit is known), and `never` are tokens that are no part of any caption.
    """

    name: str
    model_type: str
    architecture: str
    sha256: str
    input_key: str
    device: str
    module: Any
    tokenizer: Any
    ends: tuple[int, ...]
    longest: int | None
    never: tuple[int, ...] = ()
    takes_examples: bool = False

    @property
    def key(self) -> str:
        """A sha256 over all that captions and likelihoods depend on beside image, texts and numbers given."""
        from importlib.metadata import version

        import torch

        from counterfoil.recipe import sha256_json

        # Floats differ in the last bits between kinds of device and versions of what computes them.
        versions = {name: version(name) for name in ("torch", "transformers", "tokenizers", "pillow", "torchvision")}
        return sha256_json([_FORMAT, self.sha256, self.input_key, torch.device(self.device).type, versions])

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
        """`number` captions: first the greedy one, the others drawn from the likeliest tokens (top-p 0.9).

        All begin with `prefix`, of which they are completions; white space around it does not count. A caption stops
        at `most_tokens` tokens behind the prefix, finished or not, and may be empty. They depend on the image's
        pixels and these arguments alone. UserError for a prefix that is too long or examples where none are taken,
        RunFailure for whatever the model cannot do.
        """
        import torch

        if number < 1 or most_tokens < 1:
            raise ValueError(f"{number} captions of {most_tokens} tokens: expected at least one of each")
        self._refuse_examples(examples)
        begun = _readable(prefix)
        with self._computing("caption an image"), torch.inference_mode():
            forced = self._tokens(begun)
            most = most_tokens if self.longest is None else min(most_tokens, self.longest - len(forced))
            if most < 1:
                raise UserError(
                    f"captioner {self.name!r}: {begun[:60]!r} is {len(forced)} tokens long, and its captions have "
                    f"at most {self.longest}"
                )
            chances = [_chance(image, seed, place) for place in range(number)]
            chosen = self._drawn(self._seen(image, examples), forced, chances, most)
            return [self._text(begun, forced, own) for own in chosen]

    def log_likelihoods(
        self, image: Image, captions: Sequence[str], *, examples: Sequence[CaptionExample] = ()
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return natural logarithms of the captions' probabilities (k,) given the image, and numbers of tokens (k,).

        Both count the end of the caption. Sums favour short captions: divide by the tokens where lengths differ.
        Which other captions are asked about changes no bit. UserError for a caption that is too long for the model,
        RunFailure for whatever it cannot do.
        """
        import torch

        self._refuse_examples(examples)
        with self._computing("judge captions"), torch.inference_mode():
            tokens = [self._tokens(_readable(caption)) for caption in captions]
            for caption, own in zip(captions, tokens, strict=True):
                if self.longest is not None and len(own) + 1 > self.longest:
                    raise UserError(
                        f"captioner {self.name!r}: {caption.strip()[:60]!r} is {len(own) + 1} tokens long with its "
                        f"end, and its captions have at most {self.longest}",
                        "Shorten the caption.",
                    )
            sums = np.zeros(len(tokens))
            if tokens:
                seen = self._seen(image, examples)
                first = torch.log_softmax(seen.scores.float().cpu(), dim=-1)
                for rows, width in _together([len(own) for own in tokens]):
                    most = width if self.longest is None else min(width, self.longest - 1)
                    sums[rows] = self._summed(seen, first, [tokens[row] for row in rows], most)
        # Rounding alone makes a certainty more than one.
        return np.minimum(sums, 0.0), np.array([len(own) + 1 for own in tokens], dtype=np.int64)

    def fits(self, caption: str) -> bool:
        """Whether the model has room for a caption with its end."""
        return self.longest is None or len(self._tokens(caption.strip())) + 1 <= self.longest

    def _seen(self, image: Image, examples: Sequence[CaptionExample]) -> SeenImage:
        """The image, shown once."""
        raise NotImplementedError

    def _went_on(self, seen: SeenImage, cache: Any, ids: torch.Tensor, done: int) -> torch.Tensor:
        """Scores [rows, width, vocabulary] of what follows each of `ids` [rows, width], after `done` tokens.

        `cache` is what `seen` remembers, for these rows; it takes in the ids.
        """
        raise NotImplementedError

    def _tokens(self, text: str) -> list[int]:
        """The tokens of a text; names of special tokens in it are ordinary words."""
        if not text:
            return []
        return list(self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])

    def _repeated(self, seen: SeenImage, rows: int) -> Any:
        cache = copy.deepcopy(seen.cache)
        cache.batch_repeat_interleave(rows)
        return cache

    def _drawn(
        self, seen: SeenImage, forced: list[int], chances: Sequence[torch.Generator], most: int
    ) -> list[list[int]]:
        """The tokens of each caption behind those that are forced, without their ends; the first is greedy."""
        import torch

        rows = len(chances)
        cache = self._repeated(seen, rows)
        scores, done = seen.scores.expand(rows, -1), 0
        if forced:
            ids = torch.tensor([forced] * rows, device=self.device)
            scores, done = self._went_on(seen, cache, ids, 0)[:, -1], len(forced)
        chosen: list[list[int]] = [[] for _ in range(rows)]
        ended = [False] * rows
        for step in range(most):
            now = scores.float().cpu().clone()
            if bool(torch.isnan(now).any()):
                raise RunFailure(f"captioner {self.name!r}: its scores of this image are not numbers")
            now[:, list(self.never)] = -torch.inf
            for row in range(rows):
                if ended[row]:
                    continue
                token = chosen_token(now[row], chances[row] if row else None)
                ended[row] = token in self.ends
                if not ended[row]:
                    chosen[row].append(token)
            if all(ended) or step + 1 == most:
                return chosen
            # Of a caption that has ended nothing is read any more: its row goes on for the others' sake.
            last = [self.ends[0] if over else own[-1] for over, own in zip(ended, chosen, strict=True)]
            scores = self._went_on(seen, cache, torch.tensor(last, device=self.device)[:, None], done)[:, -1]
            done += 1
        return chosen

    def _text(self, begun: str, forced: list[int], own: list[int]) -> str:
        """The caption: what was asked for as it was written, and the model's own words behind it."""

        def decoded(ids: list[int]) -> str:
            return self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

        if not begun:
            return decoded(own).strip()
        # A token may begin with its space or not; decoded behind the prefix it is where it belongs.
        before, whole = decoded(forced), decoded(forced + own)
        return (begun + (whole[len(before) :] if whole.startswith(before) else f" {decoded(own).strip()}")).rstrip()

    def _summed(self, seen: SeenImage, first: torch.Tensor, tokens: list[list[int]], width: int) -> NDArray[np.float64]:
        """Log-likelihoods of at most `SCORED_TOGETHER` captions of at most `width` tokens."""
        import torch

        ends = list(self.ends)
        begun = [float(first[own[0]]) if own else float(torch.logsumexp(first[ends], 0)) for own in tokens]
        if not width:
            return np.array(begun)
        padded = tokens + [tokens[-1]] * (SCORED_TOGETHER - len(tokens))
        # What stands behind a caption is never looked at by what stands in it.
        ids = torch.tensor([own + [self.ends[0]] * (width - len(own)) for own in padded], device=self.device)
        scores = self._went_on(seen, self._repeated(seen, SCORED_TOGETHER), ids, 0)
        sums = []
        for row, own in enumerate(tokens):
            logarithms = torch.log_softmax(scores[row, : len(own)].float().cpu(), dim=-1)
            following = logarithms[torch.arange(len(own) - 1), torch.tensor(own[1:], dtype=torch.long)]
            end = torch.logsumexp(logarithms[-1, ends], 0)
            sums.append(begun[row] + float(following.double().sum()) + float(end))
        return np.array(sums)

    def _refuse_examples(self, examples: Sequence[CaptionExample]) -> None:
        if examples and not self.takes_examples:
            raise UserError(
                f"captioner {self.name!r} takes no examples: a {self.model_type} model sees only one image",
                "Leave the examples out, or name a chat model that takes images.",
            )

    @contextlib.contextmanager
    def _computing(self, doing: str) -> Iterator[None]:
        from counterfoil.models.trials import ids_in_bounds

        hint = "Check its configuration, or name another captioner."
        with computing(f"captioner {self.name!r}", doing, self.device, hint), ids_in_bounds(self.name, self.module):
            yield


# Raise it when the same model gives other captions or likelihoods by another way of decoding.
_FORMAT = 1


def _readable(text: str) -> str:
    """A text without the white space around it, and without what no tokenizer reads: halves of letters."""
    return text.encode("utf-8", "replace").decode().strip()


def _chance(image: Image, seed: int, place: int) -> torch.Generator:
    """The chance of one caption of one image: nobody else draws from it."""
    import torch

    digest = hashlib.sha256(f"{seed}\0{place}\0{image.mode}\0{image.size}\0".encode())
    digest.update(image.tobytes())
    return torch.Generator().manual_seed(int.from_bytes(digest.digest()[:8], "big") >> 1)


def _together(lengths: Sequence[int]) -> Iterator[tuple[list[int], int]]:
    """Rows that are scored in one batch, and its width: lengths rounded up to a step."""
    widths = [-(-length // LENGTH_STEP) * LENGTH_STEP for length in lengths]
    for width in sorted(set(widths)):
        rows = [row for row, own in enumerate(widths) if own == width]
        for start in range(0, len(rows), SCORED_TOGETHER):
            yield rows[start : start + SCORED_TOGETHER], width


# Holtzman 2020, section 3.1: the smallest set of tokens that has this share of the probability.
TOP_P = 0.9


def chosen_token(scores: torch.Tensor, chance: torch.Generator | None) -> int:
    """A token by its scores [vocabulary] on the CPU: the likeliest, or with a generator a drawn one."""
    import torch

    if chance is None:
        return int(scores.argmax())
    shares, tokens = torch.softmax(scores.double(), dim=-1).sort(descending=True, stable=True)
    reached = shares.cumsum(0)
    # The token by which the share is reached is among them.
    kept = int((reached < TOP_P).sum()) + 1
    drawn = torch.rand((), generator=chance, dtype=torch.float64) * reached[min(kept, len(reached)) - 1]
    return int(tokens[min(int(torch.searchsorted(reached, drawn, right=True)), kept - 1)])
