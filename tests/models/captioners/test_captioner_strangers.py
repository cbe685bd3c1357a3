"""Captioners of strangers: no code runs, no pickle is read, nothing leads elsewhere, sizes are judged before memory."""

from __future__ import annotations

import json
import os
import pickle
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.models.captioners import describe_captioner, load_captioner
from support.files import Payload, edit
from support.images import noise
from tiny_captioners import llava, vision_encoder_decoder

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


CODE = "from pathlib import Path\nPath({!r}).touch()\nfrom transformers import {} as Evil\n"


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
@pytest.mark.parametrize("kind", ["mine", "chat"])
def test_code_of_an_author_never_runs(
    request: pytest.FixtureRequest, kind: str, tmp_path: Path, file: str, named: Any, base: str
) -> None:
    folder: Path = request.getfixturevalue(kind)
    (folder / "evil.py").write_text(CODE.format(str(tmp_path / "ran"), base))
    edit(folder / file, lambda document: document.update(auto_map=named))
    with pytest.raises(UserError, match="auto_map names code of its author, which is never run"):
        describe_captioner(f"local-dir:{folder}")
    assert not (tmp_path / "ran").exists()


def test_a_way_of_generating_that_the_folder_brings_is_left_aside(mine: Path, tmp_path: Path) -> None:
    expected = load_captioner(f"local-dir:{mine}").captions(noise(0), number=2, most_tokens=5)
    (mine / "custom_generate").mkdir()
    (mine / "custom_generate" / "generate.py").write_text(CODE.format(str(tmp_path / "ran"), "ViTConfig"))
    edit(mine / "generation_config.json", lambda document: document.update(max_length=1, num_beams=7, top_k=1))
    assert load_captioner(f"local-dir:{mine}").captions(noise(0), number=2, most_tokens=5) == expected
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
    "no template": ("config.json", {"model_type": "llava", "architectures": []}, "it has no chat template"),
    "other head": ("config.json", {"architectures": ["VitForImageClassification"]}, "trained for something else"),
    "inside": ("config.json", {"more": [{"model_type": "timm_wrapper"}]}, "is 'timm_wrapper', which is not built"),
    "encoder": ("config.json", {"encoder": {"model_type": "bert"}}, "encoder.model_type is 'bert'"),
    "decoder": ("config.json", {"decoder": {"model_type": "vit"}}, "decoder.model_type is 'vit'"),
    "half": ("config.json", {"decoder": 7}, "decoder is 7, expected a mapping"),
    "width": ("config.json", {"hidden_size": HUGE}, "expected at most 1,000,000"),
    "backbone": ("config.json", {"nested": [{"use_timm_backbone": True}]}, "use_timm_backbone is not followed"),
    "quantised": ("config.json", {"quantization_config": {"quant_method": "gptq"}}, "is not followed"),
    "side": (PROCESSOR, {"size": {"height": HUGE, "width": 32}}, "expected at most 4,096"),
    "class": (PROCESSOR, {"image_processor_type": "os.system"}, "expected a class of transformers"),
}


@pytest.mark.parametrize("case", ODD)
def test_what_no_captioner_says_is_told_before_a_weight_is_read(mine: Path, case: str) -> None:
    file, values, expected = ODD[case]
    (mine / "model.safetensors").write_bytes(b"no weights")
    edit(mine / file, lambda document: document.update(values))
    with pytest.raises(UserError) as refused:
        describe_captioner(f"local-dir:{mine}")
    assert expected in str(refused.value)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", TOKENIZER, PROCESSOR, "generation_config.json"])
@pytest.mark.parametrize("content", [b"", b"[1]", b"\xff\xfe", b'{"a":' * 100_000])
def test_damaged_files_are_told(mine: Path, file: str, content: bytes) -> None:
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
    named = {f"{part}_file": str(tmp_path / "vocab.txt") for part in ("vocab", "tokenizer", "merges", "spm")}
    edit(mine / TOKENIZER, lambda document: document.update(named))
    assert load_captioner(f"local-dir:{mine}").captions(noise(0)) == expected


@pytest.mark.parametrize(
    ("half", "values"),
    [
        ("decoder", {"n_embd": 900_000, "n_head": 1}),
        ("decoder", {"vocab_size": 1_000_000, "n_embd": 9_600}),
        ("encoder", {"hidden_size": 900_000, "num_attention_heads": 1}),
        ("encoder", {"image_size": 1_000_000, "patch_size": 1}),
    ],
)
def test_sizes_that_the_weights_cannot_fill_take_no_memory(mine: Path, half: str, values: dict[str, Any]) -> None:
    edit(mine / "config.json", lambda document: document[half].update(values))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match="Configuration and weights are not of one model"):
        load_captioner(f"local-dir:{mine}")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most < 300_000  # kB


def test_weights_are_all_there_and_are_numbers(mine: Path) -> None:
    stored = load_file(mine / "model.safetensors")
    key = next(key for key in stored if key.endswith("crossattention.c_attn.weight"))
    save_file({k: v for k, v in stored.items() if k != key}, mine / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RunFailure, match="which would be made up"):
        load_captioner(f"local-dir:{mine}")
    stored[key][0, 0] = float("nan")
    save_file(stored, mine / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match="not finite"):
        load_captioner(f"local-dir:{mine}")
    (mine / "model.safetensors").write_bytes((mine / "model.safetensors").read_bytes()[:1000])
    with pytest.raises(RunFailure, match="damaged"):
        load_captioner(f"local-dir:{mine}")


def test_a_tokenizer_of_another_model_is_told(mine: Path) -> None:
    document = json.loads((mine / "tokenizer.json").read_text())
    document["model"]["vocab"]["sandal"] = 999
    (mine / "tokenizer.json").write_text(json.dumps(document))
    captioner = load_captioner(f"local-dir:{mine}")
    with pytest.raises(RunFailure, match="id 999"):
        captioner.log_likelihoods(noise(0), ["a sandal"])


@pytest.mark.parametrize(
    "template", ["{{ 1/0 }}", "{% for", "{{ ''.__class__.__mro__[1].__subclasses__() }}", "no image at all", ""]
)
def test_a_template_that_asks_nothing_is_told(chat: Path, template: str) -> None:
    (chat / "chat_template.jinja").write_text(template)
    with pytest.raises(CounterfoilError):
        load_captioner(f"local-dir:{chat}")


def test_a_template_without_end_is_not_read(chat: Path) -> None:
    (chat / "chat_template.jinja").write_text("{# " + "x" * 300_000 + " #}")
    with pytest.raises(UserError, match="expected at most 200,000"):
        describe_captioner(f"local-dir:{chat}")


@pytest.mark.parametrize("name", ["", " ", "local-dir:/nowhere", "lab:captionr", "no name of the hub"])
def test_names_of_nothing_are_told(name: str, tmp_path: Path) -> None:
    with pytest.raises(CounterfoilError):
        describe_captioner(name)


def test_a_folder_of_something_else_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no config.json"):
        describe_captioner(f"local-dir:{tmp_path}")


@pytest.mark.parametrize("part", ["normalizer", "decoder"])
@pytest.mark.parametrize("steps", [[("a", "aa")] * 34, [("x", "y" * 3000)]])
def test_a_tokenizer_that_makes_texts_long_is_refused(mine: Path, part: str, steps: list[tuple[str, str]]) -> None:
    made = [{"type": "Replace", "pattern": {"String": old}, "content": new} for old, new in steps]
    edit(mine / "tokenizer.json", lambda c: c.update({part: {"type": "Sequence", f"{part}s": made}}))
    with pytest.raises(UserError, match=rf"tokenizer\.json: its {part} makes a text more than 64 times as long"):
        describe_captioner(f"local-dir:{mine}")
