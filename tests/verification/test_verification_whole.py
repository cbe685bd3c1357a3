"""A whole dataset has no problem, in either format, with tokens, quotas and open shifts; nothing is written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from doctored import KINDS, with_stack

import counterfoil
from counterfoil.building.closing import close_again
from counterfoil.errors import RunFailure, UserError
from counterfoil.progress import Stage, listening
from counterfoil.store.reading import read_rows
from counterfoil.verification import verify
from tiny_builds import images, published, tiny


@pytest.mark.parametrize("kind", KINDS)
def test_a_built_dataset_is_whole(kind: str, datasets: dict[str, Path]) -> None:
    directory = datasets[kind]
    before = published(directory)
    found = counterfoil.verify(directory)
    assert found.whole and found.problems == () and found.notes == ()
    assert published(directory) == before
    assert (found.files, found.bytes) == (
        len(before) - 1,
        sum(map(len, before.values())) - len(before["manifest.json"]),
    )
    assert found.shards == len(list((directory / "receipts").iterdir()))
    assert found.candidates == sum(1 for _ in read_rows(directory, ["key"], what="candidates")) == 24
    assert 0 < found.images == len(images(directory))
    assert found.manifest_sha256 == json.loads(before["manifest.json"])["sha256"]
    assert json.loads(json.dumps(found.to_json()))["whole"] is True


MADE_OTHERWISE = {
    "quota": ("samples=null", "samples={accepted: 1, at_most: 6, seed: 0}", "generator.batch_size=2"),
    "quota that is not met": ("samples=null", "samples={accepted: 3, at_most: 4}", "screen.object_threshold=0.27"),
    "open": ("screen.shift_threshold={percentile: 30}",),
    "nothing accepted": ("screen.object_threshold=1",),
    "webp, saved smaller": ("output.image={format: webp}", "generator.saved_size=24", "screen.keep_rejected=true"),
    "independent noise, tars": ("samples.noise=independent", "output.format=webdataset"),
    "groups of shifts": ("prompts.shifts.red.group=looks", "prompts.shifts.in_the_snow.group=looks"),
}


@pytest.mark.parametrize("changes", MADE_OTHERWISE.values(), ids=MADE_OTHERWISE)
def test_datasets_of_every_kind_are_whole(changes: Sequence[str], tmp_path: Path) -> None:
    tiny(tmp_path / "dataset", *changes)
    found = verify(tmp_path / "dataset")
    assert found.problems == () and found.notes == ()
    assert found.images == len(images(tmp_path / "dataset"))


def test_what_is_told_goes_forward_and_ends_with_everything_done(datasets: dict[str, Path]) -> None:
    heard: list[Stage] = []
    with listening(heard.append):
        found = verify(datasets["parquet"])
    files, images = heard[: found.files], heard[found.files :]
    assert files == [Stage("files", number, found.files) for number in range(1, found.files + 1)]
    assert {(stage.name, stage.total) for stage in images} == {("images", found.images)}
    done = [stage.done for stage in images]
    assert done == sorted(set(done)) and len(done) > 1 and done[-1] == found.images


def test_whoever_looks_and_fails_is_no_damage_of_the_dataset(datasets: dict[str, Path]) -> None:
    """What a reader of images raises is a finding; what the reader of the progress raises is not."""

    def refuse(stage: Stage) -> None:
        if stage.name == "images":
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError), listening(refuse):
        verify(datasets["parquet"])


def test_a_copy_of_the_hub_is_verified_where_its_client_keeps_it(
    datasets: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the Hub's client leaves it: a folder of links to blobs."""
    repository = tmp_path / "hub/datasets--wardrobe--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs/main").write_text("c" * 40)
    for path, content in published(datasets["parquet"]).items():
        blob, link = repository / "blobs" / path.replace("/", "_"), repository / "snapshots" / ("c" * 40) / path
        for place in (blob, link):
            place.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
        link.symlink_to(blob)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert verify("wardrobe/tiny@main").problems == ()
    (repository / "blobs/recipe.yaml").write_bytes(b"recipe: 1\n")
    (repository / "blobs/figures_contact-sheet.webp").unlink()
    found = verify("wardrobe/tiny@main")
    assert {problem.path for problem in found.problems} == {"recipe.yaml", "figures/contact-sheet.webp"}
    for problem in found.problems:
        assert "publish it again" in problem.repair and "wardrobe/tiny" in problem.repair
    with pytest.raises(RunFailure, match="cannot be reached"):
        verify("wardrobe/other")


def test_other_stacks_are_noted_and_no_damage(parquet: Path) -> None:
    lock = (parquet / "lock.json").read_bytes()
    with_stack(parquet, dtype="bfloat16")
    (parquet / "lock.json").write_bytes(lock)
    (parquet / "manifest.json").unlink()
    close_again(parquet)
    found = verify(parquet)
    assert found.whole
    assert any("8 shards were rendered by another stack" in note and "dtype" in note for note in found.notes)


def test_where_there_is_no_dataset_nothing_is_verified(tmp_path: Path, datasets: dict[str, Path]) -> None:
    with pytest.raises(UserError, match="not a Counterfoil dataset"):
        verify(tmp_path)
    with pytest.raises(UserError, match="there is no dataset"):
        verify(tmp_path / "nowhere")
    with pytest.raises(UserError, match="found -1"):
        verify(datasets["parquet"], rerender=-1)
    shutil.copytree(datasets["parquet"] / "data", tmp_path / "data")
    with pytest.raises(UserError, match="not a Counterfoil dataset"):
        verify(tmp_path)
