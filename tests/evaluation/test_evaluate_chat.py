"""Chat models as classifiers: a server that reads colours is scored as a classifier that does."""

from __future__ import annotations

import base64
import io
import json
import math
import re
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


def scored(dataset: Path, out: Path, address: str, **options: Any) -> Evaluation:
    return evaluate(dataset, [f"chat:small@{address}"], out=out, device="cpu", **options)


def test_a_chat_model_that_reads_colours_is_scored_as_a_classifier_that_does(
    dataset: Path, models: dict[str, str], tmp_path: Path
) -> None:
    sharp = evaluate(dataset, [models["sharp"]], out=tmp_path / "sharp", device="cpu")
    with chat_server(seen) as server:
        result = scored(dataset, tmp_path / "out", server.address)
    assert len(server.requests) == IMAGES
    for group in ("base", "dusk", "swap"):
        found = result.results.rows.value("accuracy", model=result.models[0].name, group=group)
        assert found == sharp.results.rows.value(
            "accuracy", model=sharp.models[0].name, group=group
        )
    (model,) = result.models
    assert "0 of 108 answers are outside the list" in model.read
    assert "108 have no likelihoods" in model.read
    assert not result.results.rows.where("calibration_error")
    assert all(KEY not in path.read_text(errors="replace") for path in result.files.values())
