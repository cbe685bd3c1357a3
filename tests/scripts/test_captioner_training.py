"""The captioner's training: the claims of its captions, what it learns of them, and what it
records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from counterfoil.lab.vocabulary import MARKS
from lab_training.captioner import (
    Captioner,
    Sentences,
    captioning_scene,
    claims_of,
    export_captioner,
    new_captioner,
    new_tokenizer,
    partial_claims,
    words_right,
)
from lab_training.captions import caption_of, tellable


def test_claims_are_read_back_from_captions() -> None:
    rng = np.random.default_rng(1)
    for number in range(500):
        whole = tellable(captioning_scene(number).attributes())
        for claims in (whole, partial_claims(whole, rng)[0]):
            assert claims_of(caption_of(claims)) == claims


def test_partial_captions_are_true_unless_others_began_them() -> None:
    rng = np.random.default_rng(2)
    begun = 0
    for number in range(800):
        whole = tellable(captioning_scene(number).attributes())
        claims, by_others = partial_claims(whole, rng)
        begun += by_others
        false = {attribute for attribute, value in claims.items() if whole.get(attribute) != value}
        assert false <= ({"class", "style"} if by_others else set())
        assert "class" in claims
    assert 60 < begun < 140


def test_no_sentence_teaches_a_mark_or_what_others_began() -> None:
    tokenizer = new_tokenizer()
    sentences = Sentences(tokenizer)
    rng = np.random.default_rng(3)
    for number in range(300):
        whole = tellable(captioning_scene(number).attributes())
        part = partial_claims(whole, rng)
        inputs, labels = sentences([(whole, False), part])
        assert (inputs[:, 0] == tokenizer.bos_token_id).all()
        for row, (claims, by_others) in enumerate([(whole, False), part]):
            words = tokenizer(caption_of(claims)).input_ids
            assert inputs[row, 1 : len(words) + 1].tolist() == words
            learned = labels[row][labels[row] >= 0].tolist()
            assert learned == [*words, tokenizer.eos_token_id][-len(learned) :]
            taught = claims_of(tokenizer.decode(learned, skip_special_tokens=True))
            if by_others:
                assert not {"class", "style", "colour", "pattern"} & set(taught)
            assert not (
                "pattern" in taught and MARKS.get(taught.get("class", "")) == taught["pattern"]
            )


def test_what_is_exported_is_the_model_in_half_precision(tmp_path: Path) -> None:
    torch.manual_seed(0)
    tokenizer = new_tokenizer()
    model = new_captioner(tokenizer).eval()
    pixels = torch.randn(2, 3, 64, 64)
    words = torch.tensor([[1, 5, 9], [1, 7, 8]])
    with torch.inference_mode():
        before = model(pixel_values=pixels, decoder_input_ids=words).logits
        export_captioner(model, tokenizer, 0, tmp_path)
        after = Captioner.load(tmp_path).model(pixel_values=pixels, decoder_input_ids=words).logits
    assert after.dtype == torch.float32
    assert torch.allclose(before, after, atol=0.02)
    assert {file.name for file in tmp_path.iterdir()} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "preprocessor_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "training.json",
    }


def test_words_are_counted_right_false_and_where_nothing_is() -> None:
    photo = {
        "style": "photo",
        "weather": "clear",
        "companion": "none",
        "pattern": "plain",
        "light": "day",
    }
    shirt = photo | {"class": "shirt", "colour": "red", "background": "snow", "pattern": "striped"}
    bag = photo | {"class": "bag", "colour": "blue", "background": "road", "light": "night"}
    captions = [
        "a photo of a red striped shirt in the snow",
        "a photo of a green bag in the rain at night",
    ]
    counted = words_right([shirt, bag], captions)
    right = counted["told_right"]
    assert right == right | {"colour": 0.5, "background": 0.5, "light": 1.0, "class": 1.0}
    # The shirt's stripes are its mark, which no caption may name; leaving out the bag's place is no
    # falsehood.
    false = counted["told_false"]
    assert false == false | {
        "pattern": 0.5,
        "colour": 0.5,
        "weather": 0.5,
        "background": 0.0,
        "light": 0.0,
    }
    nothing = counted["told_where_nothing_is"]
    assert nothing == nothing | {"pattern": 0.5, "weather": 0.5, "light": 0.0}
    assert "weather" not in right, "no picture has any to tell"
