"""Captions and likelihoods of every kind are those of transformers' own generate, and depend on the image alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor, LogitsProcessorList

from counterfoil.errors import UserError
from counterfoil.models.captioners import Captioner, CaptionExample, describe_captioner, load_captioner
from counterfoil.models.captioners.of_chat import QUESTION
from counterfoil.models.captioners.of_decoders import BlipCaptioner, GitCaptioner, VisionEncoderDecoderCaptioner
from support.images import noise
from tiny_captioners import CHAT, EVERY, PLAIN

CAPTIONS = (
    "a photo of a red sandal in the snow",
    "",
    "bag",
    "a photo of a bag at night with a person and a coat on grass",
)


@pytest.fixture(scope="module", params=list(EVERY))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return EVERY[request.param](tmp_path_factory.mktemp("captioner") / request.param)


@pytest.fixture(scope="module")
def captioner(folder: Path) -> Captioner:
    return load_captioner(f"local-dir:{folder}")


@pytest.fixture(scope="module")
def generate(folder: Path, captioner: Captioner) -> Any:
    """transformers' own generate, of its own loading, for `noise(0)`: greedy, with the settings given."""
    model: Any = AutoModelForImageTextToText.from_pretrained(folder).eval()
    inputs: Any
    if folder.name in PLAIN:
        assert isinstance(captioner, VisionEncoderDecoderCaptioner | GitCaptioner | BlipCaptioner)
        inputs = {"pixel_values": captioner.preparation.pixels(noise(0))}
    else:
        content = [{"type": "image", "image": noise(0)}, {"type": "text", "text": QUESTION}]
        inputs = AutoProcessor.from_pretrained(folder).apply_chat_template(
            [{"role": "user", "content": content}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )

    # BLIP's own generate names them itself.
    named = {} if folder.name == "blip" else {"eos_token_id": captioner.ends[0], "pad_token_id": 0}

    def generated(**settings: Any) -> Any:
        return model.generate(**inputs, **named, do_sample=False, num_beams=1, return_dict_in_generate=True, **settings)

    return generated


class Forcing:
    """Leaves one token to choose at each step: those of a caption, one after another."""

    def __init__(self, tokens: list[int]) -> None:
        self.left = list(tokens)

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        kept = torch.full_like(scores, -torch.inf)
        token = self.left.pop(0)
        kept[:, token] = scores[:, token]
        return kept


@pytest.mark.parametrize("caption", CAPTIONS)
def test_likelihoods_are_the_transition_scores_of_generate(captioner: Captioner, generate: Any, caption: str) -> None:
    tokens = [*captioner._tokens(caption), captioner.ends[0]]
    forced = LogitsProcessorList([Forcing(tokens)])
    out = generate(logits_processor=forced, max_new_tokens=len(tokens), output_logits=True)
    told = [torch.log_softmax(scores[0].float(), -1)[token] for scores, token in zip(out.logits, tokens, strict=True)]
    sums, counts = captioner.log_likelihoods(noise(0), [caption])
    assert counts.tolist() == [len(tokens)]
    assert sums[0] == pytest.approx(float(sum(told)), abs=1e-3)


def test_the_first_caption_is_the_greedy_one_of_generate(captioner: Captioner, generate: Any) -> None:
    out = generate(max_new_tokens=8, suppress_tokens=list(captioner.never), output_scores=True)
    written = captioner.tokenizer.decode(out.sequences[0, -len(out.scores) :], skip_special_tokens=True)
    found = captioner.captions(noise(0), number=3, most_tokens=8)
    assert len(found) == 3
    assert found[0] == written.strip()
    assert captioner.captions(noise(0), most_tokens=8) == found[:1]


def test_an_image_answers_the_same_whatever_came_before(captioner: Captioner) -> None:
    asked: dict[str, Any] = {"prefix": "a photo of a", "number": 3, "seed": 5, "most_tokens": 6}
    first = [captioner.captions(noise(seed), **asked) for seed in (0, 1)]
    again = [captioner.captions(noise(seed), **asked) for seed in (1, 0)]
    assert first == again[::-1]
    assert first[0] != first[1]
    sums, _ = captioner.log_likelihoods(noise(0), CAPTIONS)
    for other in ([*CAPTIONS[::-1]], [*CAPTIONS, *["a red bag"] * 9], list(CAPTIONS[2:])):
        found = dict(zip(other, captioner.log_likelihoods(noise(0), other)[0], strict=True))
        assert all(found[caption] == told for caption, told in zip(CAPTIONS, sums, strict=True) if caption in found)


def test_nobody_elses_chance_is_drawn_from(captioner: Captioner) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    drawn = captioner.captions(noise(0), number=4, most_tokens=6, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(4)
    assert captioner.captions(noise(0), number=4, most_tokens=6, seed=1) == drawn
    others = [captioner.captions(noise(0), number=4, most_tokens=6, seed=seed) for seed in range(2, 6)]
    assert all(other[0] == drawn[0] for other in others)
    assert any(other[1:] != drawn[1:] for other in others)


@pytest.mark.parametrize("prefix", ["a photo of a", "  a photo of a sandal \n"])
def test_captions_are_completions_of_the_prefix(captioner: Captioner, prefix: str) -> None:
    found = captioner.captions(noise(2), prefix=prefix, number=4, most_tokens=5)
    assert all(caption.startswith(prefix.strip()) for caption in found)
    assert len(set(found)) > 1 or found[0] == prefix.strip()
    assert all(len(captioner._tokens(caption)) <= len(captioner._tokens(prefix.strip())) + 5 for caption in found)


def test_an_image_is_looked_at_once(captioner: Captioner, folder: Path) -> None:
    looks: list[int] = []
    names = ("vision_model", "vision_tower", "image_encoder", "visual", "encoder")
    modules = dict(captioner.module.named_modules())
    towers = [one for name, one in modules.items() if name.rpartition(".")[2] in names]
    hook = towers[0].register_forward_hook(lambda *_: looks.append(1))
    captioner.captions(noise(0), number=3, most_tokens=4)
    assert len(looks) == 1
    captioner.log_likelihoods(noise(0), [*CAPTIONS, *("red bag " * n for n in range(1, 9))])
    assert len(looks) == 2
    hook.remove()


def test_it_is_known_by_its_content_and_described_without_weights(
    captioner: Captioner, folder: Path, tmp_path: Path
) -> None:
    again = EVERY[folder.name](tmp_path / "elsewhere")
    assert load_captioner(f"local-dir:{again}").key == captioner.key
    other = EVERY[folder.name](tmp_path / "other", seed=1)
    assert load_captioner(f"local-dir:{other}").key != captioner.key
    (other / "model.safetensors").write_bytes(b"no weights")
    about = describe_captioner(f"local-dir:{other}")
    assert about.model_type == folder.name
    assert about.takes_examples is captioner.takes_examples is (folder.name in CHAT)
    assert about.revision is None


def test_examples_are_shown_where_they_can_be(captioner: Captioner) -> None:
    shown = [CaptionExample("a photo of a red bag", noise(7)), CaptionExample("a striped coat")]
    alone, _ = captioner.log_likelihoods(noise(0), ["a coat"])
    if not captioner.takes_examples:
        with pytest.raises(UserError, match="takes no examples"):
            captioner.captions(noise(0), examples=shown)
        return
    told = [captioner.log_likelihoods(noise(0), ["a coat"], examples=some)[0] for some in (shown[:1], shown[1:], shown)]
    assert len({float(one[0]) for one in (alone, *told)}) == 4
    assert captioner.captions(noise(0), most_tokens=4, examples=shown)


def test_numbers_that_mean_nothing_are_refused(captioner: Captioner) -> None:
    for number, most_tokens in ((0, 40), (1, 0)):
        with pytest.raises(ValueError, match="at least one"):
            captioner.captions(noise(0), number=number, most_tokens=most_tokens)
    sums, tokens = captioner.log_likelihoods(noise(0), [])
    assert sums.shape == tokens.shape == (0,)
    assert np.isfinite(captioner.log_likelihoods(noise(0, 33, 7), CAPTIONS)[0]).all()
