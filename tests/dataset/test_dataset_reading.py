"""One reader: it reads sound datasets whole, names the file of each fault, and says what to do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from counterfoil.dataset.reading import Part, read_dataset
from counterfoil.dataset.verification import verify
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.store.manifest import write_manifest
from counterfoil.store.replacement import replacement_folder
from support.files import edit

PARTS = ("thresholds", "tokens", "receipts")
RECEIPT = "receipts/red-00000.json"


@pytest.fixture
def dataset(undisturbed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(undisturbed, tmp_path / "dataset"))


def refusal(directory: Path, *parts: Part) -> CounterfoilError:
    with pytest.raises(CounterfoilError) as refused:
        read_dataset(directory, *parts).finished()
    return refused.value


def test_what_is_whole_is_read_whole(undisturbed: Path) -> None:
    reading = read_dataset(undisturbed, *PARTS)
    assert reading.faults == ()
    dataset = reading.finished()
    assert dataset.recipe.plan_hash == dataset.lock.hashes["plan"]
    assert [(receipt.group, receipt.shard) for receipt in dataset.receipts] == [
        (shard.group, shard.number) for shard in dataset.plan.shards
    ]
    assert dataset.listed.keys() >= {"recipe.yaml", "lock.json", "thresholds.json", RECEIPT}
    assert dataset.thresholds.content() == (undisturbed / "thresholds.json").read_bytes()
    assert dataset.recipe_yaml == dataset.recipe.portable_yaml


def test_what_is_not_asked_for_is_not_read(dataset: Path) -> None:
    (dataset / "thresholds.json").unlink()
    (dataset / RECEIPT).write_text("{")
    assert list(read_dataset(dataset).sound().receipts) == []
    assert [fault.path for fault in read_dataset(dataset, "receipts").faults] == [RECEIPT]
    assert [fault.path for fault in read_dataset(dataset, *PARTS).causes()] == [
        "thresholds.json",
        RECEIPT,
    ]


DAMAGES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "no recipe": ("recipe.yaml", lambda d: (d / "recipe.yaml").unlink(), "is missing"),
    "no YAML": ("recipe.yaml", lambda d: (d / "recipe.yaml").write_text("[1"), "cannot be read"),
    "no JSON": ("lock.json", lambda d: (d / "lock.json").write_text("{"), "is damaged"),
    "other documents": (
        "lock.json",
        lambda d: edit(d / "lock.json", lambda lock: lock["inputs"].update(tokens={})),
        "is changed: its 'inputs' does not match",
    ),
    "other groups": (
        "lock.json",
        lambda d: edit(d / "lock.json", lambda lock: lock["groups"].pop()),
        "its groups and their shards are not those of the plan",
    ),
    "no thresholds": ("thresholds.json", lambda d: (d / "thresholds.json").unlink(), "is missing"),
    "an odd threshold": (
        "thresholds.json",
        lambda d: (d / "thresholds.json").write_text("[]"),
        "is damaged",
    ),
    "other thresholds": (
        "thresholds.json",
        lambda d: edit(
            d / "thresholds.json", lambda t: t["object"]["base"]["00"].update(value=0.5)
        ),
        "differs from the recipe",
    ),
    "a damaged receipt": (RECEIPT, lambda d: (d / RECEIPT).write_text("{"), "is damaged"),
    "a receipt of another dataset": (
        RECEIPT,
        lambda d: edit(d / RECEIPT, lambda receipt: receipt["hashes"].update(plan="0" * 64)),
        "belongs to another dataset",
    ),
    "a lock of other bytes": (
        "lock.json",
        lambda d: (d / "lock.json").write_text((d / "lock.json").read_text() + "\n"),
        "does not match its entry in manifest.json",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_fault_is_named_by_its_file_and_refused(name: str, dataset: Path) -> None:
    path, damage, what = DAMAGES[name]
    damage(dataset)
    (fault,) = read_dataset(dataset, *PARTS).causes()
    assert fault.path == path
    assert what in fault.line
    refused = refusal(dataset, *PARTS)
    assert isinstance(refused, RunFailure)
    assert refused.problems[0].path == str(dataset / path)
    assert ("build --from" if path == RECEIPT else "restore") in (refused.hint or "")


def test_a_recipe_that_a_person_changed_is_a_mistake_and_no_damage(dataset: Path) -> None:
    recipe = dataset / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("steps: 1", "steps: 3"))
    refused = refusal(dataset, *PARTS)
    assert isinstance(refused, UserError)
    assert "generator.steps" in str(refused)
    assert "calibrate --apply" in (refused.hint or "")


def test_other_words_of_a_recipe_are_no_damage(dataset: Path) -> None:
    recipe = dataset / "recipe.yaml"
    recipe.write_text(recipe.read_text() + "# mine\n")
    assert read_dataset(dataset, *PARTS).finished().recipe_yaml.endswith("# mine\n")
    assert [fault.line for fault in read_dataset(dataset, "words").faults] == [
        "does not match its entry in manifest.json [changed-file]"
    ]


def test_a_swap_that_cannot_be_settled_is_reported_by_everybody(dataset: Path) -> None:
    replacement_folder(dataset).mkdir(parents=True)
    (replacement_folder(dataset).parent / "swap.json").write_text('{"new": 3}')
    for open_it in (lambda: read_dataset(dataset), lambda: verify(dataset)):
        with pytest.raises(RunFailure, match=r"swap\.json: is not the journal of a swap: new: "):
            open_it()


def test_all_faults_are_reported_together_and_many_are_counted(dataset: Path) -> None:
    for path in sorted((dataset / "receipts").iterdir()):
        path.write_text("{")
    (dataset / "thresholds.json").unlink()
    refused = refusal(dataset, *PARTS)
    assert len([line for line in refused.problems if str(dataset) in line]) == 9
    for number in range(2, 30):
        shutil.copy(dataset / RECEIPT, dataset / "receipts" / f"red-{number:05d}.json")
    assert refusal(dataset, *PARTS).problems[-1].startswith("… and")


def test_what_is_not_finished_is_no_dataset_to_use(dataset: Path, tmp_path: Path) -> None:
    (dataset / RECEIPT).unlink()
    write_manifest(dataset, {})
    assert "7 of 8 shards are done" in str(refusal(dataset, "receipts"))
    assert "it has no lock.json" in str(refusal(tmp_path / "nowhere", "receipts"))


def test_nothing_is_opened_that_leads_elsewhere(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (dataset / "thresholds.json").unlink()
    (dataset / "thresholds.json").symlink_to(tmp_path / "secret")
    refused = refusal(dataset, "receipts")
    assert "thresholds.json" in str(refused) and "link" in str(refused)


@pytest.mark.parametrize("name", ["recipe.yaml", "rows.csv"])
def test_a_recipe_elsewhere_is_not_read(name: str, dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret: [words that nobody may see")
    (dataset / name).unlink(missing_ok=True)
    (dataset / name).symlink_to(tmp_path / "secret")
    reading = read_dataset(dataset, *PARTS)
    assert reading.recipe is None
    problems = refusal(dataset, "receipts").problems
    assert any("link" in line for line in problems)
    assert "nobody may see" not in " ".join([*(fault.line for fault in reading.faults), *problems])


def test_what_a_killed_cut_left_is_settled_in_ones_own_directory_alone(dataset: Path) -> None:
    replacement_folder(dataset).mkdir(parents=True)
    read_dataset(dataset, own=False).sound()
    assert replacement_folder(dataset).is_dir()
    read_dataset(dataset).sound()
    assert not replacement_folder(dataset).exists()
