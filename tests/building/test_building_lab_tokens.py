"""Builds with the lab's class tokens: as those of any folder, from the first image to the published repository."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import counterfoil
import warm
from counterfoil.errors import UserError
from counterfoil.lab.oracle import Oracle
from counterfoil.lab.vocabulary import ATTRIBUTES, MARKS
from counterfoil.recipe import load_recipe
from counterfoil.store import read_rows
from counterfoil.store.lock import read_lock
from counterfoil.tokens.class_tokens import token_folder
from counterfoil.verification import verify
from loopback_hub import LoopbackHub, Reader, client_environment
from miniature_pipelines import stable_diffusion_1
from tiny_builds import command, images, published, tiny

LAB = "tokens={path: lab:tokens}"
IDS = ("00", "05", "08")
REPO = "someone/by-token"


@pytest.fixture(scope="module")
def by_token(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("lab-tokens") / "dataset"
    tiny(out, LAB)
    return out


def test_they_reach_the_prompts_and_the_lock_and_travel_with_the_dataset(by_token: Path, undisturbed: Path) -> None:
    prompts = {row["class_id"]: row["prompt"] for row in read_rows(by_token, groups=["base"])}
    assert prompts["08"] == "a photo of a <bag-08>"
    assert set(images(by_token)) == set(images(undisturbed))
    assert not set(images(by_token).values()) & set(images(undisturbed).values())
    kept = {name: (by_token / "tokens" / name).read_bytes() for name in (*(f"{i}.safetensors" for i in IDS),)}
    assert kept == {name: (token_folder("lab:tokens", None) / name).read_bytes() for name in kept}
    lock, named = read_lock(by_token), read_lock(undisturbed)
    assert lock is not None and named is not None
    assert set(lock.inputs["tokens"]) == set(IDS) and named.inputs["tokens"] is None
    assert lock.hashes["plan"] != named.hashes["plan"] and lock.hashes["screen"] == named.hashes["screen"]


def test_the_directory_names_its_own_copy(by_token: Path) -> None:
    recipe = load_recipe(by_token)
    assert recipe.tokens is not None and recipe.tokens.path == str((by_token / "tokens").resolve())
    assert "path: ./tokens" in (by_token / "recipe.yaml").read_text()
    lock = read_lock(by_token)
    assert lock is not None and recipe.plan_hash == lock.hashes["plan"]


def test_it_is_whole_renders_again_and_goes_on(by_token: Path) -> None:
    report = verify(by_token, rerender=3, device="cpu")
    assert report.problems == ()
    assert [row.outcome for row in report.rerendered] == ["identical bytes"] * 3
    assert tiny(by_token, LAB).images_made == 0


def test_it_is_made_again_from_what_it_tells(by_token: Path, tmp_path: Path) -> None:
    again = counterfoil.regenerate(by_token, tmp_path / "again", device="cpu", workers=1)
    assert again.comparison is not None and again.comparison.identical
    assert published(tmp_path / "again") == published(by_token)
    counterfoil.build(str(by_token), tmp_path / "recipe", device="cpu", workers=1)
    assert images(tmp_path / "recipe") == images(by_token)


def test_it_is_published_with_them(by_token: Path, loopback: LoopbackHub, tmp_path: Path) -> None:
    words, environment = command("publish", str(by_token), REPO, "--yes")
    warm.run(words, client_environment(loopback, tmp_path / "home", inherited=environment), check=True)
    there = {path for path in loopback.branch(REPO) if path.startswith("tokens/")}
    assert there == {"tokens/manifest.json", *(f"tokens/{class_id}.safetensors" for class_id in IDS)}
    with Reader(loopback, tmp_path / "reader") as reader:
        splits = reader.rows(REPO, columns=["key"])
    assert {row["key"] for rows in splits.values() for row in rows} == set(images(by_token))


def test_another_generator_and_another_class_are_refused(tmp_path: Path) -> None:
    stable_diffusion_1().save_pretrained(str(tmp_path / "sd1"))
    with pytest.raises(UserError, match=r"class token <t-shirt-00>: width 128, expected 32") as refused:
        tiny(tmp_path / "other", LAB, f"generator.model=local-dir:{tmp_path / 'sd1'}")
    assert "learned for another text encoder" in (refused.value.hint or "")
    with pytest.raises(UserError, match=r"tokens has no cape\.safetensors"):
        tiny(tmp_path / "cape", LAB, "source.classes=[{id: cape, name: cape, source_label: 0}]")


@pytest.mark.whole
def test_marked_classes_wear_by_token_what_no_name_tells(tmp_path: Path) -> None:
    marked = "source.classes=[{id: '04', name: coat, source_label: 4}, {id: '06', name: shirt, source_label: 6}]"
    oracle = Oracle()
    share = {}
    for way, tokens in (("token", LAB), ("name", "tokens=null")):
        drawn = ["prompts.shifts={}", "generator.steps=12", "samples.candidates=8", "generator.batch_size=8"]
        drawn += ["generator.size=null"]
        tiny(tmp_path / way, marked, *drawn, tokens)
        seen = []
        for row in read_rows(tmp_path / way, columns=["image", "class_id"]):
            pixels = np.asarray(Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB"))
            pattern = MARKS["coat" if row["class_id"] == "04" else "shirt"]
            answer = oracle.judge(pixels[None])["pattern"][0]
            seen.append(answer == ATTRIBUTES["pattern"].index(pattern))
        assert len(seen) == 16
        share[way] = sum(seen) / len(seen)
    assert share["token"] >= 0.7 and share["name"] <= 0.3
