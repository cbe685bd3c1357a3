"""Same bytes: however many workers, whatever else is in the recipe, a sample's image is the same."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from counterfoil.building.build_dataset import BuildProgress
from counterfoil.models.clip import load_clip
from counterfoil.progress import Stage, listening
from counterfoil.screen import ScreenDoubts
from counterfoil.store.manifest import verify_files
from counterfoil.store.reading import read_receipts, read_rows
from counterfoil.tokens.learn_tokens import TokenProgress
from tiny_builds import SHARDS, SHIFTS, images, published, tiny


def test_a_build_is_whole(undisturbed: Path) -> None:
    assert verify_files(undisturbed) == []
    keys = [row["key"] for row in read_rows(undisturbed, columns=["key"])]
    expected = [f"{shift}_{cls}_{i:06d}" for shift in SHIFTS for cls in ("00", "05", "08") for i in range(2)]
    assert keys == expected
    assert [row["key"] for row in read_rows(undisturbed, columns=["key"], what="candidates")] == expected
    assert len(read_receipts(undisturbed)) == SHARDS
    for content in images(undisturbed).values():
        with Image.open(io.BytesIO(content)) as picture:
            assert (picture.size, picture.mode, picture.format) == ((32, 32), "RGB", "PNG")
    assert len(set(images(undisturbed).values())) == len(keys)


def test_two_worker_processes_make_the_same_directory(undisturbed: Path, tmp_path: Path) -> None:
    heard: list[BuildProgress | TokenProgress | Stage | ScreenDoubts] = []
    with listening(heard.append):
        result = tiny(tmp_path / "dataset", workers=2)
    assert published(tmp_path / "dataset") == published(undisturbed)
    assert (result.shards_made, result.images_made) == (SHARDS, 24)
    builds = [told for told in heard if isinstance(told, BuildProgress)]
    assert builds == heard
    assert (builds[0].shards_done, builds[-1].shards_done) == (0, SHARDS)
    assert builds[-1].images_done == 24
    for before, after in pairwise(builds):
        assert before.shards_done <= after.shards_done
        assert before.images_done <= after.images_done


def test_nothing_published_tells_where_it_was_made(undisturbed: Path) -> None:
    for path, content in published(undisturbed).items():
        assert str(undisturbed).encode() not in content, path


@pytest.mark.parametrize(
    "changes",
    [
        # Other neighbours in full batches, and a class alone in a short one that is padded.
        ["source.classes=[{id: '08', name: bag, source_label: 8}, {id: '00', name: t-shirt, source_label: 0}]"],
        # A shift more and shards of another size: cells meet in other batches, and full batches become short.
        ["prompts.shifts.at_dusk={prompt: 'a photo of a {class} at dusk'}", "output.rows_per_shard=2"],
    ],
    ids=["fewer classes", "one more shift"],
)
def test_other_cells_leave_every_image_as_it_was(changes: list[str], undisturbed: Path, tmp_path: Path) -> None:
    tiny(tmp_path / "dataset", *changes)
    before, after = images(undisturbed), images(tmp_path / "dataset")
    shared = before.keys() & after.keys()
    assert len(shared) >= 16
    assert len(shared) < max(len(before), len(after))
    assert all(before[key] == after[key] for key in shared)


def test_rejected_images_are_kept_apart(undisturbed: Path, screened: Path, half_threshold: float) -> None:
    rows = list(read_rows(screened, what="candidates"))
    reasons = {row["key"]: row["reason"] for row in rows}
    assert {row["key"]: row["object_score"] >= half_threshold for row in rows} == {
        key: reason == "accepted" for key, reason in reasons.items()
    }
    assert set(reasons.values()) == {"accepted", "low_object"}
    kept = {row["key"] for row in read_rows(screened, columns=["key"])}
    rejected = {row["key"] for row in read_rows(screened, columns=["key"], what="rejected")}
    assert kept == {key for key, reason in reasons.items() if reason == "accepted"}
    assert rejected == reasons.keys() - kept
    # The screen decides which images are kept, never what they look like.
    assert images(screened) == images(undisturbed)
    assert "embedding" not in rows[0]
    assert not list(read_rows(undisturbed, what="rejected"))


def test_stored_embeddings_give_the_stored_scores(undisturbed: Path) -> None:
    clip = load_clip("lab:clip")
    name = {"00": "t-shirt", "05": "sandal", "08": "bag"}
    captions = {"in_the_snow": "a photo in the snow", "red": "a photo red"}
    for row in read_rows(undisturbed):
        embedding = np.asarray(row["embedding"], np.float64)
        assert np.linalg.norm(embedding) == pytest.approx(1, abs=1e-6)
        thing = "a {}" if row["shift"] == "pencil_sketch" else "a photo of a {}"
        text = clip.embed_texts([thing.format(name[row["class_id"]])])[0]
        assert row["object_score"] == np.float32(embedding @ text.astype(np.float64))
        if row["shift"] in captions:
            text = clip.embed_texts([captions[row["shift"]]])[0]
            assert row["shift_score"] == np.float32(embedding @ text.astype(np.float64))
        assert (row["shift_score"] is None) == (row["shift"] == "base")


def test_paired_samples_share_their_noise_and_independent_ones_do_not(undisturbed: Path, tmp_path: Path) -> None:
    seeds = {row["key"]: row["seed"] for row in read_rows(undisturbed, columns=["key", "seed"])}
    assert seeds["base_00_000001"] == seeds["red_00_000001"] != seeds["red_00_000000"]
    one = "source.classes=[{id: '00', name: t-shirt, source_label: 0}]"
    tiny(tmp_path / "dataset", one, "samples.noise=independent", "samples.candidates=1")
    independent = {row["key"]: row["seed"] for row in read_rows(tmp_path / "dataset", columns=["key", "seed"])}
    assert len(set(independent.values())) == len(independent) == len(SHIFTS)
