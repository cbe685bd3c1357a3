"""Chat models: what they go on from is what they would have read, and texts of others are words and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from counterfoil.models.captioners import CaptionExample, load_captioner
from counterfoil.models.captioners.of_chat import ChatCaptioner, _tried
from support.images import noise
from tiny_captioners import CHAT

TEXTS = [
    "a photo of a red bag in the snow",
    "",
    "a coat",
    "a photo of a striped sandal at night on grass with a person",
]


@pytest.fixture(scope="module", params=list(CHAT))
def captioner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ChatCaptioner:
    folder = CHAT[request.param](tmp_path_factory.mktemp("chat") / request.param)
    found = load_captioner(f"local-dir:{folder}")
    assert isinstance(found, ChatCaptioner)
    return found


def test_going_on_is_reading_whole(captioner: ChatCaptioner) -> None:
    assert captioner.goes_on
    whole = replace(captioner, goes_on=False)
    shown = [CaptionExample("a red bag", noise(4))]
    for examples in ((), shown):
        found, counts = captioner.log_likelihoods(noise(0), TEXTS, examples=examples)
        expected, tokens = whole.log_likelihoods(noise(0), TEXTS, examples=examples)
        np.testing.assert_allclose(found, expected, atol=1e-3)
        assert counts.tolist() == tokens.tolist()
    asked: dict[str, Any] = {"prefix": "a photo of a", "number": 3, "most_tokens": 5}
    assert captioner.captions(noise(1), **asked) == whole.captions(noise(1), **asked)


class Forgetful(ChatCaptioner):
    """Goes on as if nothing had been read before."""

    def _went_on(self, seen: Any, cache: Any, ids: torch.Tensor, done: int) -> torch.Tensor:
        scores = super()._went_on(seen, cache, ids, done)
        return scores.flip(-1) if self.goes_on else scores


class Refusing(ChatCaptioner):
    """Takes nothing behind what it has read."""

    def _went_on(self, seen: Any, cache: Any, ids: torch.Tensor, done: int) -> torch.Tensor:
        if self.goes_on:
            raise ValueError("no cache of this kind")
        return super()._went_on(seen, cache, ids, done)


@pytest.mark.parametrize("kind", [Forgetful, Refusing])
def test_a_model_that_does_not_go_on_is_read_whole(captioner: ChatCaptioner, kind: type[ChatCaptioner]) -> None:
    parts = {name: getattr(captioner, name) for name in captioner.__dataclass_fields__}
    found = _tried(kind(**parts))
    assert not found.goes_on
    expected, _ = captioner.log_likelihoods(noise(0), TEXTS)
    np.testing.assert_allclose(found.log_likelihoods(noise(0), TEXTS)[0], expected, atol=1e-3)


@pytest.mark.parametrize("name", ["<image>", "<|image_pad|>", "<end>", "<fake_token_around_image>"])
def test_names_of_tokens_in_a_text_are_words(captioner: ChatCaptioner, name: str) -> None:
    special = set(captioner.tokenizer.all_special_ids) - {captioner.tokenizer.unk_token_id}
    assert not special & set(captioner._tokens(f"a photo {name} of {name}"))
    texts: Sequence[CaptionExample] = (CaptionExample(f"{name} a bag {name}", noise(3)), CaptionExample(f"a{name}"))
    found = captioner.captions(noise(0), prefix=f"a {name}", number=2, most_tokens=4, examples=texts)
    assert all(caption.startswith(f"a {name}") for caption in found)
    assert np.isfinite(captioner.log_likelihoods(noise(0), [f"a {name} bag"], examples=texts)[0]).all()


def test_an_answer_begins_where_the_template_writes_it(captioner: ChatCaptioner) -> None:
    asked = captioner._asked(noise(0), [])
    begun = captioner.tokenizer.decode(asked["input_ids"][0])
    assert "".join(begun.split()).endswith("assistant:")
    assert captioner.lead == " "  # the template of these models writes "assistant : answer"
