"""Classify with chat models that take images: `chat:MODEL@ADDRESS` on a server with OpenAI's
protocol, `chat:transformers:NAME` and `chat:local-dir:PATH` in this process.

All models follow one protocol, because published accuracies of the same models differ by protocol
(Kisel et al. 2026, 2603.06578). One call has one image. All classes of the dataset are options, so
no choice of wrong options makes the question easy. Their order is drawn from the image's pixels,
because models prefer some places and letters (Zheng et al. 2024, "Large Language Models Are Not
Robust Multiple Choice Selectors"). Up to 26 classes have letters, which are one token each, so that
the answer's first token gives the likelihood of every class. More classes are answered by name,
without likelihoods. An answer outside the list is no class of the dataset, and wrong.

Confidences are the likelihoods. An answer has none if the model gives none, or if they favour
another option than the answer.
"""

from __future__ import annotations

import hashlib
import string
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from counterfoil.arrays import Bools, Floats
from counterfoil.documents import sha256_json
from counterfoil.models.captioners import describe_captioner
from counterfoil.models.chat.judge import (
    Choice,
    Judge,
    ProcessJudge,
    ServedJudge,
    load_judge,
    repeated_words,
)
from counterfoil.models.classifiers.classifier import (
    Classifier,
    ClassifierFacts,
    unique_output_names,
)
from counterfoil.models.classifiers.of_predictions import ANOTHER
from counterfoil.models.loading_errors import while_loading
from counterfoil.models.messages import refusal
from counterfoil.models.score_scale import SOME
from counterfoil.recipe.names import (
    CHAT,
    TRANSFORMERS,
    address_problem,
    chat_parts,
    is_local,
)
from counterfoil.report.words import format_count

if TYPE_CHECKING:
    import torch

    from counterfoil.recipe.prompts import RecipeClass

# Raise this number with every change of the protocol. It is part of every answer's key.
PROTOCOL = 1
BY_LETTER = """What is in this image? Choose one of these options:
{options}
Answer with the letter of one option, and nothing else."""
BY_NAME = """What is in this image? Choose one of these options:
{options}
Answer with the name of one option as it is written above, and nothing else."""
_LETTERS = string.ascii_uppercase
# A list of so many names has about 5,000 tokens.
MOST_CLASSES = 1000
# Calls of a server at the same time.
_AT_ONCE = 8
_LEAST = 1e-37  # 0 has no logarithm


@dataclass(frozen=True, kw_only=True)
class ChatClassifier(Classifier):
    """A chat model and the names of the classes. Its last output is an answer outside the list."""

    judge: Judge
    names: tuple[str, ...]

    def transform(self) -> Callable[[Any], Any]:
        return lambda image: image

    def logits(self, batch: Any, device: str) -> torch.Tensor:
        """Return log-probabilities (b, num_classes), or rows that only rank the answer first.
        batch: RGB images."""
        import torch

        if isinstance(self.judge, ServedJudge):
            rows = self._several_at_once(batch)
        else:
            rows = [self._scores(image) for image in batch]
        return torch.from_numpy(np.stack(rows))

    def placed(self, device: str) -> Self:
        if not isinstance(self.judge, ProcessJudge):
            return self
        captioner = self.judge.captioner
        module = while_loading(self.name, lambda: captioner.module.to(device))
        captioner = replace(captioner, module=module, device=device)
        judge = replace(self.judge, captioner=captioner)
        return replace(self, module=module, judge=judge)

    def released(self) -> Self:
        if not isinstance(self.judge, ProcessJudge):
            return self
        captioner = replace(self.judge.captioner, module=None)
        judge = replace(self.judge, captioner=captioner)
        return replace(self, module=None, judge=judge)

    def told(self, outside: Bools, unsure: Bools) -> str:
        """Say how many answers (n,) are outside the list, and how many have no confidence."""
        by = "letter" if len(self.names) <= len(_LETTERS) else "name"
        count = format_count(len(outside), "answer")
        notes = [
            f"one question an image, answered by {by} (protocol {PROTOCOL})",
            f"{int(outside.sum()):,} of {count} are outside the list and count as wrong",
        ]
        if unsure.any():
            notes.append(
                f"{int(unsure.sum()):,} have no likelihoods that favour them: groups with such"
                " answers have no calibration"
            )
        return "; ".join(notes)

    def ordered(self, image: Any) -> list[int]:
        """Return the classes in the order in which the question about an image lists them."""
        pixels = hashlib.sha256(f"{image.size}".encode())
        pixels.update(image.tobytes())

        def drawn(index: int) -> bytes:
            digest = pixels.copy()
            digest.update(f"\0{index}".encode())
            return digest.digest()

        return sorted(range(len(self.names)), key=drawn)

    def question(self, order: Sequence[int]) -> tuple[str, list[str], list[str]]:
        """Return the question, what may be answered, and what each answer stands for."""
        names = [self.names[index] for index in order]
        if len(names) > len(_LETTERS):
            return BY_NAME.format(options="\n".join(names)), names, []
        letters: list[str] = [*_LETTERS[: len(names)]]
        lettered = zip(letters, names, strict=True)
        lines = [f"{letter}) {name}" for letter, name in lettered]
        return BY_LETTER.format(options="\n".join(lines)), letters, names

    def _scores(self, image: Any) -> Floats:
        order = self.ordered(image)
        question, options, meanings = self.question(order)
        by_letter = len(meanings) > 0
        choice = self.judge.choose(
            image,
            question,
            options,
            meanings,
            likelihoods=by_letter,
        )
        return class_scores(choice, order)

    def _several_at_once(self, images: Sequence[Any]) -> list[Floats]:
        """Ask a server about several images at once. After a failure, ask no more."""
        waiting = deque(enumerate(images))
        answers: SimpleQueue[tuple[int, Floats | Exception]] = SimpleQueue()

        def ask() -> None:
            while True:
                try:
                    index, image = waiting.popleft()
                except IndexError:
                    return
                try:
                    answer = self._scores(image)
                except Exception as error:  # raised again below
                    answer = error
                answers.put((index, answer))

        # Threads of an executor would be waited for after Ctrl-C.
        for _ in range(min(_AT_ONCE, len(images))):
            Thread(target=ask, daemon=True).start()
        rows: dict[int, Floats] = {}
        try:
            while len(rows) < len(images):
                index, answer = answers.get()
                if isinstance(answer, Exception):
                    raise answer
                rows[index] = answer
        finally:
            waiting.clear()
        return [rows[index] for index in range(len(images))]


def class_scores(choice: Choice, order: Sequence[int]) -> Floats:
    """Return a row of scores: of each class, then of an answer outside the list (k + 1,).

    Log-probabilities if the likelihoods favour the answer; else 1 for the answer and 0 for others,
    whose exponentials do not add up to 1 (`score_scale.SOME`). Likelihoods of an answer in the list
    are over the list.
    """
    outside = len(order)
    answered = outside
    given = choice.masses
    if choice.answer is not None:
        answered = order[choice.answer]
        given = choice.likelihoods
    scores = np.zeros(outside + 1)
    scores[answered] = 1.0
    if choice.masses is None or given is None:
        return scores
    shares = np.zeros(outside + 1)
    shares[list(order)] = given
    shares[outside] = max(0.0, 1.0 - float(given.sum()))
    others = np.delete(shares, answered)
    if not shares[answered] > others.max():
        return scores
    shares /= shares.sum()
    return np.log(np.maximum(shares, _LEAST))


def describe(name: str, classes: Sequence[RecipeClass]) -> ClassifierFacts:
    """Return the model's outputs, the classes and one more. No server is contacted."""
    where = f"model {name!r}"
    model, address = chat_parts(name)
    if not classes:
        raise refusal("unmatched-classes.none", where)
    if len(classes) > MOST_CLASSES:
        raise refusal(
            "unmatched-classes.many",
            where,
            len(classes),
            MOST_CLASSES,
        )
    outputs = _names(classes)
    alike = repeated_words(outputs) if len(outputs) > len(_LETTERS) else []
    if alike:
        raise refusal("unmatched-classes.alike", where, alike)
    architecture = model
    if address is not None:
        problem = address_problem(address)
        if problem is not None:
            raise refusal("chat-server.address", f"model '{CHAT}{model}'", problem)
    elif model.startswith(TRANSFORMERS) or is_local(model):
        architecture = describe_captioner(model.removeprefix(TRANSFORMERS)).architecture
    else:
        raise refusal("chat-server.classifier", where)
    count = len(outputs) + 1
    names = (*outputs, ANOTHER)
    return ClassifierFacts(
        name,
        model,
        architecture,
        count,
        names,
        most_ranked=1,
        of_classes=True,
    )


def load(name: str, device: str, classes: Sequence[RecipeClass]) -> ChatClassifier:
    """Load the model. A server is not contacted before the first question."""
    facts = describe(name, classes)
    model, address = chat_parts(name)
    judge = load_judge(model, base_url=address, device=device)
    module = None
    parameters = None
    if isinstance(judge, ProcessJudge):
        module = judge.captioner.module
        parameters = sum(parameter.numel() for parameter in module.parameters())
    names = _names(classes)
    return ChatClassifier(
        **facts.fields(),
        sha256=sha256_json([PROTOCOL, judge.key, names]),
        input_key="chat",
        param_count=parameters,
        served=address is not None,
        module=module,
        score_scale=SOME,
        judge=judge,
        names=names,
    )


def _names(classes: Sequence[RecipeClass]) -> tuple[str, ...]:
    """Return the names of the classes as the question lists them, each on one line."""
    return tuple(" ".join(name.split()) for name in unique_output_names(classes))
