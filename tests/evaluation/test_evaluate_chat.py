"""Chat models as classifiers: a server that reads colours is scored as a classifier that does."""

from __future__ import annotations

import base64
import io
import json
import math
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from chat_server import KEY, Reply, chat_server, refused, said
from colour_world import NAMES
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.results import Evaluation
from support.measured import measured

IMAGES = 108


def colour_of(body: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """Return the colour of the image in a question, and letter → name of its options."""
    picture, text = body["messages"][0]["content"]
    encoded = picture["image_url"]["url"].partition(",")[2]
    image = Image.open(io.BytesIO(base64.b64decode(encoded)))
    mean = np.asarray(image.convert("RGB")).mean(axis=(0, 1))
    options = dict(re.findall(r"^([A-Z])\) (.+)$", text["text"], re.MULTILINE))
    return NAMES[int(mean.argmax())], options


def seen(body: dict[str, Any]) -> Reply:
    """Answer with the letter of the image's colour."""
    colour, options = colour_of(body)
    return said(next(letter for letter, name in options.items() if name == colour))


def sure(share: float) -> Callable[[dict[str, Any]], Reply]:
    """Return a server that answers `seen`, with this likelihood; others share the rest."""

    def reply(body: dict[str, Any]) -> Reply:
        colour, options = colour_of(body)
        top = []
        for letter, name in options.items():
            likely = share if name == colour else (1 - share) / 2
            top.append({"token": letter, "logprob": math.log(likely)})
        status, headers, content = seen(body)
        document = json.loads(content)
        document["choices"][0]["logprobs"] = {"content": [{"top_logprobs": top}]}
        return status, headers, json.dumps(document).encode()

    return reply


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def scored(dataset: Path, address: str, **options: Any) -> Evaluation:
    return measured(dataset, [f"chat:small@{address}"], **options)


def test_a_chat_model_that_reads_colours_is_scored_as_a_classifier_that_does(
    dataset: Path, models: dict[str, str], tmp_path: Path
) -> None:
    sharp = measured(dataset, [models["sharp"]])
    with chat_server(seen) as server:
        name = f"chat:small@{server.address}"
        result = evaluate(dataset, [name], out=tmp_path, device="cpu", reference=False)
    assert len(server.requests) == IMAGES
    for measure in ("top1", "drop"):
        values = [row.value for row in result.results.rows.where(measure)]
        assert values == [row.value for row in sharp.results.rows.where(measure)]
        assert len(values) > 1
    (model,) = result.models
    assert "0 of 108 answers are outside the list" in model.read
    assert "108 have no likelihoods" in model.read
    assert not result.results.rows.where("calibration_error")
    assert all(KEY not in path.read_text(errors="replace") for path in result.files.values())


def test_likelihoods_are_confidences(dataset: Path) -> None:
    with chat_server(sure(0.7)) as server:
        result = scored(dataset, server.address)
    key = {"model": result.models[0].name, "group": "base"}
    confidences = [row.value for row in result.results.rows.where("confidence", **key)]
    assert confidences == [pytest.approx(0.7)]
    error = result.results.rows.value("calibration_error", **key)
    assert error == pytest.approx(0.3, abs=1e-5)  # all are right
    assert "likelihoods" not in result.models[0].read


def test_an_answer_outside_the_list_is_wrong_and_counted(dataset: Path) -> None:
    def reply(body: dict[str, Any]) -> Reply:
        colour, _ = colour_of(body)
        return said("It might be purple.") if colour == "red" else seen(body)

    with chat_server(reply) as server:
        result = scored(dataset, server.address)
    top1 = result.results.rows.value("top1", model=result.models[0].name, group="base")
    assert top1 == pytest.approx(2 / 3)
    # A third of every group is red, and of `swap` too.
    assert "36 of 108 answers are outside the list and count as wrong" in result.models[0].read


def test_what_is_answered_is_not_asked_again(dataset: Path) -> None:
    broken = True

    def reply(body: dict[str, Any]) -> Reply:
        return refused(500) if broken and len(server.requests) > 40 else seen(body)

    with chat_server(reply) as server:
        others = set(threading.enumerate())
        with pytest.raises(RunFailure, match="answers 500"):
            scored(dataset, server.address, batch_size=12)
        # Questions that were on their way arrive, and are counted before the next run.
        while set(threading.enumerate()) - others:
            time.sleep(0.01)
        before = len(server.requests)
        assert before < 60  # no questions after a failure
        broken = False
        first = scored(dataset, server.address, batch_size=12)
        assert len(server.requests) == before + IMAGES - 36  # three batches were kept
        again = scored(dataset, server.address, batch_size=7)
        assert len(server.requests) == before + IMAGES - 36
    assert first.results.rows.where("top1") == again.results.rows.where("top1")


def test_a_run_that_needs_more_calls_than_are_allowed_makes_none(dataset: Path) -> None:
    with chat_server(seen) as server:
        with pytest.raises(UserError, match=r"needs 108 calls of its server.* 107 are allowed"):
            scored(dataset, server.address, most_calls=107)
        assert not server.requests
        names = [f"chat:{name}@{server.address}" for name in ("small", "large")]
        with pytest.raises(UserError, match="after the 108 of others"):
            measured(dataset, names, most_calls=200)
        assert {body["model"] for body in server.requests} == {"small"}


def test_the_question_is_the_protocols_and_its_order_is_of_the_image(dataset: Path) -> None:
    with chat_server(seen) as server:
        scored(dataset, server.address)
        texts = [body["messages"][0]["content"][1]["text"] for body in server.requests]
    orders = set()
    for text in texts:
        first, *lines, last = text.split("\n")
        assert first == "What is in this image? Choose one of these options:"
        assert last == "Answer with the letter of one option, and nothing else."
        assert [line[:3] for line in lines] == ["A) ", "B) ", "C) "]
        names = tuple(line[3:] for line in lines)
        assert sorted(names) == sorted(NAMES)
        orders.add(names)
    assert len(orders) > 1


@pytest.mark.parametrize(("name", "words"), [
    ("chat:small", "has no address"),
    ("chat:small@http://user:key@127.0.0.1:1/v1", "with a user name, a key or a query"),
    ("chat:lab:chat", "has no address"),
    ("chat:./nowhere", "there is no folder"),
    ("elsewhere:chat:small@http://evil.test/v1", "its address http://evil.test/v1 comes from"),
])  # fmt: skip
def test_names_that_cannot_be_are_refused(dataset: Path, name: str, words: str) -> None:
    with pytest.raises(CounterfoilError, match=words) as caught:
        measured(dataset, [name])
    assert "user:key" not in str(caught.value)
