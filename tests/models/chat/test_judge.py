"""Judges: the answers and likelihoods of chat models in this process and on a server, compared with
plain calls."""

from __future__ import annotations

import base64
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from chat_server import Reply, chat_server, said
from counterfoil.models.chat.judge import Choice, load_judge
from tiny_captioners import CHAT

OPTIONS = ["red", "Blue", "(green)"]
QUESTION = "is it a photo of a bag in\nred blue green"


def picture(seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (20, 28, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


@pytest.fixture(scope="module", params=CHAT)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return CHAT[request.param](tmp_path_factory.mktemp("judge") / request.param)


def plain_likelihoods(folder: Path, image: Image.Image) -> np.ndarray:
    """Return the softmax of the first token's scores over red, blue and green, by transformers
    alone."""
    from transformers import AutoModelForImageTextToText, AutoProcessor

    processor: Any = AutoProcessor.from_pretrained(folder)
    model = AutoModelForImageTextToText.from_pretrained(folder)
    content = [{"type": "image", "image": image}, {"type": "text", "text": QUESTION}]
    inputs = processor.apply_chat_template(
        [{"role": "user", "content": content}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )
    ids = processor.tokenizer.convert_tokens_to_ids(["red", "blue", "green"])
    with torch.inference_mode():
        return torch.softmax(model(**inputs).logits[0, -1, ids].double(), dim=-1).numpy()


def test_likelihoods_are_those_of_a_plain_call(folder: Path) -> None:
    judge = load_judge(f"local-dir:{folder}")
    for seed in range(3):
        choice = judge.choose(picture(seed), QUESTION, OPTIONS)
        assert choice.likelihoods is not None
        expected = plain_likelihoods(folder, picture(seed))
        assert np.abs(choice.likelihoods - expected).max() < 1e-6


def likely(text: str, **logprobs: Any) -> Reply:
    """Return an answer with the log-probabilities of these first tokens."""
    status, headers, body = said(text)
    document = json.loads(body)
    top = [{"token": token, "logprob": number} for token, number in logprobs.items()]
    document["choices"][0]["logprobs"] = {"content": [{"top_logprobs": top}]}
    return status, headers, json.dumps(document).encode()


def chosen(reply: Reply) -> Choice:
    with chat_server(lambda _: reply) as server:
        return load_judge("small", base_url=server.address).choose(picture(), QUESTION, OPTIONS)


def test_a_server_gets_one_image_and_the_question_in_one_call() -> None:
    image = picture()
    with chat_server(lambda _: said("red")) as server:
        load_judge("small", base_url=server.address).choose(image, QUESTION, OPTIONS)
    (request,) = server.requests
    (message,) = request["messages"]
    picture_part, text_part = message["content"]
    assert text_part == {"type": "text", "text": QUESTION}
    head, _, encoded = picture_part["image_url"]["url"].partition(",")
    assert head == "data:image/png;base64"
    sent = Image.open(io.BytesIO(base64.b64decode(encoded)))
    assert np.array_equal(np.asarray(sent), np.asarray(image))
    assert (request["logprobs"], request["top_logprobs"], request["max_tokens"]) == (True, 20, 32)
    assert (request["temperature"], request["seed"]) == (0, 0)


def test_a_servers_log_probabilities_are_likelihoods_over_the_options() -> None:
    tokens = {"red": 0.5, " Red": 0.1, "green": 0.2, "▁green": 0.05, "other": 0.15}
    logs = {token: math.log(probability) for token, probability in tokens.items()}
    choice = chosen(likely("Red.", **logs))
    assert choice.answer == 0
    assert choice.likelihoods is not None
    assert choice.likelihoods == pytest.approx(np.array([0.6, 0, 0.25]) / 0.85, abs=1e-9)


@pytest.mark.parametrize(("text", "answer"), [
    ("blue", 1), (" BLUE.\n", 1), ("**Green**", 2), ("red", 0), ("", None), ("red or blue", None),
    ("It is red.", None), ("purple", None), ("red" * 1000, None), ("赤", None),
])  # fmt: skip
def test_an_answer_is_an_option_or_outside_the_list(text: str, answer: int | None) -> None:
    choice = chosen(said(text))
    assert choice.answer == answer and choice.likelihoods is None
    probabilities = choice.probabilities()
    if answer is None:
        assert probabilities is None
    else:
        assert probabilities is not None and probabilities.tolist() == np.eye(3)[answer].tolist()
