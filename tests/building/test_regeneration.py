"""A dataset made again from its own description is byte-identical; differences are reported, or
refused."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from forged_datasets import brighter, with_candidates, with_torch
from garments import GARMENT_CLASSES, garment_folder
from huggingface_hub import CommitOperationAdd, CommitOperationDelete

import counterfoil
import warm
from counterfoil.building.build_dataset import BuildProgress
from counterfoil.building.regenerate_dataset import Regeneration, regenerate
from counterfoil.errors import RunFailure, UserError
from counterfoil.progress import listening
from counterfoil.store.manifest import verify_files, write_manifest
from counterfoil.store.reading import read_receipts, read_rows
from counterfoil.store.replacement import replacement_folder
from counterfoil.store.rows import Candidate
from loopback_hub import LoopbackHub, client, client_environment
from miniature_pipelines import stable_diffusion_1
from shared_datasets import Once
from support.files import flip
from tiny_builds import SHARDS, command, published, run_command, tiny

# Together: both formats, both kinds of cells, kept and dropped rejects, tokens, embeddings,
# measured thresholds.
CASES = {
    "parquet": (
        "generator.size=null", "generator.steps=2",
        "tokens={learn: {steps: 1, classes_in_flight: 2}}",
        "screen.object_threshold=null", "screen.object_threshold={percentile: 50}", "screen.keep_rejected=true",
        "prompts.shifts.red=null", "prompts.shifts.in_the_snow.threshold={percentile: 30}",
    ),
    "webdataset": (
        "samples=null", "samples={accepted: 1, at_most: 4, seed: 3}", "generator.batch_size=2", "generator.steps=2",
        "output={format: webdataset, rows_per_shard: 4}", "screen.store_embeddings=false",
        "screen.object_threshold=null", "screen.object_threshold={percentile: 75}",
        "prompts.shifts.red=null", "prompts.shifts.in_the_snow=null",
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=CASES)
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a dataset and remove its input dataset. Read only."""
    root = tmp_path_factory.mktemp(request.param)
    garments = garment_folder(root / "garments")
    tiny(root / "dataset", f"source.dataset={garments}", GARMENT_CLASSES, *CASES[request.param])
    shutil.rmtree(garments)
    return root / "dataset"


@pytest.fixture(scope="module")
def few(once_a_run: Once) -> Path:
    """Build two classes under one shift, a shard each. Read only."""
    two = (
        "source.classes=[{id: '00', name: t-shirt, source_label: 0}, {id: '05', name: sandal,"
        " source_label: 5}]"
    )
    changes = (two, "prompts.shifts.in_the_snow=null", "prompts.shifts.pencil_sketch=null")
    return once_a_run("two_classes", lambda out: tiny(out, *changes))


@pytest.fixture
def copy(few: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(few, tmp_path / "copy"))


def again(
    source: Path, out: Path, *overrides: str, workers: int = 1
) -> counterfoil.building.regenerate_dataset.Regeneration:
    return counterfoil.regenerate(source, out, overrides=overrides, device="cpu", workers=workers)


def test_the_same_directory_comes_out_without_the_input_dataset(
    original: Path, tmp_path: Path
) -> None:
    before = published(original)
    reasons = {row["reason"] for row in read_rows(original, columns=["reason"], what="candidates")}
    assert {"accepted", "low_object"} <= reasons, "the case must keep some and drop some"
    heard: list[BuildProgress] = []
    with listening(heard.append):
        result = again(original, tmp_path / "again", workers=2)
    assert (heard[0].shards_done, heard[-1].shards_done, heard[-1].shards) == (
        0,
        result.shards,
        result.shards,
    )
    assert published(tmp_path / "again") == before == published(original)
    assert verify_files(tmp_path / "again") == []
    assert (result.shards_made, result.repaired) == (result.shards, False)
    comparison = result.comparison
    assert comparison is not None
    assert comparison.identical
    assert (comparison.stack, comparison.left_out, comparison.rows) == ((), (), None)
    assert comparison.shard_files == sum(
        path.startswith(("data/", "candidates/", "rejected/")) for path in before
    )


def test_another_stack_is_reported_and_its_rows_are_compared(copy: Path, tmp_path: Path) -> None:
    with_torch(copy, "1.0.0")
    dark = "red_00_000001"

    def change(candidate: Candidate) -> Candidate:
        if candidate.sample.key == "red_00_000000":
            return replace(candidate, reason="low_shift")
        if candidate.sample.key == dark:
            assert candidate.image is not None
            return replace(candidate, image=brighter(candidate.image, 16))
        return candidate

    with_candidates(copy, "red", 0, change)
    comparison = again(copy, tmp_path / "again").comparison
    assert comparison is not None
    assert comparison.differing == (
        "candidates/red/test-00000-of-00001.parquet", "data/red/test-00000-of-00001.parquet",
    )  # fmt: skip
    assert comparison.unexplained == ()
    assert [line.partition(" ")[0] for line in comparison.stack] == ["versions.torch:"]
    assert {"lock.json", "receipts/base-00000.json"} <= set(comparison.others)
    assert {"recipe.yaml", "thresholds.json"}.isdisjoint(comparison.others)
    rows = comparison.rows
    assert rows is not None
    # Of four candidates one was not kept there; of the others one differs by 16 levels in one of 32
    # × 32 × 3 values.
    assert (rows.rows, rows.same_bytes, rows.same_pixels, rows.decisions) == (3, 2, 0, 1)
    assert rows.least_psnr == pytest.approx(10 * math.log10(255**2 / (16**2 / (32 * 32 * 3))))
    assert [(c.key, c.there, c.here) for c in rows.changed] == [
        ("red_00_000000", "low_shift", "accepted")
    ]


def test_other_files_on_the_same_stack_end_with_1(copy: Path, tmp_path: Path) -> None:
    def change(candidate: Candidate) -> Candidate:
        assert candidate.image is not None
        return replace(candidate, image=brighter(candidate.image, 1))

    with_candidates(copy, "base", 0, change)
    run = run_command(
        ["build", "--from", str(copy), "--out", str(tmp_path / "again"), "--workers", "1", "--json"]
    )
    assert run.returncode == 1, run.stderr
    compared = json.loads(run.stdout)["comparison"]
    assert compared["identical"] is False
    assert compared["differing"] == ["data/base/test-00000-of-00001.parquet"]
    assert set(compared["unexplained"]) >= set(compared["differing"])
    assert (
        compared["rows"]["rows"],
        compared["rows"]["same_bytes"],
        compared["rows"]["decisions"],
    ) == (4, 0, 0)


def test_a_card_in_the_words_of_another_version_differs_and_is_no_failure(
    copy: Path, tmp_path: Path
) -> None:
    card = copy / "README.md"
    card.write_text(card.read_text().replace(counterfoil.__version__, "0.1.0"))
    write_manifest(copy, {})
    result = regenerate(copy, tmp_path / "again", device="cpu", workers=1)
    assert result.comparison is not None
    assert (result.comparison.differing, result.comparison.others) == ((), ("README.md",))
    assert result.comparison.unexplained == result.comparison.stack == ()


def test_what_a_build_does_not_write_is_left_out(copy: Path, few: Path, tmp_path: Path) -> None:
    (copy / "evaluation").mkdir()
    (copy / "evaluation" / "results.json").write_text("{}")
    (copy / "NOTES.txt").write_text("mine")
    (copy / "eval.yaml").write_text("name: mine")
    (copy / "README.md").write_text("with results")
    write_manifest(copy, {})
    run = run_command(
        ["build", "--from", str(copy), "--out", str(tmp_path / "again"), "--workers", "1"]
    )
    assert run.returncode == 0, run.stderr
    assert (
        "Identical to the original" in run.stdout
        and "and all other files that can be compared." in run.stdout
    )
    for path in ("NOTES.txt", "README.md", "eval.yaml", "evaluation/results.json"):
        assert f"  {path}\n" in run.stdout
    assert published(tmp_path / "again") == published(few)


def test_words_of_the_card_may_change_and_nothing_else(copy: Path, tmp_path: Path) -> None:
    for override, message in (
        ("generator.steps=3", "generator.steps: 1 there, 3 here"),
        ("screen.object_threshold=0.3", "object_threshold"),
        ("source.dataset=elsewhere/garments", "source.dataset"),
        ("tokens.path=./tokens", "tokens"),
    ):
        with pytest.raises(UserError) as refused:
            again(copy, tmp_path / "again", override)
        assert message in "\n".join(refused.value.problems)
        assert "counterfoil build" in (refused.value.hint or "")
    assert not (tmp_path / "again").exists()
    comparison = again(copy, tmp_path / "again", "license=cc0-1.0").comparison
    assert comparison is not None
    assert comparison.identical
    assert {"README.md", "recipe.yaml"} <= set(comparison.left_out)
    assert b"cc0-1.0" in (tmp_path / "again" / "recipe.yaml").read_bytes()


@pytest.mark.parametrize("manifest", [True, False], ids=["with manifest", "without"])
@pytest.mark.parametrize(
    "name", ["recipe.yaml", "lock.json", "thresholds.json", "tokens/bag.safetensors"]
)
@pytest.mark.parametrize("original", ["parquet"], indirect=True)
def test_what_cannot_be_made_again_is_named_and_nothing_is_touched(
    original: Path, name: str, manifest: bool, tmp_path: Path
) -> None:
    """Change the file where the manifest shows it, and remove it where there is no manifest."""
    copy = Path(shutil.copytree(original, tmp_path / "copy"))
    if manifest:
        flip(copy / name)
    else:
        (copy / name).unlink()
        (copy / "manifest.json").unlink()
    before = published(copy)
    for out in (copy, tmp_path / "again"):
        with pytest.raises((RunFailure, UserError)) as refused:
            again(copy, out)
        assert name in str(refused.value)
    assert published(copy) == before
    assert not (tmp_path / "again").exists()


def test_words_of_the_recipe_are_proved_by_the_manifest(copy: Path, tmp_path: Path) -> None:
    with (copy / "recipe.yaml").open("a") as file:
        file.write("# mine\n")
    with pytest.raises(
        RunFailure, match=r"recipe\.yaml: does not match its entry in manifest\.json"
    ):
        again(copy, tmp_path / "again")


def test_a_generator_in_a_folder_is_found_where_it_lies_now_and_must_be_the_same(
    tmp_path: Path,
) -> None:
    torch.manual_seed(3)
    stable_diffusion_1().save_pretrained(str(tmp_path / "here" / "mine"))
    bag = "source.classes=[{id: bag, name: bag, source_label: 8}]"
    shifts = ("prompts.shifts.in_the_snow=null", "prompts.shifts.red=null")
    tiny(
        tmp_path / "dataset",
        bag,
        *shifts,
        f"generator.model=local-dir:{tmp_path / 'here' / 'mine'}",
    )
    moved = tmp_path / "there" / "mine"
    moved.parent.mkdir()
    shutil.move(tmp_path / "here" / "mine", moved)
    with pytest.raises(UserError, match=r"--set generator\.model=local-dir:/PATH/mine"):
        again(tmp_path / "dataset", tmp_path / "again")
    where = f"generator.model=local-dir:{moved}"
    renamed = Path(shutil.copytree(moved, tmp_path / "there" / "other"))
    with pytest.raises(UserError, match=r"local-dir:\./mine.* there, .*local-dir:\./other"):
        again(tmp_path / "dataset", tmp_path / "again", f"generator.model=local-dir:{renamed}")
    comparison = again(tmp_path / "dataset", tmp_path / "again", where).comparison
    assert comparison is not None
    assert comparison.identical
    assert published(tmp_path / "again") == published(tmp_path / "dataset")
    weights = moved / "unet" / "diffusion_pytorch_model.safetensors"
    flip(weights)
    with pytest.raises(
        UserError,
        match=r"generator.model: .* is not the one that lock.json pins: found sha256 \w{64},"
        r" expected sha256 \w{64}",
    ):
        again(tmp_path / "dataset", tmp_path / "third", where)
    assert not (tmp_path / "third").exists()


def test_a_half_done_recut_is_settled_first(copy: Path, few: Path, tmp_path: Path) -> None:
    # Decided, and killed when the proofs were out: `new` is the dataset.
    new = replacement_folder(copy)
    shutil.copytree(few, new, ignore=shutil.ignore_patterns(".counterfoil"))
    names = sorted(path.name for path in new.iterdir())
    (new.parent / "swap.json").write_text(json.dumps({"new": names, "gone": []}))
    shutil.rmtree(copy / "receipts")
    (copy / "manifest.json").unlink()
    (copy / "data" / "red" / "test-00000-of-00001.parquet").unlink()
    comparison = again(copy, tmp_path / "again").comparison
    assert comparison is not None
    assert comparison.identical
    assert published(copy) == published(few)


def test_a_published_dataset_is_made_again_without_its_images(
    few: Path, loopback: LoopbackHub, tmp_path: Path
) -> None:
    api = client(loopback)
    name = "someone/garments"
    api.create_repo(name, repo_type="dataset", private=True)
    additions = [CommitOperationAdd(path, content) for path, content in published(few).items()]
    api.create_commit(name, additions, commit_message="A version", repo_type="dataset")
    api.create_tag(name, tag="v1", repo_type="dataset")
    later = [CommitOperationAdd("recipe.yaml", b"recipe: 1"), CommitOperationDelete("lock.json")]
    api.create_commit(name, later, commit_message="Another", repo_type="dataset")
    loopback.requests.clear()
    words, environment = command(
        "build", "--from", f"{name}@v1", "--out", str(tmp_path / "again"), "--workers", "1"
    )
    del environment["HF_HUB_OFFLINE"]
    hub_environment = client_environment(loopback, tmp_path / "home", inherited=environment)
    run = warm.run(words, hub_environment)
    assert run.returncode == 0, run.stderr
    assert "Identical to the original" in run.stdout
    assert published(tmp_path / "again") == published(few)
    fetched = {
        request.path.rpartition("/resolve/")[2].partition("/")[2] for request in loopback.requests
    }
    assert {"recipe.yaml", "lock.json", "receipts/red-00000.json"} <= fetched
    assert not [path for path in fetched if path.startswith(("data/", "candidates/", "figures/"))]
    run = warm.run([*words[:-5], name, *words[-4:]], hub_environment)
    assert run.returncode == 2
    assert "lock.json" in run.stderr


def test_a_recipe_and_from_exclude_each_other(tmp_path: Path) -> None:
    for arguments, message in (
        (["wardrobe-mini", "--from", "there"], "takes RECIPE or --from, not both"),
        ([], "build needs RECIPE or --from"),
        (["--from", str(tmp_path / "nothing")], "[unknown-dataset]"),
    ):
        run = run_command(["build", *arguments, "--out", str(tmp_path / "out")])
        assert run.returncode == 2
        assert message in run.stderr
        assert "Traceback" not in run.stderr
    assert not (tmp_path / "out").exists()


# Repair in place: only shards that are not as they were written are made again, and the directory
# is what it was.


@pytest.fixture
def copy_of(screened: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(screened, tmp_path / "dataset"))


def repair(directory: Path, allow_mixed: bool = False) -> Regeneration:
    return regenerate(directory, directory, device="cpu", workers=1, allow_mixed=allow_mixed)


def edit(path: Path, change: Callable[[dict], None]) -> None:
    """Change a receipt and write it in the form that receipts have."""
    document = json.loads(path.read_text())
    change(document)
    text = json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False)
    path.write_text(f"{text}\n")


def shard_file(directory: Path, what: str, group: str) -> Path:
    return sorted((directory / what / group).iterdir())[0]


def test_only_damaged_shards_are_made_again(copy_of: Path, screened: Path) -> None:
    times = {path: (copy_of / path).stat().st_mtime_ns for path in published(copy_of)}
    flip(shard_file(copy_of, "data", "base"))
    shard_file(copy_of, "candidates", "red").unlink()
    (copy_of / "receipts" / "in_the_snow-00001.json").write_text("{")
    # Only the manifest shows that this one is wrong.
    edit(
        copy_of / "receipts" / "pencil_sketch-00001.json",
        lambda document: document["stack"].update(threads=8),
    )
    flip(copy_of / "README.md")
    min((copy_of / "figures").iterdir()).unlink()
    assert verify_files(copy_of)
    result = repair(copy_of)
    assert (result.shards_made, result.shards, result.repaired) == (4, SHARDS, True)
    assert published(copy_of) == published(screened)
    assert result.comparison is not None
    assert result.comparison.identical
    whole = [p for p in times if p.startswith(("data/", "candidates/", "rejected/", "receipts/"))]
    touched = {p for p in whole if times[p] != (copy_of / p).stat().st_mtime_ns}
    shards = {(Path(p).parent.name, p[-27:]) for p in touched if not p.startswith("receipts/")}
    assert {group for group, _ in shards} == {"base", "red", "in_the_snow", "pencil_sketch"}
    assert sum(path.startswith("receipts/") for path in touched) == 4


def test_a_receipt_that_lies_is_found_without_a_manifest(copy_of: Path, screened: Path) -> None:
    folder = copy_of / "receipts"
    edit(folder / "base-00000.json", lambda document: document["counts"]["base"].update(surplus=1))
    edit(folder / "red-00000.json", lambda document: document["hashes"].update(inputs="0" * 64))
    edit(
        folder / "red-00001.json",
        lambda document: document["files"][-1].update(path="../../outside"),
    )
    edit(folder / "in_the_snow-00000.json", lambda document: document.update(shard=1))
    edit(folder / "in_the_snow-00001.json", lambda document: document.update(files=[3]))
    edit(folder / "pencil_sketch-00000.json", lambda document: document["files"][0].update(size=1))
    with (folder / "pencil_sketch-00001.json").open("a") as file:
        file.write("\n")
    (copy_of / "manifest.json").unlink()
    result = repair(copy_of)
    assert result.shards_made == 7
    assert result.comparison is None
    assert published(copy_of) == published(screened)


def test_a_receipt_of_what_none_holds_is_damaged(copy_of: Path, screened: Path) -> None:
    odd = {"base": "NaN", "red": '"\\ud800"', "in_the_snow": "[" * 700 + "]" * 700}
    for group, value in odd.items():
        receipt = copy_of / "receipts" / f"{group}-00000.json"
        edit(receipt, lambda document: document["stack"].update(threads="here"))
        receipt.write_text(receipt.read_text().replace('"here"', value))
    (copy_of / "manifest.json").unlink()
    assert repair(copy_of).shards_made == len(odd)
    assert published(copy_of) == published(screened)


def test_what_stands_beside_whole_shards_is_written_again(copy_of: Path, screened: Path) -> None:
    for name in ("README.md", "manifest.json"):
        (copy_of / name).unlink()
    min((copy_of / "figures").iterdir()).write_bytes(b"no picture")
    result = repair(copy_of)
    assert (result.shards_made, result.images_made) == (0, 0)
    assert published(copy_of) == published(screened)


def test_strays_are_refused_by_name(copy_of: Path) -> None:
    stray = copy_of / "candidates" / "red" / "test-00009-of-00009.parquet"
    stray.write_bytes(b"mine")
    with pytest.raises(UserError, match=r"candidates/red/test-00009-of-00009\.parquet"):
        repair(copy_of)
    assert stray.read_bytes() == b"mine"


def test_another_stack_is_refused_before_anything_goes(copy_of: Path) -> None:
    with_torch(copy_of, "1.0.0")
    flip(shard_file(copy_of, "data", "base"))
    before = published(copy_of)
    with pytest.raises(UserError, match=r"(?s)versions.torch.*--allow-mixed"):
        repair(copy_of)
    assert published(copy_of) == before
    result = repair(copy_of, allow_mixed=True)
    assert result.shards_made == 1
    assert len({receipt.stack["versions"]["torch"] for receipt in read_receipts(copy_of)}) == 2
    assert result.comparison is not None
    assert any(line.startswith("versions.torch") for line in result.comparison.stack)
    assert result.comparison.unexplained == ()


# Ends the process without a farewell before its n-th removal or rename of a kind, as a kill would.
KILLED = """
import os, sys
left = int(sys.argv[4])
def hook(event, arguments):
    global left
    if event == sys.argv[2] and sys.argv[3] in str(arguments[-2 if event == "os.remove" else 1]):
        if left == 0:
            os._exit(9)
        left -= 1
sys.addaudithook(hook)
from counterfoil.building.regenerate_dataset import regenerate
regenerate(sys.argv[1], sys.argv[1], device="cpu", workers=1)
"""


@pytest.mark.parametrize(
    ("event", "path", "count", "left"),
    [
        ("os.remove", "dataset/receipts", 1, 3),  # between the removals of two receipts
        pytest.param("os.remove", "dataset/manifest.json", 0, 3, marks=pytest.mark.whole),
        # a shard half written
        pytest.param("os.rename", "dataset/candidates", 0, 3, marks=pytest.mark.whole),
        # one shard done, the next without its receipt
        pytest.param("os.rename", "dataset/receipts", 1, 2, marks=pytest.mark.whole),
        pytest.param("os.rename", "dataset/manifest.json", 0, 0, marks=pytest.mark.whole),
    ],
)
def test_a_killed_repair_goes_on(
    event: str, path: str, count: int, left: int, copy_of: Path, screened: Path
) -> None:
    """Kills at every step of a build are in `test_killed_builds_resume_to_the_same_bytes`."""
    flip(shard_file(copy_of, "data", "base"))
    flip(shard_file(copy_of, "candidates", "red"))
    # Only the manifest shows that this one is wrong.
    edit(
        copy_of / "receipts" / "red-00001.json",
        lambda document: document["stack"].update(threads=8),
    )
    _, environment = command()
    words = [sys.executable, "-c", KILLED, str(copy_of), event, path, str(count)]
    assert warm.run(words, environment).returncode == 9
    assert published(copy_of) != published(screened)
    assert repair(copy_of).shards_made == left
    assert published(copy_of) == published(screened)
    assert not list(copy_of.rglob("*.tmp"))


def test_the_command_says_what_it_did(copy_of: Path, screened: Path) -> None:
    flip(shard_file(copy_of, "data", "base"))
    run = run_command(
        ["build", "--from", str(copy_of), "--out", f"{copy_of}/../dataset", "--workers", "1"]
    )
    assert run.returncode == 0, run.stderr
    assert f"1 of {SHARDS} shards made in this run" in run.stdout
    assert "Identical to the original" in run.stdout
    assert published(copy_of) == published(screened)


def test_a_build_takes_finished_shards_on_trust_and_says_how_to_repair(
    copy_of: Path, half_threshold: float
) -> None:
    path = shard_file(copy_of, "data", "base")
    path.write_bytes(path.read_bytes()[:-1])
    settings = ("screen.keep_rejected=true", "screen.store_embeddings=false")
    with pytest.raises(RunFailure, match="bytes, expected") as refused:
        tiny(copy_of, f"screen.object_threshold={half_threshold!r}", *settings)
    assert f"counterfoil build --from {copy_of} --out {copy_of}" in (refused.value.hint or "")
