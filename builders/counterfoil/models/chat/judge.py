"""Judge images with chat models: ask one question about one image, and read which of the given
options is the answer.

judge = load_judge("transformers:HuggingFaceTB/SmolVLM-256M-Instruct")  # or local-dir:PATH
judge = load_judge("qwen2.5-vl", base_url="http://localhost:8000/v1")
judge.choose(image, "Is there a dog? Answer with one word, yes or no.", ["yes", "no"])

The answer is the model's text at temperature 0. It is an option, or it is outside the list: white
space, case and punctuation do not count, other words do. The likelihood of an option is the
probability that the first token of the answer reads as the option, over that of all options, as
VQAScore has it for "Yes" (Lin et al. 2024, section 3). Answer and likelihoods may contradict each
other (Wang et al. 2024, "My Answer is C").
"""

from __future__ import annotations

import functools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.arrays import Floats
from counterfoil.documents import sha256_json
from counterfoil.models.captioners import load_captioner
from counterfoil.models.captioners.of_chat import ChatCaptioner
from counterfoil.models.chat import of_hub
from counterfoil.models.chat.of_hub import ServedChat
from counterfoil.models.messages import refusal
from counterfoil.models.names import LOCAL
from counterfoil.recipe.names import TRANSFORMERS, address_problem, is_local

if TYPE_CHECKING:
    from PIL.Image import Image

# An option is one or a few tokens, perhaps after a mark. Longer answers are outside the list.
MOST_TOKENS = 32
_MOST_CHARACTERS = 1000
# The most log-probabilities that OpenAI's protocol gives for a token.
_MOST_LIKELY = 20
# Rounded probabilities may add up to a little more than 1.
_SLACK = 1e-3
_LEAST_LOGARITHM = -1000.0  # its exponential is 0
# A part of the key. Raise the number when a change below changes answers.
_FORMAT = 1


@dataclass(frozen=True)
class Choice:
    """A model's answer to a question with k options."""

    options: int
    """Their number."""
    answer: int | None
    """The index of the option that its text says; None: outside the list."""
    masses: Floats | None
    """The probability that the answer begins as each option (k,), of all answers; None if it was
    not asked for or not given."""

    @property
    def likelihoods(self) -> Floats | None:
        """The masses over their sum (k,)."""
        if self.masses is None or not self.masses.sum() > 0:
            return None
        return self.masses / self.masses.sum()

    def probabilities(self) -> Floats | None:
        """Return the likelihoods, or else 1 for the answered option (k,). None for an answer that
        is outside the list and has no likelihoods."""
        likelihoods = self.likelihoods
        if likelihoods is not None or self.answer is None:
            return likelihoods
        return np.eye(self.options)[self.answer]


@dataclass(frozen=True)
class Judge:
    """A chat model that takes images; each kind is a subclass."""

    name: str
    """The name as the user gave it."""

    @property
    def key(self) -> str:
        """A hash of all that decides a choice, except the arguments of a call. What a server runs
        under a name is not known, so for a server it is a hash of name and address."""
        raise NotImplementedError

    def choose(
        self,
        image: Image,
        question: str,
        options: Sequence[str],
        meanings: Sequence[str] = (),
        *,
        likelihoods: bool = True,
    ) -> Choice:
        """Ask a question about an image, in one call.

        options: what an answer may be. The question must state them; they are compared without case
        and punctuation. meanings: what each option stands for, which an answer may say instead or
        in addition ("B", "sandal" or "B) sandal"). likelihoods: whether to ask for them; every
        option must then be one token. Raise UserError if the model cannot be used under its name or
        for these options, RunFailure if it gives no answer.
        """
        text, masses = self._reply(image, question, options if likelihoods else ())
        return Choice(len(options), _answered(text, options, meanings), masses)

    def _reply(
        self, image: Image, question: str, options: Sequence[str]
    ) -> tuple[str, Floats | None]:
        """Return the text of an answer, and the masses of these options, None without options."""
        raise NotImplementedError


def load_judge(name: str, *, base_url: str | None = None, device: str = "cpu") -> Judge:
    """Load a chat model that takes images: into this process, or, with an address, on a server,
    which is not contacted yet.

    Nothing is sent to an address that is not given. Raise UserError for a name that is no such
    model, RunFailure if it is unavailable.
    """
    of_hub.refuse_misnamed(name)
    in_process = name.startswith((TRANSFORMERS, LOCAL)) or is_local(name)
    if base_url is not None:
        who = f"chat model '{name}'"
        if in_process:
            raise refusal("chat-server.in-process", who, base_url)
        problem = address_problem(base_url)
        if problem is not None:
            raise refusal("chat-server.address", who, problem)
        return ServedJudge(name, of_hub.load(name, base_url, device))
    if not in_process:
        who = f"chat model '{name[:80]}'"
        raise refusal("chat-server.no-address", who)
    captioner = load_captioner(name.removeprefix(TRANSFORMERS), device)
    if not isinstance(captioner, ChatCaptioner):
        where = f"model {name!r}"
        raise refusal("unfit-model.captioner", where, captioner.model_type)
    return ProcessJudge(name, captioner)


@dataclass(frozen=True)
class ServedJudge(Judge):
    """A model on a server with OpenAI's protocol. Nothing that it answers is trusted."""

    chat: ServedChat

    @property
    def key(self) -> str:
        return sha256_json([_FORMAT, self.name, self.chat.base_url])

    def _reply(
        self, image: Image, question: str, options: Sequence[str]
    ) -> tuple[str, Floats | None]:
        top = _MOST_LIKELY if options else 0
        reply = self.chat.reply(image, question, most_tokens=MOST_TOKENS, top=top)
        tokens = _first_tokens(reply.logprobs) if options else None
        return reply.text, _option_masses(tokens, options)


@dataclass(frozen=True)
class ProcessJudge(Judge):
    """A model of transformers in this process."""

    captioner: ChatCaptioner

    @property
    def key(self) -> str:
        return sha256_json([_FORMAT, self.captioner.key])

    def _reply(
        self, image: Image, question: str, options: Sequence[str]
    ) -> tuple[str, Floats | None]:
        import torch

        scores, text = self.captioner.reply(image, question, MOST_TOKENS)
        if not options:
            return text, None
        probabilities = torch.softmax(scores.double(), dim=-1)
        masses = [float(probabilities[ids].sum()) for ids in self._tokens_of(options)]
        return text, np.array(masses)

    def _tokens_of(self, options: Sequence[str]) -> Iterator[list[int]]:
        """Yield the tokens that read as each option. Raise UserError for an option without one."""
        for option in options:
            ids = self._tokens_by_words.get(plain_words(option))
            if ids is None:
                where = f"model {self.name!r}"
                raise refusal("unfit-model.token", where, option)
            yield ids

    @functools.cached_property  # decoding a hundred thousand tokens takes a second
    def _tokens_by_words(self) -> Mapping[str, list[int]]:
        captioner = self.captioner
        rows = captioner.module.get_input_embeddings().num_embeddings
        ids = [[token] for token in range(min(rows, len(captioner.tokenizer)))]
        never = frozenset(captioner.never)
        by_words: dict[str, list[int]] = {}
        for token, text in enumerate(captioner.tokenizer.batch_decode(ids)):
            if token not in never:
                by_words.setdefault(plain_words(text), []).append(token)
        return by_words


def _first_tokens(logprobs: Any) -> dict[str, float] | None:
    """Return the probabilities of the likeliest first tokens, from a server's `logprobs`. None if
    it gives none, or what cannot be probabilities."""
    try:
        entries = logprobs["content"][0]["top_logprobs"]
        pairs = [(entry["token"], entry["logprob"]) for entry in entries]
    except (LookupError, TypeError):
        return None
    if not 0 < len(pairs) <= _MOST_LIKELY:
        return None
    probabilities: dict[str, float] = {}
    for token, logprob in pairs:
        # JSON has NaN, whole numbers of any size, and true, which is a number to Python.
        if not isinstance(token, str) or type(logprob) not in (int, float) or not logprob <= 0:
            return None
        probability = math.exp(max(logprob, _LEAST_LOGARITHM))
        probabilities[token] = probabilities.get(token, 0.0) + probability
    return probabilities if sum(probabilities.values()) <= 1 + _SLACK else None


def _option_masses(tokens: Mapping[str, float] | None, options: Sequence[str]) -> Floats | None:
    """Return the probability of the tokens that read as each option (k,), or None without
    tokens."""
    if tokens is None:
        return None
    masses = np.zeros(len(options))
    index_of = {plain_words(option): index for index, option in enumerate(options)}
    for token, probability in tokens.items():
        # Servers may write a space before a word as their tokenizers do.
        index = index_of.get(plain_words(token.lstrip("▁Ġ")))
        if index is not None:
            masses[index] += probability
    return masses


def _answered(text: str, options: Sequence[str], meanings: Sequence[str]) -> int | None:
    if len(text) > _MOST_CHARACTERS:
        return None
    words = plain_words(text)
    by_both = [f"{option} {meaning}" for option, meaning in zip(options, meanings, strict=False)]
    for texts in (options, meanings, by_both):
        index = _only(texts, words)
        if index is not None:
            return index
    return None


def _only(texts: Iterable[str], words: str) -> int | None:
    """Return the index of the only text of these words."""
    matches = [index for index, text in enumerate(texts) if plain_words(text) == words]
    return matches[0] if len(matches) == 1 else None


def repeated_words(texts: Sequence[str]) -> list[str]:
    """Return the texts that an answer cannot tell apart, because their words are the same."""
    times = Counter(plain_words(text) for text in texts)
    return [text for text in texts if times[plain_words(text)] > 1]


def plain_words(text: str) -> str:
    """Return a text's words in one case, with one space between them, without punctuation."""
    return re.sub(r"[\W_]+", " ", unicodedata.normalize("NFC", text.casefold())).strip()
