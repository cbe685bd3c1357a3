"""Builds from image embeddings: vectors are an input that travels along, and what cannot be drawn
is refused first."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from counterfoil.building import regenerate_dataset
from counterfoil.building.build_dataset import BuildProgress
from counterfoil.dataset.reading import read_dataset
from counterfoil.dataset.verification import verify
from counterfoil.errors import RunFailure, UserError
from counterfoil.generate.image_embeddings import embeddings_file
from counterfoil.generate.kinds import maker_of
from counterfoil.generate.render import Renderer
from counterfoil.models.clip import load_clip
from counterfoil.plan.layout import Sample
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.store.reading import read_rows
from driven import given_up
from miniature_pipelines import EMBEDDING, kandinsky, stable_diffusion_1, stable_unclip
from tiny_builds import images, published, tiny

CLASSES = (
    "source.classes=[{id: '05', name: sandal, source_label: 5}, {id: '08', name: bag,"
    " source_label: 8}]"
)
RED = ["05_hard", "08_hard"]


def vectors(path: Path, *keys: str, width: int = 128) -> Path:
    rng = np.random.default_rng(5)
    path.write_bytes(
        embeddings_file({key: rng.normal(size=width).astype(np.float32) for key in keys})
    )
    return path


def changes(file: Path) -> list[str]:
    """Return changes for two groups: the base by prompts, and a shift of vectors beside one of
    prompts."""
    return [
        CLASSES,
        "prompts.shifts.pencil_sketch=null",
        "prompts.shifts.in_the_snow={group: mined}",
        f"prompts.shifts.red={{prompt: null, group: mined, embedding: {{file: {file}, key:"
        " '{class_id}_hard'}}",
        "generator.adapter=lab:decoder",
        "output.rows_per_shard=8",
    ]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vectors")
    seen = load_clip("lab:clip").embed_texts(
        ["a photo of a blue sandal in the snow", "a photo of a red bag"]
    )
    (folder / "v.safetensors").write_bytes(embeddings_file(dict(zip(RED, seen, strict=True))))
    return folder / "v.safetensors"


@pytest.fixture(scope="module")
def built(file: Path) -> Iterator[Path]:
    """Yield a build that was interrupted after its first shard and went on."""
    out = file.parent / "out"
    with given_up(lambda message: isinstance(message, BuildProgress) and message.shards_done == 1):
        tiny(out, *changes(file))
    assert not (out / "manifest.json").exists()
    tiny(out, *changes(file))
    yield out


def test_a_dataset_is_made_again_from_its_own_vectors_to_the_same_bytes(
    built: Path, file: Path
) -> None:
    away = file.rename(file.with_name("away"))
    try:
        again = regenerate_dataset.regenerate(
            built, built.with_name("again"), device="cpu", workers=1
        )
    finally:
        away.rename(file)
    assert again.comparison is not None and again.comparison.identical
    assert published(built) == published(built.with_name("again"))


def test_rows_tell_no_prompt_where_there_was_none(built: Path) -> None:
    prompts = {
        row["key"]: row["prompt"]
        for row in read_rows(built, columns=["key", "prompt"], what="candidates")
    }
    assert (
        prompts["red_08_000001"] is None
        and prompts["in_the_snow_08_000001"] == "a photo of a bag in the snow"
    )
    card = (built / "README.md").read_text()
    assert "an image embedding" in card and "lab:decoder" in card and "sha256 of 2 vectors" in card


def test_samples_of_either_kind_fill_batches_of_their_own(
    file: Path, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: list[set[str]] = []
    render = Renderer.ahead

    def seen(self: Renderer, samples: Sequence[Sample]) -> Any:
        rendered.append({sample.shift for sample in samples})
        return render(self, samples)

    monkeypatch.setattr(Renderer, "ahead", seen)
    # Shards of one cell: eight samples by prompt and four by a vector are three batches of four.
    tiny(tmp_path / "dataset", *changes(file), "output.rows_per_shard=2")
    assert sorted(map(sorted, rendered)) == [["base"], ["in_the_snow"], ["red"]]
    assert images(tmp_path / "dataset") == images(built)


def test_other_shifts_are_drawn_as_without_adapter_and_vectors(built: Path, tmp_path: Path) -> None:
    tiny(tmp_path / "plain", CLASSES, "prompts.shifts.pencil_sketch=null", "prompts.shifts.red=null",
         "prompts.shifts.in_the_snow={group: mined}", "output.rows_per_shard=8")  # fmt: skip
    plain = images(tmp_path / "plain")
    adapted = images(built)
    assert len(plain) == 8 and len(adapted) == 12
    assert {key: adapted[key] for key in plain} == plain


def test_rows_are_rendered_again_from_what_the_dataset_holds(built: Path) -> None:
    report = verify(built, rerender=12, device="cpu")
    assert report.problems == ()
    assert {row.outcome for row in report.rerendered} == {"identical bytes"} and len(
        report.rerendered
    ) == 12


def test_another_vector_is_another_input(built: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"embeddings\.red\.08") as refused:
        tiny(built, *changes(vectors(tmp_path / "v.safetensors", *RED)))
    assert "was built from other inputs" in "\n".join(refused.value.problems)


def test_vectors_that_the_lock_does_not_pin_are_damage(built: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(built, tmp_path / "copy"))
    vectors_file = copy / "embeddings.safetensors"
    content = bytearray(vectors_file.read_bytes())
    content[-1] ^= 1
    vectors_file.write_bytes(content)
    with pytest.raises(RunFailure, match=r"embeddings\.safetensors.*is changed"):
        read_dataset(copy, "embeddings").sound()
    assert any(problem.path == vectors_file.name for problem in verify(copy).problems)
    vectors_file.unlink()
    with pytest.raises(RunFailure, match=r"embeddings\.safetensors"):
        regenerate_dataset.regenerate(copy, tmp_path / "again", device="cpu", workers=1)
    assert not (tmp_path / "again" / "lock.json").exists()


def without_weights(folder: Path, make: Callable[[], Any]) -> str:
    """Save a generator's configurations alone, so that loading its weights fails."""
    torch.manual_seed(0)
    make().save_pretrained(folder)
    for weights in folder.rglob("*.safetensors"):
        weights.unlink()
    return f"local-dir:{folder}"


def recipe_of(file: Path, *others: str) -> Recipe:
    return load_recipe("wardrobe-mini", [CLASSES, "tokens=null", *changes(file)[1:4], *others])


@pytest.mark.parametrize(
    ("make", "others", "message"),
    [
        (stable_diffusion_1, [], ["takes no image embeddings without a generator.adapter"]),
        (
            stable_diffusion_1,
            ["generator.adapter=lab:decoder"],
            ["24 numbers, and 'lab:decoder' takes 128"],
        ),
        (
            stable_unclip,
            ["generator.adapter=lab:decoder"],
            ["generator.adapter: ", "takes no adapter"],
        ),
        (
            stable_unclip,
            [],
            [
                "prompts.base.embedding: missing",
                "prompts.shifts.in_the_snow.embedding: missing",
                "Stable unCLIP draws",
            ],
        ),
        (
            kandinsky,
            [],
            [
                "prompts.base.embedding: missing",
                "prompts.base.prompt: Kandinsky 2.2 takes no prompt",
            ],
        ),
    ],
    ids=[
        "no adapter",
        "another CLIP's",
        "adapter for nothing",
        "not every sample",
        "prompts for nothing",
    ],
)
def test_what_cannot_be_drawn_is_refused_before_weights_load(
    tmp_path: Path, make: Callable[[], Any], others: list[str], message: list[str]
) -> None:
    file = vectors(tmp_path / "v.safetensors", *RED, width=EMBEDDING)
    name = without_weights(tmp_path / "model", make)
    recipe = recipe_of(file, f"generator.model={name}", *others)
    with pytest.raises(UserError) as refused:
        maker_of(recipe).embeddings(recipe)
    for words in message:
        assert words in "\n".join(refused.value.problems)


def test_a_missing_vector_is_reported_before_anything_is_written(tmp_path: Path) -> None:
    file = vectors(tmp_path / "v.safetensors", "05_hard")
    with pytest.raises(UserError, match=r"no '08_hard' in v\.safetensors"):
        tiny(tmp_path / "out", *changes(file))
    assert not (tmp_path / "out" / "lock.json").exists()
