"""Generators, CLIP models and class tokens of strangers: no code runs, nothing else is read, sizes
are judged first."""

from __future__ import annotations

import json
import os
import pickle
import resource
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import modern_pipelines as modern
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.generate.tokens.class_tokens import read_token_file
from counterfoil.models import diffusion
from counterfoil.models.clip import load_clip
from counterfoil.models.diffusion import (
    check_scheduler,
    load_pipeline,
    load_tokenizers,
    pipeline_family,
    text_widths,
)
from counterfoil.models.names import LAB_WEIGHTS
from counterfoil.models.trials import ids_in_bounds
from support.files import AUTHORS_CODE, Payload, edit

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def generator(tmp_path: Path) -> Path:
    return Path(shutil.copytree(LAB_WEIGHTS / "sd", tmp_path / "generator"))


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    return Path(shutil.copytree(LAB_WEIGHTS / "clip", tmp_path / "clip"))


def as_pickles(folder: Path, mark: Path) -> None:
    """Replace every weights file by a pickle that runs code, under the names that libraries look
    for."""
    for file in list(folder.rglob("*.safetensors")):
        name = {"model": "pytorch_model", "open_clip_model": "open_clip_pytorch_model"}.get(
            file.stem, file.stem
        )
        file.with_name(f"{name}.bin").write_bytes(pickle.dumps(Payload(mark)))
        file.unlink()


def test_pickles_of_a_generator_never_run(generator: Path, tmp_path: Path) -> None:
    as_pickles(generator, tmp_path / "ran")
    with pytest.raises(CounterfoilError):
        load_pipeline(f"local-dir:{generator}")
    assert not (tmp_path / "ran").exists()


def test_pickles_of_a_clip_model_never_run(clip: Path, tmp_path: Path) -> None:
    as_pickles(clip, tmp_path / "ran")
    with pytest.raises(CounterfoilError):
        load_clip(f"local-dir:{clip}")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("library", ["evil", "diffusers"])
def test_python_that_a_generator_brings_never_runs(
    generator: Path, tmp_path: Path, library: str
) -> None:
    code = (
        f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\nclass"
        " UNet2DConditionModel: pass\n"
    )
    for folder in (generator, generator / "unet"):
        (folder / f"{library}.py").write_text(code)
        (folder / "pipeline.py").write_text(code)
    edit(
        generator / "model_index.json",
        lambda index: index.update(unet=[library, "UNet2DConditionModel"]),
    )
    try:
        load_pipeline(f"local-dir:{generator}")
    except CounterfoilError as error:
        assert library == "evil" or "could not be loaded" in str(error)
    else:
        assert library == "diffusers"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("where", ["tokenizer_config.json", "config.json"])
def test_a_tokenizers_code_never_runs(clip: Path, tmp_path: Path, where: str) -> None:
    (clip / "evil.py").write_text(AUTHORS_CODE.format(str(tmp_path / "ran"), "CLIPTokenizer"))
    trusting = {"tokenizer_kwargs": {"trust_remote_code": True}}
    edit(
        clip / "open_clip_config.json",
        lambda c: c["model_cfg"]["text_cfg"].update(trusting),
    )
    if where == "tokenizer_config.json":
        named = {
            "auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]},
            "tokenizer_class": "Evil",
        }
        edit(clip / where, lambda c: c.update(named))
    else:
        (clip / where).write_text(
            json.dumps({"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil"}})
        )
    with pytest.raises(UserError, match="auto_map names code of its author"):
        load_clip(f"local-dir:{clip}")
    assert not (tmp_path / "ran").exists()


NAMED = {
    "auto_map": {
        "AutoVideoProcessor": "evil.Evil",
        "AutoImageProcessor": "evil.Evil",
        "AutoProcessor": "evil.Evil",
    }
}
DEEP = {
    "a processor of a processor": ("feature_extractor/video_preprocessor_config.json", NAMED),
    "a processor in a processor": (
        "feature_extractor/processor_config.json",
        {"image_processor": NAMED},
    ),
    "a list of processors": (
        "feature_extractor/processor_config.json",
        {"all": [[{"one": NAMED}]]},
    ),
    "a part that is none": ("tokenizer/chat.json", {"deep": {"deeper": NAMED}}),
}


@pytest.fixture
def with_code(generator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a generator that brings its processor's code; every question to run it is answered
    yes."""
    (generator / "feature_extractor").mkdir(exist_ok=True)
    (generator / "feature_extractor" / "evil.py").write_text(
        AUTHORS_CODE.format(str(tmp_path / "ran"), "CLIPTokenizer")
    )
    edit(
        generator / "model_index.json",
        lambda c: c.update(feature_extractor=["transformers", "Qwen2VLProcessor"]),
    )
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    return generator


@pytest.mark.parametrize(
    ("load", "case"),
    [
        *((load_pipeline, case) for case in DEEP),
        (load_tokenizers, "a part that is none"),
        (text_widths, "a part that is none"),
    ],
)
def test_code_is_found_in_every_json_and_at_any_depth(
    with_code: Path, tmp_path: Path, case: str, load: Callable[[str], object]
) -> None:
    path, document = DEEP[case]
    (with_code / path).write_text(json.dumps(document))
    with pytest.raises(
        UserError, match=rf"{path}: auto_map names code of its author, which is never run"
    ):
        load(f"local-dir:{with_code}")
    assert not (tmp_path / "ran").exists()


def test_what_is_no_configuration_stands_in_nobodys_way(generator: Path) -> None:
    (generator / "unet" / "losses.json").write_text('[0.5, {"step": 2}]')
    (generator / "unet" / "notes.json").write_text("a note, and no JSON")
    (generator / "unet" / "vocab.json").write_text(json.dumps({"auto_map": 1}))
    (generator / "vae" / "gone.json").symlink_to("nowhere.json")
    assert load_pipeline(f"local-dir:{generator}").unet is not None
    for name, content in (
        ("deep.json", "[" * 100_000),
        ("large.json", '"' + " " * 8_000_000 + '"'),
    ):
        (generator / "unet" / name).write_text(content)
        with pytest.raises(UserError, match=rf"unet/{name} (is nested too deeply|has .* bytes)"):
            load_pipeline(f"local-dir:{generator}")
        (generator / "unet" / name).unlink()


def test_code_that_no_search_finds_is_refused_without_a_question(
    with_code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diffusion, "refuse_odd_pipeline", lambda *_: None)
    monkeypatch.setattr("transformers.dynamic_module_utils.TIME_OUT_REMOTE_CODE", 15)
    (with_code / "feature_extractor" / "video_preprocessor_config.json").write_text(
        json.dumps(NAMED)
    )
    with pytest.raises(CounterfoilError):
        load_pipeline(f"local-dir:{with_code}")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("text_encoder/model", "../../elsewhere/private.safetensors"),
        ("unet/diffusion_pytorch_model", "/private.safetensors"),
        ("unet/diffusion_pytorch_model", ""),
    ],
)
def test_weights_lie_beside_the_index_that_lists_them(
    generator: Path, part: str, name: str
) -> None:
    weights = generator / f"{part}.safetensors"
    elsewhere = generator.parent / "elsewhere" / "private.safetensors"
    elsewhere.parent.mkdir()
    weights.rename(elsewhere)
    index = {"metadata": {}, "weight_map": dict.fromkeys(load_file(elsewhere), name)}
    weights.with_name(f"{weights.name}.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match=r"it lists .*expected files in the same folder"):
        load_pipeline(f"local-dir:{generator}")


@pytest.mark.parametrize("path", ["text_encoder/model.safetensors", "tokenizer/vocab.json"])
def test_a_pipe_is_not_waited_for(generator: Path, path: str) -> None:
    (generator / path).unlink(missing_ok=True)
    os.mkfifo(generator / path)
    with pytest.raises(UserError, match=rf"{Path(path).name} is a pipe, expected a regular file"):
        load_pipeline(f"local-dir:{generator}")


def test_weights_that_are_not_there_are_not_made_up(clip: Path) -> None:
    for file in clip.glob("*.safetensors"):
        file.unlink()
    with pytest.raises(UserError, match="its folder has no weights"):
        load_clip(f"local-dir:{clip}")


ODD_GENERATORS: dict[str, tuple[str, Change, str]] = {
    "library": (
        "model_index.json",
        lambda c: c.update(unet=["os", "system"]),
        "takes 'unet' from 'os'",
    ),
    "class": (
        "model_index.json",
        lambda c: c.update(unet=["diffusers", "a.b"]),
        "takes 'unet' from 'diffusers'",
    ),
    "form": (
        "model_index.json",
        lambda c: c.update(unet=["diffusers"]),
        "expected [library, class]",
    ),
    "pipeline": (
        "model_index.json",
        lambda c: c.update(_class_name=["a"]),
        "expected a class of diffusers",
    ),
    "other pipeline": (
        "model_index.json",
        lambda c: c.update(_class_name="os"),
        "is not supported",
    ),
    "width": (
        "unet/config.json",
        lambda c: c.update(cross_attention_dim=10**12),
        "expected at most",
    ),
    "words": (
        "text_encoder/config.json",
        lambda c: c.update(vocab_size=10**5),
        "could not be loaded",
    ),
    "more layers": (
        "text_encoder/config.json",
        lambda c: c.update(num_hidden_layers=7),
        "num_hidden_layers is 7",
    ),
    "kernels": (
        "text_encoder/config.json",
        lambda c: c.update(attn_implementation="a/b"),
        "is not followed",
    ),
    "many times": (
        "scheduler/scheduler_config.json",
        lambda c: c.update(num_train_timesteps=500_000),
        "1 to 100,000",
    ),
    "side of text": (
        "unet/config.json",
        lambda c: c.update(sample_size="16"),
        "expected a whole number",
    ),
}


@pytest.mark.parametrize("case", ODD_GENERATORS)
def test_generators_that_no_library_knows_or_no_memory_holds_are_reported(
    generator: Path, case: str
) -> None:
    file, change, expected = ODD_GENERATORS[case]
    edit(generator / file, change)
    with pytest.raises(CounterfoilError) as caught:
        load_pipeline(f"local-dir:{generator}")
    assert expected in str(caught.value)


ODD_CLIPS: dict[str, tuple[Change, str]] = {
    "image": (
        lambda c: c["model_cfg"]["vision_cfg"].update(image_size=100_000),
        "vision_cfg.image_size: found 100000",
    ),
    "depth": (lambda c: c["model_cfg"]["text_cfg"].update(layers=10**6), "layers is 1000000"),
    "memory": (
        lambda c: c["model_cfg"]["text_cfg"].update(width=65_536, layers=100),
        "GB of weights",
    ),
    "tower of the Hub": (
        lambda c: c["model_cfg"]["vision_cfg"].update(timm_model_name="hf-hub:a/b"),
        "timm_model_name",
    ),
    "text tower": (
        lambda c: c["model_cfg"]["text_cfg"].update(hf_model_name="/x"),
        "not a folder of this machine",
    ),
    "mean": (
        lambda c: c["preprocess_cfg"].update(mean=["a", "b", "c"]),
        "preprocess_cfg.mean: found",
    ),
    "std": (
        lambda c: c["preprocess_cfg"].update(std=[0, 0, 0]),
        "found [0, 0, 0], expected three numbers above 0",
    ),
    "unknown": (
        lambda c: c["model_cfg"].update(surprise=1),
        "nothing can be built from its configuration",
    ),
    "context": (
        lambda c: c["model_cfg"]["text_cfg"].update(context_length=10**6),
        "expected 1 to 8192",
    ),
    "tokenizer's file": (
        lambda c: c["model_cfg"]["text_cfg"].update(
            tokenizer_kwargs={"tokenizer_file": "/etc/hostname"}
        ),
        "tokenizer_kwargs: found",
    ),
    "towers": (
        lambda c: c["model_cfg"].update(text_cfg=[1]),
        "text_cfg: found [1], expected a mapping",
    ),
}


@pytest.mark.parametrize("case", ODD_CLIPS)
def test_clip_models_that_read_elsewhere_or_no_memory_holds_are_reported(
    clip: Path, case: str
) -> None:
    change, expected = ODD_CLIPS[case]
    edit(clip / "open_clip_config.json", change)
    with pytest.raises(CounterfoilError) as caught:
        load_clip(f"local-dir:{clip}")
    assert expected in str(caught.value)


@pytest.mark.parametrize("content", ["[" * 100_000, "pipe"])
def test_configurations_of_any_content_are_reported(
    generator: Path, clip: Path, content: str
) -> None:
    for file in (
        generator / "model_index.json",
        generator / "unet" / "config.json",
        clip / "open_clip_config.json",
    ):
        whole = file.read_bytes()
        file.unlink()
        if content == "pipe":
            os.mkfifo(file)
        else:
            file.write_text(content)
        with pytest.raises(CounterfoilError):
            load_clip(f"local-dir:{clip}") if clip in file.parents else load_pipeline(
                f"local-dir:{generator}"
            )
        file.unlink()
        file.write_bytes(whole)


def test_a_name_of_the_hub_is_never_a_folder_here(
    generator: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (generator.parent / "someone").mkdir()
    generator.rename(generator.parent / "someone" / "sd")
    monkeypatch.chdir(generator.parent)
    with pytest.raises(UserError, match=r"Write \./someone/sd for the folder"):
        load_pipeline("someone/sd")


@pytest.mark.parametrize("name", ["../x", "DDIMM", "os", "", "x" * 5000])
def test_a_scheduler_that_there_is_not_is_reported_without_a_model(name: str) -> None:
    with pytest.raises(UserError, match=r"generator\.scheduler: diffusers has no"):
        check_scheduler(name)
    check_scheduler("DDIM")


VECTORS = torch.ones(2, 8)
TOKENS: dict[str, tuple[dict[str, torch.Tensor], dict[str, str], str]] = {
    "whole numbers": ({"<a>": torch.ones(2, 8, dtype=torch.int64)}, {}, "expected vectors"),
    "infinite": ({"<a>": torch.full((2, 8), torch.inf)}, {}, "not finite"),
    "cube": ({"<a>": torch.ones(2, 2, 2)}, {}, "expected vectors"),
    "many": ({"<a>": torch.ones(33, 8)}, {}, "expected at most 32 vectors"),
    "none": ({"<a>": torch.ones(0, 8)}, {}, "expected at most 32 vectors"),
    "spaces": ({"a photo": VECTORS}, {}, "without spaces"),
    "control": ({"<a\x1b[2J>": VECTORS}, {}, "printable"),
    "empty": ({"": VECTORS}, {}, "1 to 200 characters"),
    "long": ({"x" * 201: VECTORS}, {}, "1 to 200 characters"),
    "deep notes": ({"<a>": VECTORS}, {"counterfoil": "[" * 100_000}, "not a readable"),
    "list of notes": ({"<a>": VECTORS}, {"counterfoil": "[]"}, "its notes are list"),
    "placeholder of notes": ({"<a>": VECTORS}, {"counterfoil": '{"placeholder": 3}'}, "its placeholder is 3"),
}  # fmt: skip


@pytest.mark.parametrize("case", TOKENS)
def test_tokens_that_are_none_are_reported(tmp_path: Path, case: str) -> None:
    tensors, notes, expected = TOKENS[case]
    save_file(tensors, tmp_path / "a.safetensors", notes)
    with pytest.raises(UserError, match=r"tokens: a\.safetensors: ") as caught:
        read_token_file(tmp_path / "a.safetensors")
    assert expected in str(caught.value)


def test_tokens_are_regular_files_of_bounded_size(tmp_path: Path) -> None:
    save_file({"<a>": torch.ones(2, 1_000_000)}, tmp_path / "large.safetensors")
    os.mkfifo(tmp_path / "pipe.safetensors")
    (tmp_path / "folder.safetensors").mkdir()
    for name in ("large", "pipe", "folder", "none"):
        with pytest.raises(UserError, match=rf"tokens: {name}\.safetensors"):
            read_token_file(tmp_path / f"{name}.safetensors")


def with_a_word_more(tokenizer: Path, name: str = "eos_token") -> None:
    """Make the tokenizer end every text with a word without an embedding in the weights."""
    edit(tokenizer / "tokenizer_config.json", lambda config: config.update({name: "&a"}))


def test_an_id_beyond_the_table_of_a_clip_model_is_reported_before_it_is_looked_up(
    clip: Path,
) -> None:
    with_a_word_more(clip)
    model = load_clip(f"local-dir:{clip}")
    rows = model.module.token_embedding.num_embeddings
    message = rf"its tokenizer gives the id \d+, and its text encoder has {rows} embeddings"
    with pytest.raises(RunFailure, match=message):
        model.embed_texts(["a photo of a bag"])


def test_what_a_clip_model_cannot_embed_is_reported_in_words(clip: Path) -> None:
    model = load_clip(f"local-dir:{clip}")
    model.module.visual.head = torch.nn.Linear(3, 5)  # of another width than what it is given
    with pytest.raises(RunFailure, match="cannot embed images"):
        model.embed_images([Image.new("RGB", (64, 64))], 1)
    model.module.positional_embedding = torch.nn.Parameter(torch.zeros(3, 5))
    with pytest.raises(RunFailure, match="cannot embed captions"):
        model.embed_texts(["a photo of a bag"])


def test_tables_are_asked_only_while_they_are_watched() -> None:
    table = torch.nn.Embedding(5, 2)
    with ids_in_bounds("a", torch.nn.Sequential(table)):
        assert table(torch.tensor([[0, 4]])).shape == (1, 2, 2)
        assert table(torch.zeros(0, 3, dtype=torch.long)).shape == (0, 3, 2)
        for ids in ([0, 5], [-1], [2**40]):
            with pytest.raises(RunFailure, match="and its text encoder has 5 embeddings"):
                table(torch.tensor(ids))
    with pytest.raises(IndexError):
        table(torch.tensor([5]))


def weights_of(clip: Path) -> dict[str, torch.Tensor]:
    return load_file(clip / "open_clip_model.safetensors")


def test_a_clip_model_of_no_numbers_is_reported(clip: Path) -> None:
    weights = weights_of(clip)
    weights["logit_scale"] = torch.full_like(weights["logit_scale"], torch.nan)
    save_file(weights, clip / "open_clip_model.safetensors")
    with pytest.raises(UserError, match="numbers that are not finite: logit_scale"):
        load_clip(f"local-dir:{clip}")


def test_a_packed_archive_is_not_unpacked(clip: Path) -> None:
    whole = clip / "open_clip_pytorch_model.bin"
    torch.save(weights_of(clip), whole)
    (clip / "open_clip_model.safetensors").unlink()
    assert load_clip(f"local-dir:{clip}").embed_texts(["a bag"]).shape[0] == 1
    with (
        zipfile.ZipFile(whole) as plain,
        zipfile.ZipFile(clip / "packed", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for member in plain.infolist():
            packed.writestr(member.filename, plain.read(member))
    (clip / "packed").replace(whole)
    with pytest.raises(UserError, match="is a packed archive"):
        load_clip(f"local-dir:{clip}")


@pytest.mark.parametrize("change", [
    lambda c: c["model_cfg"].update(embed_dim=1_000_000),
    lambda c: c["model_cfg"]["vision_cfg"].update(timm_model_name="vit_giant_patch14_clip_224", timm_pool="token"),
])  # fmt: skip
def test_sizes_that_the_weights_do_not_hold_are_not_built(clip: Path, change: Change) -> None:
    edit(clip / "open_clip_config.json", change)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match="its configuration asks for"):
        load_clip(f"local-dir:{clip}")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("saved")
    makers = (modern.flux, modern.qwen_image, modern.lumina_2)
    for make in makers:
        make().save_pretrained(folder / make.__name__)
    return {make.__name__: folder / make.__name__ for make in makers}


def named(name: str) -> Change:
    return lambda index: index.update(_class_name=name)


NO_PIPELINES = {
    "StableVideoDiffusionPipeline": "which draws no image from a prompt (its call takes no prompt)",
    "WanPipeline": "which draws from more than a prompt (its call takes num_frames)",
    "FluxFillPipeline": "which draws from more than a prompt (its call takes image)",
    "KandinskyV22PriorPipeline": "which draws no image from a prompt",
    "QwenImagePipelin": "which diffusers does not have",
    "DDIMScheduler": "which diffusers does not have",
    "utils": "which diffusers does not have",
    "DiffusionPipeline": "which draws no image from a prompt",
}


@pytest.mark.parametrize("name", NO_PIPELINES)
def test_what_draws_no_image_from_a_prompt_is_reported_with_its_reason(
    name: str, saved: dict[str, Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(saved["flux"], tmp_path / "model"))
    edit(folder / "model_index.json", named(name))
    for file in folder.rglob("*.safetensors"):
        file.unlink()
    for load in (load_pipeline, pipeline_family):
        with pytest.raises(
            UserError, match="it is not supported, expected one of Stable Diffusion 1"
        ) as caught:
            load(f"local-dir:{folder}")
        assert f"names the pipeline {name}, {NO_PIPELINES[name]}" in str(caught.value)


ODD: dict[str, tuple[str, str, Change, str]] = {
    "second encoder's layers": (
        "flux", "text_encoder_2/config.json", lambda c: c.update(num_layers=3),
        "num_layers is 3, and its weights have 2",
    ),
    "language model": (
        "qwen_image", "text_encoder/config.json", lambda c: c["text_config"].update(hidden_size=10**8),
        "expected at most",
    ),
    "language model's layers": (
        "qwen_image", "text_encoder/config.json", lambda c: c["text_config"].update(num_hidden_layers=5),
        "num_hidden_layers is 5, and its weights have 2",
    ),
    "transformer": ("flux", "transformer/config.json", lambda c: c.update(num_layers=10**5), "expected at most"),
    "side": ("lumina_2", "transformer/config.json", lambda c: c.update(sample_size=4096), "sample_size:"
        " found 4096"),
    "code": ("flux", "text_encoder_2/config.json", lambda c: c.update(auto_map={"AutoModel": "a.B"}), "auto_map"),
    "tokenizer's code": (
        "qwen_image", "tokenizer/tokenizer_config.json", lambda c: c.update(auto_map={"AutoTokenizer": ["a.B", None]}),
        "tokenizer/tokenizer_config.json: auto_map names code of its author, which is never run",
    ),
    "quantised": (
        "flux", "transformer/config.json", lambda c: c.update(quantization_config={"quant_method": "bitsandbytes"}),
        "quantization_config is not followed",
    ),
    "module": ("lumina_2", "model_index.json", lambda c: c.update(vae=["..flux", "A"]), "takes 'vae' from '..flux'"),
    "class": (
        "flux", "model_index.json", lambda c: c.update(text_encoder_2=["transformers", "T5EncoderModl"]),
        "takes 'text_encoder_2' to be T5EncoderModl, which transformers does not have",
    ),
    "function": (
        "flux", "model_index.json", lambda c: c.update(vae=["transformers", "is_torch_available"]),
        "which transformers does not have",
    ),
    "class of a pipeline's module": (
        "flux", "model_index.json", lambda c: c.update(text_encoder_2=["flux", "Evil"]),
        "takes 'text_encoder_2' to be Evil, which flux does not have",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD)
def test_parts_that_no_library_knows_or_no_memory_holds_are_reported(
    case: str, saved: dict[str, Path], tmp_path: Path
) -> None:
    which, file, change, expected = ODD[case]
    folder = Path(shutil.copytree(saved[which], tmp_path / "model"))
    edit(folder / file, change)
    with pytest.raises(UserError) as caught:
        load_pipeline(f"local-dir:{folder}")
    assert expected in str(caught.value)
    assert "It is not loaded" in str(caught.value.hint)
