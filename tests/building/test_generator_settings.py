"""A generator's settings are refused together, by configurations alone, before anything loads or is
learned."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import warm
from counterfoil.building.inputs import resolve_inputs
from counterfoil.engines.local import LocalEngine
from counterfoil.engines.ray_engine import RayEngine
from counterfoil.errors import UserError
from counterfoil.generate.kinds import maker_of
from counterfoil.models.diffusion import load_pipeline
from counterfoil.models.names import LAB_WEIGHTS
from counterfoil.plan.layout import make_plan
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.store.reading import read_rows
from miniature_pipelines import (
    WIDTH,
    kandinsky,
    stable_diffusion_1,
    stable_diffusion_2,
    stable_diffusion_xl,
)
from modern_pipelines import flux, stable_diffusion_3
from support.refusals import problems_of
from tiny_builds import TINY, command, published, tiny

PART = "generator.guidance_interval=[0.2, 0.8]"
PIPELINES = {"sd": stable_diffusion_2, "flux": flux, "kandinsky": kandinsky}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save pipelines with their configurations and no weights, so that loading them fails."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models")
    for name, make in PIPELINES.items():
        make().save_pretrained(folder / name)
    for weights in folder.rglob("*.safetensors"):
        weights.unlink()
    return folder


def recipe_of(model: Path, *changes: str) -> Recipe:
    return load_recipe(
        "wardrobe-mini", [f"generator.model=local-dir:{model}", "tokens=null", *changes]
    )


def check_generator(recipe: Recipe, device: str | None = None) -> None:
    maker_of(recipe).check(recipe, device)


def problems(model: Path, *changes: str, device: str | None = None) -> tuple[str, ...]:
    with pytest.raises(UserError) as caught:
        check_generator(recipe_of(model, *changes), device)
    return caught.value.problems


def test_settings_that_fit_pass(models: Path) -> None:
    check_generator(
        recipe_of(models / "sd", "generator.size=72", "generator.options={clip_skip: 1, eta: 0.5}")
    )
    check_generator(
        recipe_of(
            models / "flux", "generator.size=48", "generator.options={max_sequence_length: 256}"
        )
    )
    check_generator(recipe_of(models / "sd", PART))
    check_generator(load_recipe("wardrobe-mini"))
    # Weights may wait on a CPU, where that does nothing.
    check_generator(recipe_of(models / "sd", "generator.offload=model"), "cpu")
    for model in ("sd", "flux"):
        check_generator(recipe_of(models / model, "samples.pairs=attention"))


def test_all_that_is_wrong_is_reported_at_once_and_by_its_key(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    messages = problems(
        models / "kandinsky",
        "tokens={path: lab:tokens}",
        "generator.quantize=torchao-int8",
        PART,
        "generator.options={max_sequence_length: 256, height: 64}",
    )
    assert [problem.partition(":")[0] for problem in messages] == [
        "generator.quantize",
        "tokens",
        "generator.guidance_interval",
        "generator.options.max_sequence_length",
        "generator.options.height",
    ]


@pytest.mark.parametrize(
    ("model", "changes", "words"),
    [
        ("kandinsky", ["tokens={path: lab:tokens}"], ["takes no class tokens", "expected null"]),
        ("flux", ["tokens={learn: {}}"], ["tokens.learn: ", "expected tokens.path"]),
        ("flux", ["generator.size=1000"], ["size: found 1000", "multiples of 16, such as 992"]),
        (
            "flux",
            ["generator.options={max_sequence_lenght: 256}"],
            ["did you mean 'max_sequence_length'?"],
        ),
        ("flux", [PART], ["generator.guidance_interval: ", "FLUX.1"]),
        (
            "kandinsky",
            ["samples.pairs=attention"],
            ["samples.pairs: ", "Kandinsky", "expected noise"],
        ),
        (
            "sd",
            [PART, "generator.options={negative_original_size: [8, 8]}"],
            ["found options negative_original_size, expected none together with it"],
        ),
        (
            "sd",
            ["generator.offload=sequential", "generator.adapter=lab:decoder"],
            ["generator.offload", "expected model"],
        ),
    ],
)
def test_what_does_not_fit_is_reported_by_its_key(
    model: str, changes: list[str], words: list[str], models: Path
) -> None:
    message = "\n".join(problems(models / model, *changes))
    assert [word for word in words if word not in message] == []


@pytest.mark.parametrize(
    ("file", "key", "value", "reason"),
    [
        ("unet/config.json", "time_cond_proj_dim", 8, "is distilled"),
        (
            "model_index.json",
            "_class_name",
            "LatentConsistencyModelPipeline",
            "is a LatentConsistencyModelPipeline",
        ),
    ],
)
def test_a_distilled_pipeline_has_no_part_of_the_steps(
    models: Path, tmp_path: Path, file: str, key: str, value: Any, reason: str
) -> None:
    distilled = tmp_path / "distilled"
    shutil.copytree(models / "sd", distilled)
    config = json.loads((distilled / file).read_text())
    (distilled / file).write_text(json.dumps(config | {key: value}))
    (message,) = problems(distilled, PART)
    assert message.startswith("generator.guidance_interval: ") and reason in message


def test_a_pipeline_that_draws_no_image_from_a_prompt_is_reported_beside_the_rest(
    tmp_path: Path,
) -> None:
    odd = tmp_path / "video"
    odd.mkdir()
    (odd / "model_index.json").write_text('{"_class_name": "WanPipeline"}')
    messages = problems(odd, "generator.quantize=bnb-4bit", "generator.size=64", device="cpu")
    assert any("WanPipeline" in problem for problem in messages)
    assert any("generator.quantize" in problem for problem in messages)


def test_rows_of_a_pool_have_nothing_to_compare() -> None:
    rows = (
        "generator={kind: rows, model: null, steps: null, guidance: null, rows: {base: {'00':"
        " [0]}}}"
    )
    recipe = load_recipe("wardrobe-mini", ["tokens=null", "samples.noise=independent", rows])
    check_generator(recipe)


def test_a_build_refuses_before_tokens_are_learned_or_weights_load(
    models: Path, tmp_path: Path
) -> None:
    caught = problems_of(
        tiny,
        tmp_path / "out",
        f"generator.model=local-dir:{models / 'flux'}",
        "tokens={learn: {}}",
        "generator.size=56",
        "generator.options={hieght: 64}",
    )
    assert {problem.partition(":")[0] for problem in caught} == {
        "tokens.learn",
        "generator.size",
        "generator.options.hieght",
    }
    assert not (tmp_path / "out" / "lock.json").exists()


@pytest.mark.parametrize("address", [None, "there:6379"], ids=["here", "a cluster"])
def test_the_driver_of_a_cluster_needs_no_gpu_itself(
    address: str | None, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "1")
    recipe = recipe_of(models / "flux", "generator.quantize=bnb-4bit", "generator.size=1000")
    engine = LocalEngine() if address is None else RayEngine(("cuda",), None, address)
    caught = problems_of(resolve_inputs, recipe, tmp_path / "out", "cpu", engine)
    places = {problem.partition(":")[0] for problem in caught}
    assert places == (
        {"generator.size", "generator.quantize"} if address is None else {"generator.size"}
    )


# Stable Diffusion 1.x, 2.x, XL and 3, made miniature with random weights, build through the same
# code.


def test_tokens_of_one_text_encoder_are_refused_where_there_are_two(tmp_path: Path) -> None:
    stable_diffusion_xl().save_pretrained(str(tmp_path / "xl"))
    with pytest.raises(UserError, match="vectors for 1 text encoders, expected 2"):
        load_pipeline(f"local-dir:{tmp_path / 'xl'}", tokens={"<bag>": (torch.zeros(1, WIDTH),)})


@pytest.mark.parametrize(
    "make",
    [
        stable_diffusion_1,
        pytest.param(stable_diffusion_2, marks=pytest.mark.whole),
        stable_diffusion_xl,
        stable_diffusion_3,
    ],
)
def test_a_pipeline_builds_what_diffusers_alone_draws(
    make: Callable[[], Any], tmp_path: Path
) -> None:
    torch.manual_seed(3)
    model = tmp_path / make.__name__
    make().save_pretrained(str(model))
    changes = [
        "source.classes=[{id: bag, name: bag, source_label: 8}]",
        "prompts.shifts.in_the_snow=null", "prompts.shifts.red=null",
        f"generator.model=local-dir:{model}", "generator.batch_size=2",
        "generator.steps=2", "generator.guidance=3.0",
    ]  # fmt: skip
    out = tmp_path / "dataset"
    result = tiny(out, *changes)
    assert result.counts == {"base": {"accepted": 2}, "pencil_sketch": {"accepted": 2}}

    reference: Any = diffusers.DiffusionPipeline.from_pretrained(
        str(model), torch_dtype=torch.float32
    )
    if hasattr(reference, "safety_checker"):
        reference.safety_checker = None
    reference.set_progress_bar_config(disable=True)
    plan = make_plan(load_recipe(out))
    stored = {row["key"]: row["image"]["bytes"] for row in read_rows(out)}
    for shard in plan.shards:
        samples = list(shard.samples(plan))
        drawn = reference(
            prompt=[sample.prompt for sample in samples], guidance_scale=3.0, num_inference_steps=2, output_type="np",
            generator=[torch.Generator("cpu").manual_seed(sample.seed) for sample in samples],
        ).images  # fmt: skip
        assert drawn.std() > 0.01
        for sample, pixels in zip(samples, drawn, strict=True):
            with Image.open(io.BytesIO(stored[sample.key])) as picture:
                stored_pixels = np.asarray(picture).astype(int)
            # One level: the reference runs on as many threads as it likes.
            assert np.abs(stored_pixels - (pixels * 255).round().astype(int)).max() <= 1


# Models of the Hub are loaded by the commit that the lock pins, whatever their branches say by
# then.


FIRST = "1" * 40
SECOND = "2" * 40
GENERATOR = "counterfoil/painter"
CLIP = "counterfoil/judge"


def commit(cache: Path, repository: str, revision: str, folder: Path) -> None:
    shutil.copytree(
        folder, cache / f"models--{repository.replace('/', '--')}" / "snapshots" / revision
    )


def branch(cache: Path, repository: str, revision: str) -> None:
    """Let the default branch point at a commit."""
    root = cache / f"models--{repository.replace('/', '--')}"
    for folder in ("refs", "blobs"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "refs" / "main").write_text(revision)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Store a generator and a CLIP model in two commits each. Tests set where the branches
    point."""
    root = tmp_path_factory.mktemp("hub")
    for number, revision in enumerate((FIRST, SECOND)):
        torch.manual_seed(number)
        stable_diffusion_1().save_pretrained(str(root / f"painter-{number}"))
        commit(root / "cache", GENERATOR, revision, root / f"painter-{number}")
        judge = Path(shutil.copytree(LAB_WEIGHTS / "clip", root / f"judge-{number}"))
        config = json.loads((judge / "open_clip_config.json").read_text())
        config["model_cfg"]["text_cfg"]["hf_tokenizer_name"] = CLIP
        (judge / "open_clip_config.json").write_text(json.dumps(config))
        weights = load_file(judge / "open_clip_model.safetensors")
        save_file({k: v + number if k.endswith("positional_embedding") else v for k, v in weights.items()},
                  judge / "open_clip_model.safetensors")  # fmt: skip
        commit(root / "cache", CLIP, revision, judge)
    return root / "cache"


# As the environment says HF_HUB_CACHE to a process that has imported nothing yet.
IN_CACHE = """
import sys
from huggingface_hub import constants
constants.HF_HUB_CACHE = sys.argv.pop(1)
"""


def python(cache: Path, code: str, *arguments: Any) -> str:
    """Return the output of a process that finds this cache."""
    _, environment = command()
    words = [sys.executable, "-c", IN_CACHE + code, *map(str, (cache, *arguments))]
    run = warm.run(words, environment)
    assert run.returncode == 0, run.stderr
    return run.stdout


# In one process, which imports for seconds: a dataset; another, while whose build the branches
# move; the first made again, where the branches are not even known; and one at the commits that
# they moved to.
BUILDS = """
import sys
from pathlib import Path
from counterfoil import regenerate
from counterfoil.building.build_dataset import BuildProgress, build as build_dataset
from counterfoil.progress import listening

folder, references, *settings = sys.argv[1:]
folder, references = Path(folder), [Path(path) for path in references.split(":")]

def at(commit):
    for path in references:
        path.write_text(commit)

def build(name, meet=lambda progress: None):
    with listening(meet):
        build_dataset("wardrobe-mini", folder / name, overrides=settings, device="cpu", workers=1)

def move(progress):  # the first report comes after the pins and before the workers load
    if isinstance(progress, BuildProgress) and progress.images_done == 0:
        at("2" * 40)

at("1" * 40)
build("first")
build("moving", move)
print([path.read_text() for path in references] == ["2" * 40] * 2)
for path in references:
    path.unlink()
print(regenerate(folder / "first", folder / "again", device="cpu", workers=1).comparison.identical)
at("2" * 40)
build("second")
"""


def settings(**names: str) -> list[str]:
    bag = "source.classes=[{id: bag, name: bag, source_label: 8}]"
    models = [f"generator.model={GENERATOR}", f"screen.model=hf-hub:{CLIP}"]
    return [*TINY, bag, "prompts.shifts.in_the_snow=null", "prompts.shifts.red=null", *models]


def refs(cache: Path) -> list[Path]:
    return [
        cache / f"models--{name.replace('/', '--')}" / "refs" / "main" for name in (GENERATOR, CLIP)
    ]


def test_a_branch_that_moves_changes_nothing(cache: Path, tmp_path: Path) -> None:
    for name in (GENERATOR, CLIP):
        branch(cache, name, FIRST)
    assert (
        python(cache, BUILDS, tmp_path, ":".join(map(str, refs(cache))), *settings())
        == "True\nTrue\n"
    )
    pins = json.loads((tmp_path / "first" / "lock.json").read_text())["inputs"]["models"]
    assert {part: pin["revision"] for part, pin in pins.items()} == {
        "generator": FIRST,
        "screen": FIRST,
    }
    for name in ("moving", "again"):
        assert published(tmp_path / name) == published(tmp_path / "first")
    for what in ("data", "candidates"):
        path = f"{what}/base/test-00000-of-00001.parquet"
        assert published(tmp_path / "second")[path] != published(tmp_path / "first")[path]


TAGS = """
import sys, json
import numpy as np
import open_clip
from open_clip import factory, pretrained
from PIL import Image
from counterfoil.models.clip import load_clip
folder, *revisions = sys.argv[1:]
config = json.load(open(folder + "/open_clip_config.json"))
config["model_cfg"]["text_cfg"]["hf_tokenizer_name"] = folder
factory._MODEL_CONFIGS["judge"] = config["model_cfg"]
# Settings that are not open_clip's defaults, which a weights file alone would get.
pretrained._PRETRAINED["judge"] = {"ours": pretrained._pcfg(
    hf_hub="counterfoil/judge/", mean=(0.5, 0.4, 0.3), std=(0.5, 0.5, 0.2), interpolation="bilinear",
    resize_mode="squash")}
picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (48, 80, 3), np.uint8))
for revision in revisions:
    clip = load_clip("judge", "ours", revision=None if revision == "branch" else revision)
    text = clip.embed_texts(["a photo of a bag"])
    print(json.dumps([clip.embed_images([picture], 1).tolist(), text.tolist(), repr(clip.preprocess)]))
"""


def test_a_weights_tag_is_read_at_its_commit_and_prepared_as_the_tag_says(cache: Path) -> None:
    branch(cache, CLIP, FIRST)
    folder = cache / f"models--{CLIP.replace('/', '--')}" / "snapshots" / FIRST
    by_branch, first, second = python(cache, TAGS, folder, "branch", FIRST, SECOND).splitlines()
    assert first == by_branch
    assert json.loads(second)[0] == json.loads(first)[0], (
        "the commits differ in the text encoder alone"
    )
    assert json.loads(second)[1] != json.loads(first)[1]
