"""Tokens learned for a recipe: the same bytes however many workers and however often killed; refusals; in a build."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import datasets
import pytest
import torch

import warm
from counterfoil.engines.local import LocalEngine
from counterfoil.errors import RunFailure, UserError
from counterfoil.models.diffusion import load_pipeline
from counterfoil.progress import listening
from counterfoil.recipe import load_recipe
from counterfoil.tokens.class_tokens import read_token_file
from counterfoil.tokens.learn_tokens import LearningTask, TokenProgress, TokenResult, learn_tokens
from miniature_pipelines import stable_diffusion_xl
from tiny_builds import CLASSES, command, published, tiny

OWN_SIZE = "generator.size=null"
LEARN = "tokens={path: null, learn: {steps: 3, batch_size: 1, learning_rate: 1.0e-2, classes_in_flight: 2}}"
NAMES = {"00": "t-shirt", "05": "sandal", "08": "bag"}


def learn(out: Path, *changes: str, workers: int = 1) -> TokenResult:
    recipe = load_recipe("wardrobe-mini", [CLASSES, LEARN, *changes])
    return learn_tokens(recipe, out, device="cpu", workers=workers)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Learned in this process in one go. Read only."""
    out = tmp_path_factory.mktemp("learned") / "tokens"
    heard: list[TokenProgress] = []
    recipe = load_recipe("wardrobe-mini", [CLASSES, LEARN])
    with listening(heard.append):
        result = learn_tokens(recipe, out, device="cpu", workers=1)
    assert set(result.losses) == set(result.learned) == set(NAMES)
    assert (heard[-1].classes_done, heard[-1].steps_done, heard[-1].steps) == (3, 6, 6)
    return out


def test_files_are_what_diffusers_loads(learned: Path) -> None:
    pipeline = load_pipeline("lab:sd", dtype="float32")
    before = {name: pipeline.tokenizer(name, add_special_tokens=False)["input_ids"] for name in NAMES.values()}
    for class_id, name in NAMES.items():
        pipeline.load_textual_inversion(str(learned / f"{class_id}.safetensors"))
        place = pipeline.tokenizer.convert_tokens_to_ids(f"<{name}-{class_id}>")
        weight = pipeline.text_encoder.get_input_embeddings().weight
        token = read_token_file(learned / f"{class_id}.safetensors")
        assert torch.equal(weight[place], token.vectors[0][0])
        start = weight[before[name]].mean(0)
        torch.testing.assert_close(weight[place].norm(), start.norm())
        assert (weight[place] - start).norm() > 1e-3


def test_the_manifest_tells_how_they_were_made(learned: Path) -> None:
    manifest = json.loads((learned / "manifest.json").read_text())
    assert manifest["settings"]["steps"] == 3
    assert manifest["source"]["dataset"] == "lab:wardrobe"
    assert manifest["source"]["split"] == "train"
    assert manifest["generator"]["sha256"]
    assert manifest["classes"]["05"]["images"] == 800
    assert manifest["classes"]["05"]["loss"] == read_token_file(learned / "05.safetensors").notes["loss"]


def test_workers_and_groups_change_no_byte(learned: Path, tmp_path: Path) -> None:
    learn(tmp_path / "two", workers=2)
    assert published(tmp_path / "two") == published(learned)
    # One class alone, in a group that is padded, is the class among others.
    one = "source.classes=[{id: '08', name: bag, source_label: 8}]"
    learn(tmp_path / "one", one)
    assert (tmp_path / "one/08.safetensors").read_bytes() == (learned / "08.safetensors").read_bytes()


def test_a_killed_run_goes_on_and_ends_the_same(learned: Path, tmp_path: Path) -> None:
    out = tmp_path / "tokens"
    settings = [word for change in (CLASSES, LEARN) for word in ("--set", change)]
    words, environment = command("tokens", "wardrobe-mini", "--out", str(out), "--workers", "1", *settings)
    with warm.start(words, environment) as process:
        while process.poll() is None and not (out / "00.safetensors").exists():
            time.sleep(0.01)
        process.kill()
    (out / "08.safetensors.1.tmp").write_bytes(b"half of one")  # as where it is killed amid a file
    first = (out / "00.safetensors").stat().st_mtime_ns
    result = learn(out)
    assert (out / "00.safetensors").stat().st_mtime_ns == first
    assert "00" not in result.learned
    assert published(out) == published(learned)


def test_two_text_encoders_learn_and_render(tmp_path: Path) -> None:
    torch.manual_seed(3)
    stable_diffusion_xl().save_pretrained(str(tmp_path / "xl"))
    model = f"generator.model=local-dir:{tmp_path / 'xl'}"
    learn(tmp_path / "tokens", model, "tokens.learn.vectors=2")
    token = read_token_file(tmp_path / "tokens/08.safetensors")
    assert [part.shape[0] for part in token.vectors] == [2, 2]
    pipeline = load_pipeline(f"local-dir:{tmp_path / 'xl'}", tokens={token.placeholder: token.vectors})
    for suffix, vectors in zip(("", "_2"), token.vectors, strict=True):
        weight = getattr(pipeline, f"text_encoder{suffix}").get_input_embeddings().weight
        place = getattr(pipeline, f"tokenizer{suffix}").convert_tokens_to_ids(token.placeholder)
        assert torch.equal(weight[place], vectors[0])
    out = tmp_path / "dataset"
    assert tiny(out, model, f"tokens.path={tmp_path / 'tokens'}").accepted == 24


def test_a_build_learns_once_and_sends_the_tokens_along(learned: Path, tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    tiny(out, LEARN, OWN_SIZE)
    files = published(out)
    for name in (*(f"{class_id}.safetensors" for class_id in NAMES), "manifest.json"):
        assert files[f"tokens/{name}"] == (learned / name).read_bytes()
    # Made again without what was kept for resuming, it learns nothing and changes nothing.
    shutil.rmtree(out / ".counterfoil")
    tiny(out, LEARN, OWN_SIZE)
    assert not (out / ".counterfoil/tokens").exists()
    assert published(out) == files
    with pytest.raises(UserError) as refused:
        tiny(out, LEARN, OWN_SIZE, "tokens.learn.steps=4")
    assert "settings.steps: 3 there, 4 here" in "\n".join(refused.value.problems)


def test_other_settings_are_refused_in_the_same_folder(learned: Path) -> None:
    with pytest.raises(UserError) as refused:
        learn(learned, "tokens.learn.seed=9")
    assert "settings.seed: 0 there, 9 here" in "\n".join(refused.value.problems)


def test_classes_that_cannot_be_learned_are_named_together(tmp_path: Path) -> None:
    two = "source.classes=[{id: a, name: bag, source_label: 8}, {id: b, name: cape, source_label: 77}]"
    with pytest.raises(UserError, match="'cape' has the source_label 77, and 'lab:wardrobe' has the labels 0 to 9"):
        learn(tmp_path / "few", two)
    images = [{"bytes": None, "path": None}] * 4
    numbers = datasets.Dataset.from_dict({"image": images, "label": [8] * 4})
    numbers.cast_column("image", datasets.Image()).to_parquet(str(tmp_path / "numbers" / "train.parquet"))
    with pytest.raises(UserError, match=r"'b' \(cape\): 0 training images .*at least 4"):
        learn(tmp_path / "few", f"source={{dataset: {tmp_path}/numbers}}", two)
    with pytest.raises(UserError) as refused:
        learn(tmp_path / "few", "tokens.learn.min_images=801")
    assert len(refused.value.problems) == 3
    with pytest.raises(UserError, match="tokenises to nothing"):
        learn(tmp_path / "few", "tokens.learn.initial_word=' '")
    with pytest.raises(UserError, match="does not say how to learn"):
        learn_tokens(load_recipe("wardrobe-mini", ["tokens=null"]), tmp_path / "few")
    with pytest.raises(UserError, match="takes those of lab:tokens") as refused:
        learn_tokens(load_recipe("wardrobe-mini"), tmp_path / "few")
    assert "tokens={path: null, learn: {}}" in (refused.value.hint or "")
    assert not list((tmp_path / "few").glob("*.safetensors"))


@pytest.mark.parametrize("workers", [1, 2], ids=["this process", "two workers"])
def test_a_worker_of_another_stack_learns_nothing(workers: int, learned: Path, tmp_path: Path) -> None:
    """The folder is of one stack: each worker measures its own and is refused before it loads a model."""
    identity = json.loads((learned / "manifest.json").read_text())
    del identity["classes"]
    identity["stack"]["versions"]["torch"] = "1.0.0"
    recipe = load_recipe("wardrobe-mini", [CLASSES, LEARN])
    work = LearningTask(recipe, tmp_path, "cpu", identity)
    with pytest.raises(UserError) as refused:
        list(LocalEngine(workers).run(work, [["00"], ["05"]]))
    assert str(tmp_path) in refused.value.problems[0]
    assert any('versions.torch: "1.0.0" there' in line for line in refused.value.problems)
    assert list(tmp_path.iterdir()) == []


def test_a_loss_that_is_no_number_leaves_no_token(tmp_path: Path) -> None:
    damaged = load_pipeline("lab:sd", dtype="float32")
    with torch.no_grad():
        damaged.unet.conv_out.bias[0] = float("nan")
    damaged.save_pretrained(str(tmp_path / "model"))
    with pytest.raises(RunFailure) as failed:
        learn(tmp_path / "tokens", f"generator.model=local-dir:{tmp_path / 'model'}")
    assert [line for line in failed.value.problems if "class '05' has no token: the loss was not a number" in line]
    assert not list((tmp_path / "tokens").glob("*.safetensors"))
    manifest = json.loads((tmp_path / "tokens/manifest.json").read_text())
    assert manifest["classes"]["05"] == {"failed": "the loss was not a number at step 1"}
