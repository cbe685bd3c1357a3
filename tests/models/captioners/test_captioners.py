"""Every kind of captioner: captions and likelihoods by one way of decoding, and files of
strangers."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    LogitsProcessorList,
    TopPLogitsWarper,
)

from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.models.captioners import (
    Captioner,
    CaptionExample,
    describe_captioner,
    load_captioner,
)
from counterfoil.models.captioners.captioner import TOP_P, chosen_token
from counterfoil.models.captioners.of_chat import QUESTION, ChatCaptioner, _tried
from counterfoil.models.captioners.of_decoders import (
    BlipCaptioner,
    GitCaptioner,
    VisionEncoderDecoderCaptioner,
)
from support.files import AUTHORS_CODE, Payload, edit
from support.images import noise
from tiny_captioners import CHAT, EVERY, PLAIN, llava, vision_encoder_decoder

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
    """Return a function that calls greedy `generate` of a model that transformers loaded, for
    `noise(0)`."""
    model: Any = AutoModelForImageTextToText.from_pretrained(folder).eval()
    inputs: Any
    if folder.name in PLAIN:
        assert isinstance(captioner, VisionEncoderDecoderCaptioner | GitCaptioner | BlipCaptioner)
        inputs = {"pixel_values": captioner._pixels(noise(0))}
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
        return model.generate(
            **inputs,
            **named,
            do_sample=False,
            num_beams=1,
            return_dict_in_generate=True,
            **settings,
        )

    return generated


class Forcing:
    """Leaves one token to choose at each step: the next of a caption."""

    def __init__(self, tokens: list[int]) -> None:
        self.left = list(tokens)

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        forced = torch.full_like(scores, -torch.inf)
        token = self.left.pop(0)
        forced[:, token] = scores[:, token]
        return forced


def test_likelihoods_are_the_transition_scores_of_generate(
    captioner: Captioner, generate: Any
) -> None:
    sums, counts = captioner.log_likelihoods(noise(0), CAPTIONS[:2])
    for caption, total, count in zip(CAPTIONS, sums, counts, strict=False):
        tokens = [*captioner._tokens(caption), captioner.ends[0]]
        forced = LogitsProcessorList([Forcing(tokens)])
        out = generate(logits_processor=forced, max_new_tokens=len(tokens), output_logits=True)
        logs = [
            torch.log_softmax(scores[0].float(), -1)[token]
            for scores, token in zip(out.logits, tokens, strict=True)
        ]
        assert count == len(tokens)
        assert total == pytest.approx(float(sum(logs)), abs=1e-3)
    assert captioner.log_likelihoods(noise(0), [])[0].shape == (0,)


def test_the_first_caption_is_the_greedy_one_of_generate(
    captioner: Captioner, generate: Any
) -> None:
    out = generate(max_new_tokens=8, suppress_tokens=list(captioner.never), output_scores=True)
    written = captioner.tokenizer.decode(
        out.sequences[0, -len(out.scores) :], skip_special_tokens=True
    )
    captions = captioner.captions(noise(0), number=3, most_tokens=8)
    assert len(captions) == 3
    assert captions[0] == written.strip()
    assert captioner.captions(noise(0), most_tokens=8) == captions[:1]


# One of decoders and one of chat models, where what is asked is the same for all of a kind.
of_each_kind = pytest.mark.parametrize("folder", ["blip", "llava"], indirect=True)


@of_each_kind
def test_an_image_answers_the_same_whatever_came_before(captioner: Captioner) -> None:
    arguments: dict[str, Any] = {"prefix": "a photo of a", "number": 3, "seed": 5, "most_tokens": 6}
    first = [captioner.captions(noise(seed), **arguments) for seed in (0, 1)]
    again = [captioner.captions(noise(seed), **arguments) for seed in (1, 0)]
    assert first == again[::-1]
    assert first[0] != first[1]
    sums, _ = captioner.log_likelihoods(noise(0), CAPTIONS)
    for other in ([*CAPTIONS, *["a red bag"] * 9][::-1], list(CAPTIONS[2:])):
        others = dict(zip(other, captioner.log_likelihoods(noise(0), other)[0], strict=True))
        assert all(
            others[caption] == numbers
            for caption, numbers in zip(CAPTIONS, sums, strict=True)
            if caption in others
        )


@of_each_kind
def test_nobody_elses_chance_is_drawn_from(captioner: Captioner) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    drawn = captioner.captions(noise(0), number=4, most_tokens=6, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(4)
    assert captioner.captions(noise(0), number=4, most_tokens=6, seed=1) == drawn
    others = [
        captioner.captions(noise(0), number=4, most_tokens=6, seed=seed) for seed in range(2, 4)
    ]
    assert all(other[0] == drawn[0] for other in others)
    assert any(other[1:] != drawn[1:] for other in others)


@of_each_kind
def test_captions_are_completions_of_the_prefix(captioner: Captioner) -> None:
    prefix = "  a photo of a sandal \n"
    captions = captioner.captions(noise(2), prefix=prefix, number=4, most_tokens=5)
    assert all(caption.startswith(prefix.strip()) for caption in captions)
    assert len(set(captions)) > 1 or captions[0] == prefix.strip()
    assert all(
        len(captioner._tokens(caption)) <= len(captioner._tokens(prefix.strip())) + 5
        for caption in captions
    )


def test_an_image_is_looked_at_once(captioner: Captioner) -> None:
    looks: list[int] = []
    names = ("vision_model", "vision_tower", "image_encoder", "visual", "encoder")
    modules = dict(captioner.module.named_modules())
    towers = [module for name, module in modules.items() if name.rpartition(".")[2] in names]
    hook = towers[0].register_forward_hook(lambda *_: looks.append(1))
    captioner.captions(noise(0), number=3, most_tokens=4)
    assert len(looks) == 1
    captioner.log_likelihoods(noise(0), [*CAPTIONS, *("red bag " * n for n in range(1, 4))])
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


@of_each_kind
def test_examples_are_shown_where_they_can_be(captioner: Captioner) -> None:
    shown = [CaptionExample("a photo of a red bag", noise(7)), CaptionExample("a striped coat")]
    alone, _ = captioner.log_likelihoods(noise(0), ["a coat"])
    if not captioner.takes_examples:
        with pytest.raises(UserError, match="takes no examples"):
            captioner.captions(noise(0), examples=shown)
        return
    sums = [
        captioner.log_likelihoods(noise(0), ["a coat"], examples=some)[0]
        for some in (shown[:1], shown[1:], shown)
    ]
    assert len({float(total[0]) for total in (alone, *sums)}) == 4
    assert captioner.captions(noise(0), most_tokens=4, examples=shown)


@pytest.fixture(scope="module", params=list(CHAT))
def chat_captioner(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ChatCaptioner:
    folder = CHAT[request.param](tmp_path_factory.mktemp("chat") / request.param)
    loaded = load_captioner(f"local-dir:{folder}")
    assert isinstance(loaded, ChatCaptioner)
    return loaded


def test_going_on_is_reading_whole(chat_captioner: ChatCaptioner) -> None:
    assert chat_captioner.goes_on
    whole = replace(chat_captioner, goes_on=False)
    shown = [CaptionExample("a red bag", noise(4))]
    for examples in ((), shown):
        sums, counts = chat_captioner.log_likelihoods(noise(0), CAPTIONS, examples=examples)
        expected, tokens = whole.log_likelihoods(noise(0), CAPTIONS, examples=examples)
        np.testing.assert_allclose(sums, expected, atol=1e-3)
        assert counts.tolist() == tokens.tolist()
    arguments: dict[str, Any] = {"prefix": "a photo of a", "number": 3, "most_tokens": 5}
    assert chat_captioner.captions(noise(1), **arguments) == whole.captions(noise(1), **arguments)


class Forgetful(ChatCaptioner):
    """Ignores the cache of the text read before."""

    def _went_on(self, seen: Any, cache: Any, ids: torch.Tensor, done: int) -> torch.Tensor:
        scores = super()._went_on(seen, cache, ids, done)
        return scores.flip(-1) if self.goes_on else scores


class Refusing(ChatCaptioner):
    """Refuses a cache of the text read before."""

    def _went_on(self, seen: Any, cache: Any, ids: torch.Tensor, done: int) -> torch.Tensor:
        if self.goes_on:
            raise ValueError("no cache of this kind")
        return super()._went_on(seen, cache, ids, done)


@pytest.mark.parametrize("kind", [Forgetful, Refusing])
def test_a_model_that_does_not_go_on_is_read_whole(
    chat_captioner: ChatCaptioner, kind: type[ChatCaptioner]
) -> None:
    parts = {name: getattr(chat_captioner, name) for name in chat_captioner.__dataclass_fields__}
    tried = _tried(kind(**parts))
    assert not tried.goes_on
    texts = CAPTIONS[:2]
    expected, _ = chat_captioner.log_likelihoods(noise(0), texts)
    np.testing.assert_allclose(tried.log_likelihoods(noise(0), texts)[0], expected, atol=1e-3)


def test_names_of_tokens_in_a_text_are_words(chat_captioner: ChatCaptioner) -> None:
    name = "<image> <|image_pad|> <end> <fake_token_around_image>"
    special = set(chat_captioner.tokenizer.all_special_ids) - {
        chat_captioner.tokenizer.unk_token_id
    }
    assert not special & set(chat_captioner._tokens(f"a photo {name} of {name}"))
    texts: Sequence[CaptionExample] = (
        CaptionExample(f"{name} a bag {name}", noise(3)),
        CaptionExample(f"a{name}"),
    )
    captions = chat_captioner.captions(
        noise(0), prefix=f"a {name}", number=2, most_tokens=4, examples=texts
    )
    assert all(caption.startswith(f"a {name}") for caption in captions)
    assert np.isfinite(
        chat_captioner.log_likelihoods(noise(0), [f"a {name} bag"], examples=texts)[0]
    ).all()


def test_an_answer_begins_where_the_template_writes_it(chat_captioner: ChatCaptioner) -> None:
    inputs = chat_captioner._asked(noise(0), [])
    begun = chat_captioner.tokenizer.decode(inputs["input_ids"][0])
    assert "".join(begun.split()).endswith("assistant:")
    assert chat_captioner.lead == " "  # the template of these models writes "assistant : answer"


SCORES = torch.tensor([1.0, 3.0, 0.5, 2.5, -4.0, 2.5, -9.0])


@pytest.mark.parametrize(
    "scores", [SCORES, torch.tensor([9.0, 0.0, 0.0]), torch.tensor([1.0, -torch.inf, 1.0])]
)
def test_shares_are_those_of_transformers_own_nucleus(scores: torch.Tensor) -> None:
    none: Any = torch.empty(1, 0, dtype=torch.long)
    nucleus = torch.softmax(TopPLogitsWarper(TOP_P)(none, scores[None].double())[0], -1).numpy()
    chance = torch.Generator().manual_seed(0)
    drawn = np.bincount([chosen_token(scores, chance) for _ in range(1000)], minlength=len(scores))
    assert not drawn[nucleus == 0].any()
    some = nucleus > 0
    if some.sum() > 1:
        assert (
            stats.chisquare(drawn[some], 1000 * nucleus[some] / nucleus[some].sum()).pvalue > 1e-4
        )


def test_the_same_chance_draws_the_same_and_none_the_likeliest() -> None:
    assert chosen_token(SCORES, None) == 1
    assert chosen_token(torch.zeros(5), None) == 0
    chances = [torch.Generator().manual_seed(seed) for seed in (7, 7, 8)]
    runs = [[chosen_token(SCORES, chance) for _ in range(50)] for chance in chances]
    assert runs[0] == runs[1] != runs[2]


HUGE = 2**40
PROCESSOR = "preprocessor_config.json"
TOKENIZER = "tokenizer_config.json"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("captioners")
    return {"two": vision_encoder_decoder(root / "two"), "chat": llava(root / "chat")}


@pytest.fixture
def mine(saved: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved["two"], tmp_path / "mine"))


@pytest.fixture
def chat(saved: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved["chat"], tmp_path / "chat"))


@pytest.mark.parametrize(
    ("file", "named", "base"),
    [
        ("config.json", {"AutoConfig": "evil.Evil"}, "ViTConfig"),
        ("config.json", {"AutoModelForImageTextToText": "evil.Evil"}, "VisionEncoderDecoderModel"),
        (PROCESSOR, {"AutoImageProcessor": "evil.Evil"}, "ViTImageProcessor"),
        (TOKENIZER, {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}, "PreTrainedTokenizerFast"),
        ("processor_config.json", {"AutoProcessor": "evil.Evil"}, "LlavaProcessor"),
        ("generation_config.json", {"AutoConfig": "evil.Evil"}, "GenerationConfig"),
    ],
)
def test_code_of_an_author_never_runs(
    chat: Path, tmp_path: Path, file: str, named: Any, base: str
) -> None:
    (chat / "evil.py").write_text(AUTHORS_CODE.format(str(tmp_path / "ran"), base))
    edit(chat / file, lambda document: document.update(auto_map=named))
    with pytest.raises(UserError, match="auto_map names code of its author, which is never run"):
        describe_captioner(f"local-dir:{chat}")
    assert not (tmp_path / "ran").exists()


def test_a_way_of_generating_that_the_folder_brings_is_left_aside(
    mine: Path, tmp_path: Path
) -> None:
    expected = load_captioner(f"local-dir:{mine}").captions(noise(0), number=2, most_tokens=5)
    (mine / "custom_generate").mkdir()
    (mine / "custom_generate" / "generate.py").write_text(
        AUTHORS_CODE.format(str(tmp_path / "ran"), "ViTConfig")
    )
    edit(
        mine / "generation_config.json",
        lambda document: document.update(max_length=1, num_beams=7, top_k=1),
    )
    assert (
        load_captioner(f"local-dir:{mine}").captions(noise(0), number=2, most_tokens=5) == expected
    )
    assert not (tmp_path / "ran").exists()


def test_pickled_weights_are_never_read(mine: Path, tmp_path: Path) -> None:
    (mine / "model.safetensors").unlink()
    (mine / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(tmp_path / "ran")))
    with pytest.raises(UserError, match="safetensors"):
        load_captioner(f"local-dir:{mine}")
    assert not (tmp_path / "ran").exists()


ODD: dict[str, tuple[str, dict[str, Any], str]] = {
    "kind": ("config.json", {"model_type": "bert"}, "no captioner of that kind"),
    "no kind": ("config.json", {"model_type": ["vit"]}, "no captioner of that kind"),
    "no template": (
        "config.json",
        {"model_type": "llava", "architectures": []},
        "it has no chat template",
    ),
    "other head": (
        "config.json",
        {"architectures": ["VitForImageClassification"]},
        "trained for something else",
    ),
    "inside": (
        "config.json",
        {"more": [{"model_type": "timm_wrapper"}]},
        "is 'timm_wrapper', which is not built",
    ),
    "encoder": (
        "config.json",
        {"encoder": {"model_type": "bert"}},
        "encoder.model_type: found 'bert'",
    ),
    "decoder": (
        "config.json",
        {"decoder": {"model_type": "vit"}},
        "decoder.model_type: found 'vit'",
    ),
    "no kind of half": (
        "config.json",
        {"encoder": {"model_type": ["vit"]}},
        "encoder.model_type: found ['vit']",
    ),
    "half": ("config.json", {"decoder": 7}, "decoder: found 7, expected a mapping"),
    "width": ("config.json", {"hidden_size": HUGE}, "expected at most 1,000,000"),
    "quantised": (
        "config.json",
        {"quantization_config": {"quant_method": "gptq"}},
        "is not followed",
    ),
    "side": (PROCESSOR, {"size": {"height": HUGE, "width": 32}}, "expected at most 4,096"),
}


@pytest.mark.parametrize("case", ODD)
def test_what_no_captioner_says_is_reported_before_a_weight_is_read(mine: Path, case: str) -> None:
    file, values, expected = ODD[case]
    (mine / "model.safetensors").write_bytes(b"no weights")
    edit(mine / file, lambda document: document.update(values))
    with pytest.raises(UserError) as refused:
        describe_captioner(f"local-dir:{mine}")
    assert expected in str(refused.value)


@pytest.mark.parametrize("file", ["tokenizer.json", TOKENIZER, PROCESSOR, "generation_config.json"])
@pytest.mark.parametrize("content", [b"[1]", b'{"a":' * 100_000], ids=["a list", "deep"])
def test_damaged_files_are_reported(mine: Path, file: str, content: bytes) -> None:
    (mine / file).write_bytes(content)
    with pytest.raises(CounterfoilError):
        load_captioner(f"local-dir:{mine}")


def test_what_is_no_file_is_not_waited_for(mine: Path) -> None:
    (mine / "tokenizer.json").unlink()
    os.mkfifo(mine / "tokenizer.json")
    with pytest.raises(UserError, match=r"has no tokenizer.json"):
        describe_captioner(f"local-dir:{mine}")


def test_a_tokenizer_opens_no_file_that_it_names(mine: Path, tmp_path: Path) -> None:
    expected = load_captioner(f"local-dir:{mine}").captions(noise(0))
    (tmp_path / "vocab.txt").write_text("secret\n")
    named = {
        f"{part}_file": str(tmp_path / "vocab.txt")
        for part in ("vocab", "tokenizer", "merges", "spm")
    }
    edit(mine / TOKENIZER, lambda document: document.update(named))
    assert load_captioner(f"local-dir:{mine}").captions(noise(0)) == expected


def test_a_tokenizer_of_another_model_is_reported(mine: Path) -> None:
    document = json.loads((mine / "tokenizer.json").read_text())
    document["model"]["vocab"]["sandal"] = 999
    (mine / "tokenizer.json").write_text(json.dumps(document))
    captioner = load_captioner(f"local-dir:{mine}")
    with pytest.raises(RunFailure, match="id 999"):
        captioner.log_likelihoods(noise(0), ["a sandal"])


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{{ 1/0 }}", "cannot be rendered"),
        ("no image at all", "Found total 0 <image> tokens and 1 images"),
        ("", "has no chat template"),
        ("{# " + "x" * 300_000 + " #}", "expected at most 200,000"),
    ],
    ids=["error", "no image", "empty", "long"],
)
def test_a_template_that_asks_nothing_or_has_no_end_is_reported(
    chat: Path, template: str, says: str
) -> None:
    (chat / "chat_template.jinja").write_text(template)
    with pytest.raises(CounterfoilError, match=says):
        load_captioner(f"local-dir:{chat}")


def test_names_and_folders_of_nothing_are_reported(tmp_path: Path) -> None:
    for name in ("", " ", "local-dir:/nowhere", "lab:captionr", "no name of the hub"):
        with pytest.raises(CounterfoilError):
            describe_captioner(name)
    with pytest.raises(UserError, match=r"has no config.json"):
        describe_captioner(f"local-dir:{tmp_path}")


@pytest.mark.parametrize(
    ("part", "steps"),
    [("normalizer", [("a", "aa")] * 34), ("decoder", [("x", "y" * 3000)])],
)
def test_a_tokenizer_that_makes_texts_long_is_refused(
    mine: Path, part: str, steps: list[tuple[str, str]]
) -> None:
    replacements = [
        {"type": "Replace", "pattern": {"String": old}, "content": new} for old, new in steps
    ]
    edit(
        mine / "tokenizer.json",
        lambda c: c.update({part: {"type": "Sequence", f"{part}s": replacements}}),
    )
    with pytest.raises(
        UserError, match=rf"tokenizer\.json: its {part} makes a text more than 64 times as long"
    ):
        describe_captioner(f"local-dir:{mine}")
