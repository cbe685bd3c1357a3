"""Models of the Hub are loaded by the commit that the lock pins, whatever their branches say by then.

The Hub's client is the real one, without a network, on a cache made by hand.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import warm
from counterfoil.models import LAB_WEIGHTS
from miniature_pipelines import stable_diffusion_1
from tiny_builds import TINY, command, published

FIRST, SECOND = "1" * 40, "2" * 40
GENERATOR, CLIP = "counterfoil/painter", "counterfoil/judge"


def commit(cache: Path, repository: str, revision: str, folder: Path) -> None:
    """The files of a folder as one commit of a repository."""
    shutil.copytree(folder, cache / f"models--{repository.replace('/', '--')}" / "snapshots" / revision)


def branch(cache: Path, repository: str, revision: str) -> None:
    """Let the default branch point at a commit."""
    place = cache / f"models--{repository.replace('/', '--')}"
    for folder in ("refs", "blobs"):
        (place / folder).mkdir(parents=True, exist_ok=True)
    (place / "refs" / "main").write_text(revision)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generator and a CLIP model in two commits each. Tests say where the branches point."""
    place = tmp_path_factory.mktemp("hub")
    for number, revision in enumerate((FIRST, SECOND)):
        torch.manual_seed(number)
        stable_diffusion_1().save_pretrained(str(place / f"painter-{number}"))
        commit(place / "cache", GENERATOR, revision, place / f"painter-{number}")
        judge = Path(shutil.copytree(LAB_WEIGHTS / "clip", place / f"judge-{number}"))
        config = json.loads((judge / "open_clip_config.json").read_text())
        config["model_cfg"]["text_cfg"]["hf_tokenizer_name"] = CLIP
        (judge / "open_clip_config.json").write_text(json.dumps(config))
        weights = load_file(judge / "open_clip_model.safetensors")
        save_file({k: v + number if k.endswith("positional_embedding") else v for k, v in weights.items()},
                  judge / "open_clip_model.safetensors")  # fmt: skip
        commit(place / "cache", CLIP, revision, judge)
    return place / "cache"


# As the environment says HF_HUB_CACHE to a process that has imported nothing yet.
IN_CACHE = """
import sys
from huggingface_hub import constants
constants.HF_HUB_CACHE = sys.argv.pop(1)
"""


def python(cache: Path, code: str, *arguments: Any) -> str:
    """What a process prints that finds this cache."""
    _, environment = command()
    words = [sys.executable, "-c", IN_CACHE + code, *map(str, (cache, *arguments))]
    run = warm.run(words, environment)
    assert run.returncode == 0, run.stderr
    return run.stdout


# In one process, which imports for seconds: a dataset; another, while whose build the branches move; the first made
# again, where the branches are not even known; and one at the commits that they moved to.
BUILDS = """
import sys
from pathlib import Path
from counterfoil import regenerate
from counterfoil.building import BuildProgress, build as build_dataset
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
    one = "source.classes=[{id: bag, name: bag, source_label: 8}]"
    models = [f"generator.model={GENERATOR}", f"screen.model=hf-hub:{CLIP}"]
    return [*TINY, one, "prompts.shifts.in_the_snow=null", "prompts.shifts.red=null", *models]


def refs(cache: Path) -> list[Path]:
    return [cache / f"models--{name.replace('/', '--')}" / "refs" / "main" for name in (GENERATOR, CLIP)]


def test_a_branch_that_moves_changes_nothing(cache: Path, tmp_path: Path) -> None:
    for name in (GENERATOR, CLIP):
        branch(cache, name, FIRST)
    assert python(cache, BUILDS, tmp_path, ":".join(map(str, refs(cache))), *settings()) == "True\nTrue\n"
    pins = json.loads((tmp_path / "first" / "lock.json").read_text())["inputs"]["models"]
    assert {part: pin["revision"] for part, pin in pins.items()} == {"generator": FIRST, "screen": FIRST}
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
    assert json.loads(second)[0] == json.loads(first)[0], "the commits differ in the text encoder alone"
    assert json.loads(second)[1] != json.loads(first)[1]
