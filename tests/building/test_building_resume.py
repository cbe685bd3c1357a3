"""Resuming: only what is missing is made again, with the same bytes, and nothing else is ever mixed
in."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from garments import GARMENT_CLASSES, garment_folder
from PIL import Image

import warm
from counterfoil.building import shard as shard_making
from counterfoil.building.shard import Made, ShardMaker
from counterfoil.errors import UserError
from counterfoil.generate.pictures import DrawnAhead, ImageRenderer, encode_image, encoding_threads
from counterfoil.generate.screen.scores import Scorer
from counterfoil.generate.screen.thresholds import Thresholds
from counterfoil.models.clip import load_clip
from counterfoil.plan.layout import Plan, Sample, make_plan
from counterfoil.progress import listening
from counterfoil.recipe import load_recipe
from counterfoil.store.manifest import verify_files
from counterfoil.store.reading import read_receipts, read_rows
from counterfoil.store.rows import Candidate
from tiny_builds import SHARDS, SHIFTS, TINY, build_arguments, command, images, published, tiny


@pytest.fixture
def copy(undisturbed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(undisturbed, tmp_path / "copy"))


def _times(directory: Path) -> dict[str, int]:
    return {path: (directory / path).stat().st_mtime_ns for path in published(directory)}


def test_only_missing_shards_are_made_again(copy: Path, undisturbed: Path) -> None:
    before = _times(copy)
    (copy / "receipts" / "red-00001.json").unlink()
    (copy / "receipts" / "base-00000.json").unlink()
    (copy / "data" / "base" / "test-00000-of-00002.parquet").unlink()
    result = tiny(copy)
    assert (result.shards_made, result.shards, result.images_made) == (2, SHARDS, 6)
    assert published(copy) == published(undisturbed)
    after = _times(copy)
    untouched = {
        p
        for p in before
        if p.startswith(("data/", "candidates/", "receipts/")) and before[p] == after[p]
    }
    assert len(untouched) == 3 * (SHARDS - 2)


def test_nothing_pending_renders_nothing_and_changes_nothing(copy: Path, undisturbed: Path) -> None:
    heard = []
    with listening(heard.append):
        result = tiny(copy)
    assert (result.shards_made, result.images_made, result.images_per_second) == (0, 0, None)
    assert heard == []
    assert published(copy) == published(undisturbed)


def test_another_recipe_is_refused_with_its_difference(copy: Path) -> None:
    (copy / "receipts" / "red-00001.json").unlink()
    before = published(copy)
    with pytest.raises(UserError) as refused:
        tiny(copy, "samples.seed=1")
    assert refused.value.exit_code == 2
    assert "samples.seed" in "\n".join(refused.value.problems)
    assert published(copy) == before


def test_what_changes_no_byte_of_an_image_is_accepted(copy: Path, undisturbed: Path) -> None:
    changes = ["description=Other words.", "evaluate.models=[lab:resnet10t]", "license=cc0-1.0"]
    result = tiny(copy, *changes)
    assert result.images_made == 0
    before = published(undisturbed)
    after = published(copy)
    assert {path for path in before if before[path] != after[path]} == {
        "README.md",
        "croissant.json",
        "recipe.yaml",
        "manifest.json",
    }
    assert b"Other words." in after["README.md"]


def _other_stack(directory: Path) -> None:
    """Rewrite the lock and the receipts as if an earlier version of torch had made the shards."""
    for path in [directory / "lock.json", *(directory / "receipts").iterdir()]:
        document = json.loads(path.read_text())
        document["stack"]["versions"]["torch"] = "1.0.0"
        path.write_text(json.dumps(document))


def test_another_stack_is_refused_unless_mixing_is_allowed(copy: Path, undisturbed: Path) -> None:
    (copy / "receipts" / "red-00001.json").unlink()
    _other_stack(copy)
    before = published(copy)
    with pytest.raises(UserError) as refused:
        tiny(copy)
    message = "\n".join([*refused.value.problems, refused.value.hint or ""])
    assert "versions.torch" in message
    assert "1.0.0" in message
    assert "--allow-mixed" in message
    assert published(copy) == before
    tiny(copy, allow_mixed=True)
    torches = {receipt.stack["versions"]["torch"] for receipt in read_receipts(copy)}
    assert len(torches) == 2
    assert "1.0.0" in torches
    assert "Mixed stacks" in (copy / "README.md").read_text()
    assert "Mixed stacks" not in (undisturbed / "README.md").read_text()


def test_thresholds_are_not_computed_again_and_the_input_dataset_may_be_gone(
    tmp_path: Path,
) -> None:
    source = garment_folder(tmp_path / "garments", ("validation",))
    changes = [
        f"source.dataset={source}",
        GARMENT_CLASSES,
        "prompts.shifts.red=null", "prompts.shifts.in_the_snow=null",
        "samples.candidates=1", "screen.object_threshold={percentile: 25}",
    ]  # fmt: skip
    out = tmp_path / "dataset"
    tiny(out, *changes)
    before = published(out)
    thresholds = json.loads(before["thresholds.json"])["object"]
    assert {entry["n"] for shift in thresholds.values() for entry in shift.values()} == {4}
    shutil.rmtree(source)
    (out / "receipts" / "base-00000.json").unlink()
    assert tiny(out, *changes).shards_made == 1
    assert published(out) == before
    with pytest.raises(UserError):
        tiny(tmp_path / "other", *changes)


# Same bytes: however many workers, whatever else is in the recipe, a sample's image is the same.


def test_a_build_is_whole(undisturbed: Path) -> None:
    assert verify_files(undisturbed) == []
    keys = [row["key"] for row in read_rows(undisturbed, columns=["key"])]
    expected = [
        f"{shift}_{cls}_{i:06d}" for shift in SHIFTS for cls in ("00", "05", "08") for i in range(2)
    ]
    assert keys == expected
    assert [
        row["key"] for row in read_rows(undisturbed, columns=["key"], what="candidates")
    ] == expected
    assert len(read_receipts(undisturbed)) == SHARDS
    for content in images(undisturbed).values():
        with Image.open(io.BytesIO(content)) as picture:
            assert (picture.size, picture.mode, picture.format) == ((32, 32), "RGB", "PNG")
    assert len(set(images(undisturbed).values())) == len(keys)


def test_nothing_published_tells_where_it_was_made(undisturbed: Path) -> None:
    for path, content in published(undisturbed).items():
        assert str(undisturbed).encode() not in content, path


def test_other_cells_leave_every_image_as_it_was(undisturbed: Path, tmp_path: Path) -> None:
    """Fewer classes, a shift more and shards of another size: cells meet in other batches, and full
    batches become short."""
    tiny(
        tmp_path / "dataset",
        "source.classes=[{id: '08', name: bag, source_label: 8}, {id: '00', name: t-shirt,"
        " source_label: 0}]",
        "prompts.shifts.at_dusk={prompt: 'a photo of a {class} at dusk'}",
        "output.rows_per_shard=2",
    )
    before = images(undisturbed)
    after = images(tmp_path / "dataset")
    shared = before.keys() & after.keys()
    assert (len(shared), len(before), len(after)) == (16, 24, 20)
    assert all(before[key] == after[key] for key in shared)


def test_rejected_images_are_kept_apart(
    undisturbed: Path, screened: Path, half_threshold: float
) -> None:
    rows = list(read_rows(screened, what="candidates"))
    reasons = {row["key"]: row["reason"] for row in rows}
    assert {row["key"]: row["object_score"] >= half_threshold for row in rows} == {
        key: reason == "accepted" for key, reason in reasons.items()
    }
    assert set(reasons.values()) == {"accepted", "low_object"}
    accepted = {row["key"] for row in read_rows(screened, columns=["key"])}
    rejected = {row["key"] for row in read_rows(screened, columns=["key"], what="rejected")}
    assert accepted == {key for key, reason in reasons.items() if reason == "accepted"}
    assert rejected == reasons.keys() - accepted
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
        caption = "a {}" if row["shift"] == "pencil_sketch" else "a photo of a {}"
        text = clip.embed_texts([caption.format(name[row["class_id"]])])[0]
        assert row["object_score"] == np.float32(embedding @ text.astype(np.float64))
        if row["shift"] in captions:
            text = clip.embed_texts([captions[row["shift"]]])[0]
            assert row["shift_score"] == np.float32(embedding @ text.astype(np.float64))
        assert (row["shift_score"] is None) == (row["shift"] == "base")


# The real command, ended by SIGKILL or Ctrl-C at several moments, goes on to the bytes of an
# undisturbed run.


if sys.platform == "win32":
    pytest.skip("needs POSIX signals", allow_module_level=True)

PATIENCE = 600.0  # seconds; generous, since the machines that run these are busy ones


@contextmanager
def running_build(out: Path) -> Iterator[warm.Running]:
    """Run the command with two workers, in a process group of its own."""
    words, environment = command(*build_arguments(out, workers=2))
    with warm.start(words, environment, start_new_session=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


class DoneBefore(Exception):
    """The build was done before what was waited for."""


def wait_for(condition: Callable[[], bool], process: warm.Running | None = None) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        if process is not None and process.poll() is not None:
            message = (
                f"the build ended by itself with {process.returncode}: {process.communicate()[1]}"
            )
            assert process.returncode == 0, message
            raise DoneBefore(message)
        time.sleep(0.02)


def shards_done(out: Path) -> int:
    return len(list((out / "receipts").glob("*.json"))) if (out / "receipts").is_dir() else 0


def workers_of(process: warm.Running) -> list[psutil.Process]:
    """Return worker processes, which are forked from a child of the build."""
    # Once a look; `children` reads it for each process.
    parents = psutil._psplatform.ppid_map()  # pyrefly: ignore[missing-attribute]
    numbers = [number for number in parents if parents.get(parents[number]) == process.pid]
    try:
        return [psutil.Process(number) for number in numbers]
    except psutil.Error:
        return []


def ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_killed_builds_go_on_to_the_same_bytes(undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    done_at_kills = []
    # While workers load; amid the first shards; and amid the later ones.
    for least in (0, 2, 4):
        shards_at_start = shards_done(out)
        with running_build(out) as process:
            try:
                wait_for(
                    lambda: len(workers_of(process)) == 2 and (out / "lock.json").exists(), process
                )
                wait_for(lambda at=least: shards_done(out) >= at, process)
            except DoneBefore:  # of so few shards one worker may make all, and then none is started
                assert SHARDS - shards_at_start < 4
                break
            workers = workers_of(process)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            wait_for(lambda ws=workers: all(ended(worker) for worker in ws))
            assert "Traceback" not in process.communicate()[1]
        done_at_kills.append(shards_done(out))
        assert not (out / "README.md").exists()
        assert not (out / "manifest.json").exists()
    assert len(done_at_kills) >= 2 and done_at_kills[1] >= 2
    assert done_at_kills == sorted(done_at_kills), "a finished shard is never lost"
    left = SHARDS - shards_done(out)
    assert tiny(out).shards_made == left
    assert published(out) == published(undisturbed)
    assert not list(out.rglob("*.tmp"))


def test_a_signal_says_so_and_keeps_what_is_done(undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    # While workers start, when Python itself would answer with a traceback; and amid the work.
    for least, number, code in (
        (0, signal.SIGINT, 130),
        (2, signal.SIGINT, 130),
        (3, signal.SIGTERM, 143),
    ):
        with running_build(out) as process:
            wait_for(lambda: len(workers_of(process)) == 2, process)
            wait_for(lambda at=least: shards_done(out) >= at, process)
            workers = workers_of(process)
            os.killpg(process.pid, number)
            _, errors = process.communicate(timeout=PATIENCE)
            assert process.returncode == code, errors
            assert "Traceback" not in errors
            assert "KeyboardInterrupt" not in errors
            assert "Run the same command again" in errors
            wait_for(lambda ws=workers: all(ended(worker) for worker in ws))
        assert not (out / "README.md").exists()
    assert 3 <= shards_done(out) <= SHARDS
    tiny(out)
    assert published(out) == published(undisturbed)
    assert not list(out.rglob("*.tmp"))


def test_a_second_build_is_refused_while_one_runs(tmp_path: Path) -> None:
    from counterfoil.errors import UserError

    out = tmp_path / "dataset"
    with running_build(out) as process:
        wait_for(
            lambda: (out / ".counterfoil" / "lock.pid").exists() and (out / "lock.json").exists(),
            process,
        )
        with pytest.raises(UserError, match=f"in use by another process.*{process.pid}"):
            tiny(out)
        os.kill(process.pid, signal.SIGKILL)


def test_a_build_goes_on_without_a_killed_worker_to_the_same_bytes(
    undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "dataset"
    with running_build(out) as process:
        wait_for(lambda: len(workers_of(process)) == 2, process)
        worker = workers_of(process)[0]
        # so that it surely has a shard when it dies; one that goes on may just have handed it in
        worker.suspend()
        wait_for(lambda: shards_done(out) >= 1, process)
        worker.kill()
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors
        assert "was ended by SIGKILL" in errors
    assert published(out) == published(undisturbed)
    assert not list(out.rglob("*.tmp"))


# However many threads encode, a shard has the same rows and the same bytes.


class Noise(ImageRenderer):
    """DrawnAhead of each sample's own noise; one of every batch is None."""

    def ahead(self, samples: Sequence[Sample]) -> DrawnAhead:
        drawn: list[Any] = [
            np.random.default_rng(sample.seed).integers(0, 256, (32, 32, 3), dtype=np.uint8)
            for sample in samples
        ]
        return lambda: [None, *drawn[1:]]


def _made(plan: Plan, scorer: Scorer, encoders: int) -> list[Candidate]:
    entries = {
        shift.name: {
            cls.id: {"value": -1.0, "percentile": None, "n": 0, "source": "x"}
            for cls in plan.recipe.classes
        }
        for shift in plan.recipe.all_shifts()
    }
    maker = ShardMaker(plan, Noise(), scorer, Thresholds(entries, entries), encoders=encoders)
    try:
        shards = [event for event in maker.make([plan.shards[0]]) if isinstance(event, Made)]
        return [candidate for shard in shards for candidate in shard.candidates]
    finally:
        maker.close()


def test_threads_that_encode_change_no_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(load_recipe("wardrobe-mini", list(TINY)))
    scorer = Scorer(load_clip("lab:clip"), plan)
    names: set[str] = set()

    def watched(*arguments: Any) -> bytes:
        names.add(threading.current_thread().name)
        return encode_image(*arguments)

    monkeypatch.setattr(shard_making, "encode_image", watched)
    alone = _made(plan, scorer, 1)
    assert {name.partition("_")[0] for name in names} == {"screen"}
    names.clear()
    together = _made(plan, scorer, 3)
    assert {name.partition("_")[0] for name in names} == {"encode"}
    assert [candidate.image is None for candidate in alone] == [True, False, False, False]
    assert together == alone


def test_a_cpu_worker_encodes_alone() -> None:
    assert encoding_threads("cpu") == 1
