"""Chat models as classifiers: scores of classes, orders of options, long lists, and models in this
process."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import tiny_captioners
from chat_server import chat_server, said
from counterfoil.errors import UserError
from counterfoil.models.chat.judge import Choice
from counterfoil.models.classifiers import describe_classifier, load_classifier
from counterfoil.models.classifiers.of_chat import ChatClassifier, class_scores
from counterfoil.models.score_scale import SOME, confidences


def classes(*names: str) -> Any:
    return [SimpleNamespace(id=f"{index:02}", name=name) for index, name in enumerate(names)]


GARMENTS = classes("sandal", "bag", "coat")


def noise(seed: int) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (20, 28, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def loaded(address: str, known: Any = GARMENTS) -> ChatClassifier:
    classifier = load_classifier(f"chat:small@{address}", classes=known)
    assert isinstance(classifier, ChatClassifier)
    return classifier


@pytest.mark.parametrize(("answer", "masses", "expected"), [
    # likelihoods over the list, in the order of the classes
    (0, [0.4, 0.1, 0.3], [0.125, 0.375, 0.5, 0]),
    # outside the list: what the options leave
    (None, [0.1, 0.2, 0.1], [0.2, 0.1, 0.1, 0.6]),
    (None, [0, 0, 0], [0, 0, 0, 1]),
])  # fmt: skip
def test_scores_are_likelihoods(
    answer: int | None, masses: list[float], expected: list[float]
) -> None:
    scores = class_scores(Choice(3, answer, np.array(masses)), [2, 0, 1])
    assert confidences(scores[None], SOME)[0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("answer", "masses", "output"), [
    (0, None, 2),
    (None, None, 3),
    (1, [0.4, 0.1, 0.3], 0),  # another option is likelier
    (1, [0.2, 0.2, 0.2], 0),  # no option is likelier
    (1, [0, 0, 0], 0),
    (None, [0.9, 0, 0], 3),
])  # fmt: skip
def test_an_answer_without_likelihoods_that_favour_it_has_no_confidence(
    answer: int | None, masses: list[float] | None, output: int
) -> None:
    given = None if masses is None else np.array(masses)
    scores = class_scores(Choice(3, answer, given), [2, 0, 1])
    assert int(scores.argmax()) == output
    assert np.isnan(confidences(scores[None], SOME)).all()


def test_every_class_is_at_every_place_equally_often() -> None:
    with chat_server(lambda _: said("A")) as server:
        classifier = loaded(server.address)
    orders = Counter(tuple(classifier.ordered(noise(seed))) for seed in range(600))
    assert len(orders) == 6
    # 100 each: the binomial's standard deviation is 9.1
    assert all(abs(count - 100) < 5 * 9.1 for count in orders.values())
    assert classifier.ordered(noise(0)) == classifier.ordered(noise(0).copy())


def test_more_classes_than_letters_are_answered_by_name_and_without_likelihoods() -> None:
    names = [f"breed {number}" for number in range(27)]
    with chat_server(lambda _: said("Breed 3.")) as server:
        classifier = loaded(server.address, classes(*names))
        scores = classifier.logits([noise(0)], "cpu").numpy()
        (request,) = server.requests
    assert "logprobs" not in request
    text = request["messages"][0]["content"][1]["text"]
    assert sorted(text.split("\n")[1:-1]) == sorted(names)
    assert int(scores[0].argmax()) == 3


@pytest.mark.parametrize(("text", "output"), [
    ("B) {B}", "B"), ("{C}", "C"), ("b", "B"), ("B) {C}", None), ("B or C", None), ("D", None),
])  # fmt: skip
def test_a_letter_a_name_or_both_are_an_answer(text: str, output: str | None) -> None:
    def reply(body: dict[str, Any]) -> Any:
        lines = body["messages"][0]["content"][1]["text"].split("\n")[1:-1]
        return said(text.format(**{line[0]: line[3:] for line in lines}))

    with chat_server(reply) as server:
        classifier = loaded(server.address)
        image = noise(1)
        scores = classifier.logits([image], "cpu").numpy()[0]
    expected = 3 if output is None else classifier.ordered(image)["ABC".index(output)]
    assert int(scores.argmax()) == expected


def test_a_description_contacts_nobody() -> None:
    with chat_server(lambda _: said("A")) as server:
        facts = describe_classifier(f"chat:small@{server.address}", GARMENTS)
        loaded(server.address)
        assert not server.requests
    assert facts.label_names == ("sandal", "bag", "coat", "(another label)")
    assert facts.of_classes and facts.most_ranked == 1


def test_names_that_answers_cannot_tell_apart_are_refused() -> None:
    names = [*(f"breed {number}" for number in range(27)), "breed 3."]
    with pytest.raises(UserError, match="cannot tell these classes apart"):
        describe_classifier("chat:small@http://localhost:1/v1", classes(*names))


def test_too_many_classes_for_a_question_are_refused() -> None:
    names = [f"breed {number}" for number in range(1001)]
    with pytest.raises(UserError, match="lists at most 1,000 classes"):
        describe_classifier("chat:small@http://localhost:1/v1", classes(*names))


def test_a_model_in_this_process_has_the_likelihoods_of_a_plain_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoModelForImageTextToText, AutoProcessor

    monkeypatch.setattr(tiny_captioners, "WORDS", [*tiny_captioners.WORDS, "b", "c", "B", "C"])
    folder = tiny_captioners.llava(tmp_path / "llava")
    classifier = load_classifier(f"chat:{folder}", classes=GARMENTS)
    assert isinstance(classifier, ChatClassifier) and not classifier.served
    image = noise(0)
    order = classifier.ordered(image)
    question, letters, names = classifier.question(order)
    choice = classifier.judge.choose(image, question, letters, names)
    processor: Any = AutoProcessor.from_pretrained(folder)
    model = AutoModelForImageTextToText.from_pretrained(folder)
    # The template of the tiny model has words that a question may not hold.
    added = processor.tokenizer.get_added_vocab()
    for word in added:
        question = question.replace(word, " ")
    content = [{"type": "image", "image": image}, {"type": "text", "text": question}]
    inputs = processor.apply_chat_template(
        [{"role": "user", "content": content}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )
    with torch.inference_mode():
        scores = torch.softmax(model(**inputs).logits[0, -1].double(), dim=-1)
    ids = [
        processor.tokenizer.convert_tokens_to_ids(words) for words in ("a", ["b", "B"], ["c", "C"])
    ]
    expected = np.array([float(scores[words].sum()) for words in ids])
    assert choice.masses is not None
    assert np.abs(choice.masses - expected).max() < 1e-6
    # A random model's text is outside the list.
    row = classifier.logits([image], "cpu").numpy()[0]
    assert choice.answer is None
    outside = 1 - expected.sum()
    if outside > expected.max():
        assert math.exp(row[3]) == pytest.approx(outside, abs=1e-6)
    assert int(row.argmax()) == 3
