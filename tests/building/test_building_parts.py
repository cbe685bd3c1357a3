"""`build --shards K/N`: parts made together or one after another, killed or not, are the bytes of
one build."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from garments import GARMENT_CLASSES, garment_folder

import warm
from counterfoil.building import build_dataset, inputs, workers
from counterfoil.building.build_dataset import PartResult, build
from counterfoil.dataset.verification import verify
from counterfoil.errors import UserError
from counterfoil.generate.screen.thresholds import Thresholds
from counterfoil.store.lock import read_lock
from counterfoil.store.reading import read_receipts
from tiny_builds import SHARDS, TINY, build_arguments, command, killed, published, run_command, tiny

# Two classes of a folder of one's own: thresholds are taken of four images each.
MEASURED = (GARMENT_CLASSES, "prompts.shifts.red=null", "prompts.shifts.pencil_sketch=null",
            "samples.candidates=1", "screen.object_threshold={percentile: 25}")  # fmt: skip
SMALL = ("prompts.shifts={in_the_snow: null, red: null, pencil_sketch: null}", "samples.candidates=1",
         "output={format: parquet, rows_per_shard: 1}")  # fmt: skip


def part(out: Path, shards: str | tuple[int, int], *changes: str, **options: Any) -> PartResult:
    return build(
        "wardrobe-mini",
        out,
        overrides=[*TINY, *changes],
        device="cpu",
        workers=1,
        shards=shards,
        **options,
    )


def test_two_commands_at_once_killed_and_run_again_are_one_build(
    undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "dataset"
    killed([*build_arguments(out), "--shards", "2/2"], out, shards=1)
    left = len(read_receipts(out))
    assert 1 <= left <= SHARDS // 2
    started = [
        command(*build_arguments(out), "--shards", f"{number}/2", "--json") for number in (1, 2)
    ]
    with warm.start(*started[0]) as first, warm.start(*started[1]) as second:
        outputs = [process.communicate() for process in (first, second)]
        assert [first.returncode, second.returncode] == [0, 0], outputs
    documents = [json.loads(output) for output, _ in outputs]
    assert [document["shards_made"] for document in documents] == [SHARDS // 2, SHARDS // 2 - left]
    assert max(document["all_done"] for document in documents) == SHARDS
    assert not (out / "manifest.json").exists()
    assert tiny(out).shards_made == 0
    assert published(out) == published(undisturbed)


def test_parts_one_after_another_and_a_build_that_makes_what_is_missing(
    undisturbed: Path, tmp_path: Path
) -> None:
    first = part(tmp_path, "1/3")
    third = part(tmp_path, (3, 3))
    assert [(made.shards, made.shards_made, made.all_done) for made in (first, third)] == [
        (3, 3, 3),
        (2, 2, 5),
    ]
    assert (third.all_shards, third.closed) == (SHARDS, False)
    again = part(tmp_path, "1/3")
    assert (again.shards_made, again.images_per_second) == (0, None)
    assert tiny(tmp_path).shards_made == 3
    assert published(tmp_path) == published(undisturbed)
    assert not verify(tmp_path).problems
    empty = part(tmp_path, "9/9")
    assert (empty.shards, empty.all_done, empty.closed) == (0, SHARDS, True)
    assert published(tmp_path) == published(undisturbed)


def test_the_command_tells_what_is_done_and_how_to_close(tmp_path: Path) -> None:
    arguments = build_arguments(tmp_path / "dataset", *SMALL)
    done = run_command([*arguments, "--shards", "3/3"])
    assert done.returncode == 0
    assert "Part 3/3: 1 of its 1 shard made in this run" in done.stdout
    assert "1 of 3 shards in all are done" in done.stdout
    assert "without --shards: it makes what is missing and completes the dataset" in done.stderr
    empty = run_command([*arguments, "--shards", "4/4"])
    assert (empty.returncode, "Part 4/4 is empty: the plan has 3 shards" in empty.stdout) == (
        0,
        True,
    )
    for wrong in ("3/2", "0/4", "a/b"):
        refused = run_command([*arguments, "--shards", wrong])
        assert (refused.returncode, f"found '{wrong}'" in refused.stderr) == (2, True)
    again = run_command(
        [
            "build",
            "--from",
            str(tmp_path / "dataset"),
            "--out",
            str(tmp_path / "b"),
            "--shards",
            "1/2",
        ]
    )
    assert (again.returncode, "--shards does not go with --from" in again.stderr) == (2, True)


def test_a_part_learns_no_tokens_and_says_what_does(tmp_path: Path) -> None:
    source = garment_folder(tmp_path / "garments", ("train",))
    out = tmp_path / "a dataset"
    learn = "tokens={path: null, learn: {steps: 1, size: 32}}"
    changes = [*TINY, *SMALL, GARMENT_CLASSES, f"source.dataset={source}", learn]
    with pytest.raises(UserError, match="which one part of a build cannot do") as refused:
        build("wardrobe-mini", out, overrides=changes, device="cpu", workers=1, shards="1/2")
    words = shlex.split((refused.value.hint or "").split("`")[1])
    assert words[:3] == ["counterfoil", "tokens", "wardrobe-mini"]
    learned = run_command([*words[1:], "--device", "cpu", "--workers", "1"])
    assert learned.returncode == 0, learned.stderr
    made = build("wardrobe-mini", out, overrides=changes, device="cpu", workers=1, shards="1/2")
    assert made.shards_made == 1
    names = {path.name for path in (out / "tokens").iterdir()}
    assert names == {"bag.safetensors", "sandal.safetensors", "manifest.json"}


def test_parts_that_begin_together_on_two_cpus_have_one_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Percentiles of the second part get another last digit while the first begins the
    directory."""
    source = garment_folder(tmp_path / "garments", ("validation",))
    out = tmp_path / "dataset"
    changes = (*MEASURED, f"source.dataset={source}")
    measure = inputs.thresholds_of
    counts = []

    def on_another_cpu(*arguments: Any) -> Thresholds:
        counts.append(len(arguments[1]))
        if len(counts) > 1:
            return measure(*arguments)
        thresholds = measure(*arguments)
        part(out, "1/2", *changes)
        document = thresholds.document()
        for entries in document["object"].values():
            for entry in entries.values():
                entry["value"] += 1e-7
        return Thresholds.read(json.dumps(document).encode())

    monkeypatch.setattr(inputs, "thresholds_of", on_another_cpu)
    assert part(out, "2/2", *changes).shards_made == 1
    assert counts[0] == 0
    assert counts[-1] > 0, "read from the directory, not measured again"
    monkeypatch.undo()
    assert tiny(out, *changes).shards_made == 0
    tiny(tmp_path / "alone", *changes)
    assert published(out) == published(tmp_path / "alone")


def test_other_inputs_are_refused_to_a_part_that_began_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Show the first part another image in the folder, which is no matter of digits."""
    source = garment_folder(tmp_path / "garments", ("validation",))
    out = tmp_path / "dataset"
    changes = (*MEASURED, f"source.dataset={source}")
    image, other = (source / "validation" / "bag" / name for name in ("0.png", "1.png"))
    measure = inputs.thresholds_of
    begun = []

    def meanwhile(*arguments: Any) -> Thresholds:
        if not begun:
            begun.append(True)
            content = image.read_bytes()
            image.write_bytes(other.read_bytes())
            part(out, "1/2", *changes)
            image.write_bytes(content)
        return measure(*arguments)

    monkeypatch.setattr(inputs, "thresholds_of", meanwhile)
    with pytest.raises(UserError, match="built from other inputs") as refused:
        part(out, "2/2", *changes)
    assert any("source.content" in line for line in refused.value.problems)
    assert {receipt.shard for receipt in read_receipts(out)} == {0}


def test_a_part_of_another_stack_is_refused_or_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = part(tmp_path, "1/2", *SMALL)
    assert first.shards_made == 2
    lock = read_lock(tmp_path)
    assert lock is not None
    other = {**lock.stack, "versions": {**lock.stack["versions"], "torch": "1.0.0"}}
    for module, name in ((build_dataset, "stack_where_done"), (workers, "rendering_stack")):
        monkeypatch.setattr(module, name, lambda *_, **__: other)
    with pytest.raises(UserError, match="another stack") as refused:
        part(tmp_path, "2/2", *SMALL)
    assert any(line.strip().startswith("versions.torch:") for line in refused.value.problems)
    part(tmp_path, "2/2", *SMALL, allow_mixed=True)
    assert [receipt.stack["versions"]["torch"] for receipt in read_receipts(tmp_path)][1] == "1.0.0"
    monkeypatch.undo()
    tiny(tmp_path, *SMALL)
    assert "1.0.0" in (tmp_path / "README.md").read_text()
