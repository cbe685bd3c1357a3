"""Missing, truncated and unexpected files: all of them are named at once, each with what repairs
it."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from doctored import (
    KINDS,
    doctor,
    kind_of,
    named,
    one_of_each_kind,
    problem_of,
    receipt_with,
    with_stack,
)

import counterfoil
from counterfoil.data.hub import HubDataset
from counterfoil.dataset.closing import close_again
from counterfoil.dataset.verification import verify
from counterfoil.dataset.verification.problems import Repairs
from counterfoil.documents import document_bytes
from counterfoil.errors import RunFailure, UserError
from counterfoil.progress import Stage, listening
from counterfoil.store.reading import read_rows
from support.files import flipped
from support.refusals import refuses
from tiny_builds import images, published, run_command, tiny

BUILD = "counterfoil build --from {0} --out {0}"


def test_unexpected_files_are_to_be_moved_elsewhere(parquet: Path) -> None:
    strays = [
        "stray.txt",
        "data/base/test-00007-of-00002.parquet",
        "receipts/nowhere-00000.json",
        "tokens/x/y.bin",
    ]
    strays.append("data/a\n  Repair: rm -r b")  # a stranger's name makes no line of its own
    for path in strays:
        (parquet / path).parent.mkdir(parents=True, exist_ok=True)
        (parquet / path).write_bytes(b"{}")
    verification = verify(parquet)
    assert sorted(problem.path for problem in verification.problems) == sorted(strays)
    assert {problem.repair for problem in verification.problems} == {f"move it out of {parquet}"}
    assert all(str(problem).isprintable() for problem in verification.problems)


def test_a_file_that_is_a_link_to_nowhere_is_named(parquet: Path) -> None:
    (parquet / "thresholds.json").unlink()
    (parquet / "thresholds.json").symlink_to("gone.json")
    assert named(verify(parquet)) == {"thresholds.json"}


def test_everything_is_collected_and_what_must_be_restored_comes_first(parquet: Path) -> None:
    files = published(parquet)
    images = sorted(path for path in files if path.startswith("data/base/"))
    (parquet / "recipe.yaml").write_bytes(b"recipe: [")
    (parquet / images[0]).write_bytes(b"PAR1")
    (parquet / "README.md").unlink()
    (parquet / "figures/contact-sheet.webp").write_bytes(b"")
    (parquet / "stray").write_bytes(b"")
    (parquet / "receipts/base-00001.json").write_bytes(b"[")
    verification = verify(parquet)
    paths = [problem.path for problem in verification.problems]
    assert set(paths) == {
        "recipe.yaml", images[0], "README.md", "figures/contact-sheet.webp", "stray", "receipts/base-00001.json",
    }  # fmt: skip
    assert set(paths[: paths.index("README.md")]) == {"recipe.yaml", "stray"}
    assert [repair.split()[0] for repair in verification.by_repair()] == [
        "restore",
        "move",
        "counterfoil",
    ]
    # The images of every shard whose receipt is sound were decoded all the same.
    assert verification.images > 0


def test_images_are_decoded_where_the_recipe_is_gone(parquet: Path) -> None:
    receipt = receipt_with(parquet, "data")
    path = doctor(parquet, receipt, "data", _undecodable)
    (parquet / "recipe.yaml").unlink()
    verification = verify(parquet)
    (problem,) = problem_of(verification, path)
    assert "does not decode" in problem.what
    assert named(verification) == {path, "recipe.yaml"}


def _undecodable(rows: list[dict]) -> list[dict]:
    rows[1]["image"]["bytes"] = rows[1]["image"]["bytes"][:40]
    return rows


def test_a_build_that_was_not_finished_says_so(parquet: Path) -> None:
    (parquet / "manifest.json").unlink()
    (parquet / "README.md").unlink()
    receipt = receipt_with(parquet, "data")
    (parquet / receipt.path).unlink()
    verification = verify(parquet)
    assert named(verification) == {"manifest.json", receipt.path}
    assert problem_of(verification, "manifest.json")[0].code == "not-finished"


@pytest.mark.parametrize(
    "path", ["data/base/x.parquet", "recipe.yaml", "evaluation/results.json", "README.md"]
)
def test_published_copies_are_repaired_where_they_came_from(path: str) -> None:
    published_copy = Repairs(Path("/cache/it is"), HubDataset("user/name", "v1"))
    assert "publish it again" in published_copy.of(path) == published_copy.of_unexpected()
    assert "'/cache/it is'" in published_copy.of(path)


def test_paths_in_commands_are_quoted() -> None:
    repairs = Repairs(Path("my data"))
    assert repairs.of("README.md") == "counterfoil build --from 'my data' --out 'my data'"
    assert repairs.of_shard("receipts/a-00000.json").startswith(
        "rm 'my data/receipts/a-00000.json' && counterfoil"
    )
    assert repairs.of("evaluation/results.json") == "counterfoil evaluate 'my data' --into-card"


# Damage to any file is found, and that file and no other is named, with what repairs it.


@pytest.fixture(scope="module")
def copies(datasets: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return copies that every test leaves as they were."""
    folder = tmp_path_factory.mktemp("flips")
    return {
        kind: Path(shutil.copytree(datasets[kind], folder / kind))
        for kind in ("webdataset", "tokens")
    }


@pytest.mark.parametrize("kind", ["webdataset", "tokens"])
def test_a_missing_and_a_flipped_file_of_each_kind_is_named_with_its_repair(
    kind: str, copies: dict[str, Path]
) -> None:
    directory = copies[kind]
    chance = random.Random(kind)
    for path in one_of_each_kind(directory).values():
        content = (directory / path).read_bytes()
        (directory / path).unlink()
        without = verify(directory)
        damaged = flipped(content, chance.randrange(len(content)), chance.randrange(8))
        (directory / path).write_bytes(damaged)
        changed = verify(directory).problems
        (directory / path).write_bytes(content)
        (missing,) = without.problems
        assert missing.path == path and {problem.path for problem in changed} == {path}
        assert missing.code == ("not-finished" if path == "manifest.json" else "missing-file")
        unknown = "prompts were not compared with the plan" in "".join(without.notes)
        assert unknown == path.startswith("tokens/")
        if unknown or path in ("recipe.yaml", "lock.json", "thresholds.json"):
            assert missing.repair.startswith("restore it from a copy")
        else:
            assert missing.repair == BUILD.format(directory)
        if path != "manifest.json":
            assert any(problem.what.startswith("is changed: sha256") for problem in changed)
    assert verify(directory).whole


def test_each_kind_of_file_is_there_to_be_flipped(copies: dict[str, Path]) -> None:
    kinds = {kind_of(path) for directory in copies.values() for path in published(directory)}
    folders = {
        f"{what}/*.{suffix}"
        for what in ("data", "rejected", "candidates")
        for suffix in ("parquet", "tar")
    }
    alone = {
        "README.md",
        "recipe.yaml",
        "lock.json",
        "manifest.json",
        "thresholds.json",
        "_info.json",
    }
    assert folders | alone | {"receipts/*.json", "figures/*.webp", "tokens/*.safetensors"} <= kinds


@pytest.mark.parametrize(
    "name", ["recipe.yaml", "lock.json", "thresholds.json", "receipts/base-00000.json"]
)
def test_a_flipped_byte_is_no_traceback_even_where_no_manifest_tells(
    name: str, copies: dict[str, Path]
) -> None:
    """JSON and YAML readers stumble over each position differently."""
    directory = copies["tokens"]
    content = (directory / name).read_bytes()
    manifest = (directory / "manifest.json").read_bytes()
    (directory / "manifest.json").unlink()
    chance = random.Random(name)
    try:
        for _ in range(5):
            damaged = flipped(content, chance.randrange(len(content)), chance.randrange(8))
            (directory / name).write_bytes(damaged)
            problems = verify(directory).problems
            assert "manifest.json" in {problem.path for problem in problems}
    finally:
        (directory / name).write_bytes(content)
        (directory / "manifest.json").write_bytes(manifest)


def test_without_a_manifest_receipts_and_lock_tell_of_what_they_list(
    copies: dict[str, Path],
) -> None:
    directory = copies["tokens"]
    files = published(directory)
    (directory / "manifest.json").unlink()
    listed = [
        path
        for kind, path in one_of_each_kind(directory).items()
        if kind.endswith((".parquet", ".safetensors"))
    ]
    try:
        for path in listed:
            (directory / path).write_bytes(flipped(files[path], len(files[path]) // 2, 3))
            assert named(verify(directory)) == {"manifest.json", path}
            (directory / path).write_bytes(files[path])
        (directory / "data/stray.bin").write_bytes(b"")
        assert named(verify(directory)) == {
            "manifest.json",
            "data/stray.bin",
        }
    finally:
        (directory / "data/stray.bin").unlink()
        for path in (*listed, "manifest.json"):
            (directory / path).write_bytes(files[path])


def test_a_manifest_that_is_damaged_blames_no_other_file(copies: dict[str, Path]) -> None:
    directory = copies["tokens"]
    content = (directory / "manifest.json").read_bytes()
    document = json.loads(content)
    document["files"][0]["sha256"] = "0" * 64
    (directory / "manifest.json").write_bytes(document_bytes(document))
    verification = verify(directory)
    (directory / "manifest.json").write_bytes(content)
    assert [problem.path for problem in verification.problems] == ["manifest.json"]
    assert verification.manifest_sha256 is None
    assert any("manifest.json is missing or damaged" in note for note in verification.notes)


# A whole dataset has no problem, in either format, with tokens, quotas and open shifts; nothing is
# written.


@pytest.mark.parametrize("kind", KINDS)
def test_a_built_dataset_is_whole(kind: str, datasets: dict[str, Path]) -> None:
    directory = datasets[kind]
    before = published(directory)
    verification = counterfoil.verify(directory)
    assert verification.whole and verification.problems == () and verification.notes == ()
    assert published(directory) == before
    assert (verification.files, verification.bytes) == (
        len(before) - 1,
        sum(map(len, before.values())) - len(before["manifest.json"]),
    )
    assert verification.shards == len(list((directory / "receipts").iterdir()))
    assert (
        verification.candidates
        == sum(1 for _ in read_rows(directory, ["key"], what="candidates"))
        == 24
    )
    assert 0 < verification.images == len(images(directory))
    assert verification.manifest_sha256 == json.loads(before["manifest.json"])["sha256"]
    assert json.loads(json.dumps(verification.to_json()))["whole"] is True


MADE_OTHERWISE = {
    "tars, quota that is not met everywhere": (
        "samples=null", "samples={accepted: 3, at_most: 4, noise: independent}", "screen.object_threshold=0.27",
        "generator.batch_size=2", "output.format=webdataset", "prompts.shifts.red=null",
    ),
    "webp, saved smaller, open, groups of shifts, nothing accepted": (
        "output.image={format: webp}", "generator.saved_size=24", "screen.keep_rejected=true",
        "screen.shift_threshold={percentile: 30}", "prompts.shifts.red.group=looks",
        "prompts.shifts.in_the_snow.group=looks", "screen.object_threshold=1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("changes", MADE_OTHERWISE.values(), ids=MADE_OTHERWISE)
def test_datasets_of_every_kind_are_whole(changes: Sequence[str], tmp_path: Path) -> None:
    tiny(tmp_path / "dataset", *changes)
    verification = verify(tmp_path / "dataset")
    assert verification.problems == () and verification.notes == ()
    assert verification.images == len(images(tmp_path / "dataset"))


def test_what_is_reported_goes_forward_and_ends_with_everything_done(
    datasets: dict[str, Path],
) -> None:
    heard: list[Stage] = []
    with listening(heard.append):
        verification = verify(datasets["parquet"])
    files = heard[: verification.files]
    images = heard[verification.files :]
    assert files == [
        Stage("checking files", number, verification.files)
        for number in range(1, verification.files + 1)
    ]
    assert {(stage.name, stage.total) for stage in images} == {
        ("checking images", verification.images)
    }
    done = [stage.done for stage in images]
    assert done == sorted(set(done)) and len(done) > 1 and done[-1] == verification.images


def test_whoever_looks_and_fails_is_no_damage_of_the_dataset(datasets: dict[str, Path]) -> None:
    """Errors of an image reader are findings; errors of a listener are not."""

    def refuse(stage: Stage) -> None:
        if stage.name == "checking images":
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError), listening(refuse):
        verify(datasets["parquet"])


def test_a_copy_of_the_hub_is_verified_where_its_client_keeps_it(
    datasets: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the Hub's cache, a dataset is a folder of links to blobs."""
    repository = tmp_path / "hub/datasets--wardrobe--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs/main").write_text("c" * 40)
    for path, content in published(datasets["parquet"]).items():
        blob = repository / "blobs" / path.replace("/", "_")
        link = repository / "snapshots" / ("c" * 40) / path
        for target in (blob, link):
            target.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
        link.symlink_to(blob)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert verify("wardrobe/tiny@main").problems == ()
    (repository / "blobs/recipe.yaml").write_bytes(b"recipe: 1\n")
    (repository / "blobs/figures_contact-sheet.webp").unlink()
    verification = verify("wardrobe/tiny@main")
    assert named(verification) == {
        "recipe.yaml",
        "figures/contact-sheet.webp",
    }
    for problem in verification.problems:
        assert "publish it again" in problem.repair and "wardrobe/tiny" in problem.repair
    with pytest.raises(RunFailure, match="cannot be reached"):
        verify("wardrobe/other")


def test_other_stacks_are_noted_and_no_damage(parquet: Path) -> None:
    lock = (parquet / "lock.json").read_bytes()
    with_stack(parquet, dtype="bfloat16")
    (parquet / "lock.json").write_bytes(lock)
    (parquet / "manifest.json").unlink()
    close_again(parquet)
    verification = verify(parquet)
    assert verification.whole
    assert any(
        "8 shards were rendered with another stack" in note and "dtype" in note
        for note in verification.notes
    )


def test_where_there_is_no_dataset_nothing_is_verified(
    tmp_path: Path, datasets: dict[str, Path]
) -> None:
    with refuses("no-dataset", tmp_path):
        verify(tmp_path)
    with refuses("unknown-dataset", tmp_path / "nowhere"):
        verify(tmp_path / "nowhere")
    with pytest.raises(UserError, match="rerender is -1"):
        verify(datasets["parquet"], rerender=-1)
    shutil.copytree(datasets["parquet"] / "data", tmp_path / "data")
    with refuses("no-dataset", tmp_path):
        verify(tmp_path)


# `counterfoil verify` as people and scripts run it: exit codes, what goes to stdout, and no
# traceback.


def test_a_whole_dataset_exits_0_with_a_short_summary(datasets: dict[str, Path]) -> None:
    done = run_command(["verify", str(datasets["parquet"]), "--rerender", "2", "--device", "cpu"])
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.endswith(": identical bytes")] == lines[:2]
    assert "2 rows re-rendered on the original stack." in lines
    assert (
        f"{datasets['parquet']} is complete and undamaged: " in done.stdout
        and "8 shards, 24 candidates" in done.stdout
    )
    assert "files: " in done.stderr and "rendering: 2 done" in done.stderr


def test_a_damaged_dataset_exits_1_and_names_file_fault_and_repair(parquet: Path) -> None:
    (parquet / "README.md").write_text("---\n")
    (parquet / "recipe.yaml").unlink()
    done = run_command(["verify", str(parquet)])
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "recipe.yaml: is missing [missing-file]"
    assert f"  Repair: counterfoil build --from {parquet} --out {parquet}" in lines
    assert lines[-1].startswith(f"{parquet} is damaged: 2 files of ")
    assert "Note: rows were not compared with the plan" in done.stderr


def test_json_holds_every_problem(parquet: Path) -> None:
    (parquet / "stray").write_text("")
    done = run_command(["verify", str(parquet), "--json"])
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert document["whole"] is False and document["directory"] == str(parquet)
    assert document["problems"] == [
        {
            "path": "stray",
            "what": "is unexpected: the manifest does not list it",
            "repair": f"move it out of {parquet}",
            "code": "unexpected-file",
        }
    ]


def test_no_dataset_and_mistakes_exit_2(tmp_path: Path, datasets: dict[str, Path]) -> None:
    for words in (
        [str(tmp_path / "nowhere")],
        [str(datasets["parquet"]), "--rerender", "1", "--device", "abacus"],
    ):
        done = run_command(["verify", *words])
        assert (done.returncode, done.stdout) == (2, ""), words
        assert done.stderr.strip() and "Traceback" not in done.stderr
