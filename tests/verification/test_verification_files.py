"""Missing, truncated and unexpected files: all of them are named at once, each with what repairs it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from doctored import doctor, one_of_each_kind, problem_of, receipt_with

from counterfoil.hub import DatasetReference
from counterfoil.verification import verify
from counterfoil.verification.problems import Repairs
from tiny_builds import published

BUILD = "counterfoil build --from {0} --out {0}"


def test_what_a_build_makes_is_repaired_by_building(dataset: Path) -> None:
    for path in one_of_each_kind(dataset).values():
        content = (dataset / path).read_bytes()
        (dataset / path).unlink()
        found = verify(dataset)
        (dataset / path).write_bytes(content)
        assert {problem.path for problem in found.problems} == {path}
        (problem,) = found.problems
        assert problem.what.startswith("is missing")
        if path in ("recipe.yaml", "lock.json", "thresholds.json"):
            assert problem.repair.startswith("restore it from a copy")
        else:
            assert problem.repair == BUILD.format(dataset)


def test_tokens_are_restored_from_a_copy(datasets: dict[str, Path], tmp_path: Path) -> None:
    directory = Path(shutil.copytree(datasets["tokens"], tmp_path / "dataset"))
    (directory / "tokens/05.safetensors").unlink()
    found = verify(directory)
    assert [problem.path for problem in found.problems] == ["tokens/05.safetensors"]
    assert found.problems[0].repair.startswith("restore it from a copy")
    assert any("prompts were not compared" in note for note in found.notes)


def test_truncated_and_empty_files_are_named(dataset: Path) -> None:
    for path in one_of_each_kind(dataset).values():
        content = (dataset / path).read_bytes()
        for length in (0, len(content) // 2):
            (dataset / path).write_bytes(content[:length])
            found = verify(dataset)
            assert {problem.path for problem in found.problems} == {path}, length
        (dataset / path).write_bytes(content)
    assert verify(dataset).whole


def test_unexpected_files_are_to_be_moved_elsewhere(dataset: Path) -> None:
    strays = ["stray.txt", "data/base/test-00007-of-00002.parquet", "receipts/nowhere-00000.json", "tokens/x/y.bin"]
    for path in strays:
        (dataset / path).parent.mkdir(parents=True, exist_ok=True)
        (dataset / path).write_bytes(b"{}")
    found = verify(dataset)
    assert sorted(problem.path for problem in found.problems) == sorted(strays)
    assert {problem.repair for problem in found.problems} == {f"move it out of {dataset}"}


def test_a_file_that_is_a_link_to_nowhere_is_named(parquet: Path) -> None:
    (parquet / "thresholds.json").unlink()
    (parquet / "thresholds.json").symlink_to("gone.json")
    assert {problem.path for problem in verify(parquet).problems} == {"thresholds.json"}


def test_everything_is_collected_and_what_must_be_restored_comes_first(dataset: Path) -> None:
    files = published(dataset)
    images = sorted(path for path in files if path.startswith("data/base/"))
    (dataset / "recipe.yaml").write_bytes(b"recipe: [")
    (dataset / images[0]).write_bytes(b"PAR1")
    (dataset / "README.md").unlink()
    (dataset / "figures/contact-sheet.webp").write_bytes(b"")
    (dataset / "stray").write_bytes(b"")
    (dataset / "receipts/base-00001.json").write_bytes(b"[")
    found = verify(dataset)
    named = [problem.path for problem in found.problems]
    assert set(named) == {
        "recipe.yaml", images[0], "README.md", "figures/contact-sheet.webp", "stray", "receipts/base-00001.json",
    }  # fmt: skip
    assert set(named[: named.index("README.md")]) == {"recipe.yaml", "stray"}
    assert [repair.split()[0] for repair in found.by_repair()] == ["restore", "move", "counterfoil"]
    # The images of every shard whose receipt is sound were decoded all the same.
    assert found.images > 0


def test_images_are_decoded_where_the_recipe_is_gone(dataset: Path) -> None:
    receipt = receipt_with(dataset, "data")
    path = doctor(dataset, receipt, "data", _undecodable)
    (dataset / "recipe.yaml").unlink()
    found = verify(dataset)
    (problem,) = problem_of(found, path)
    assert "does not decode" in problem.what
    assert {each.path for each in found.problems} == {path, "recipe.yaml"}


def _undecodable(rows: list[dict]) -> list[dict]:
    rows[1]["image"]["bytes"] = rows[1]["image"]["bytes"][:40]
    return rows


def test_a_build_that_was_not_finished_says_so(parquet: Path) -> None:
    (parquet / "manifest.json").unlink()
    (parquet / "README.md").unlink()
    receipt = receipt_with(parquet, "data")
    (parquet / receipt.path).unlink()
    found = verify(parquet)
    assert {problem.path for problem in found.problems} == {"manifest.json", receipt.path}
    assert "was not finished" in problem_of(found, "manifest.json")[0].what


@pytest.mark.parametrize("path", ["data/base/x.parquet", "recipe.yaml", "evaluation/results.json", "README.md"])
def test_published_copies_are_repaired_where_they_came_from(path: str) -> None:
    published_copy = Repairs(Path("/cache/it is"), DatasetReference("user/name", "v1"))
    assert "publish it again" in published_copy.of(path) == published_copy.of_unexpected()
    assert "'/cache/it is'" in published_copy.of(path)


def test_paths_in_commands_are_quoted() -> None:
    repairs = Repairs(Path("my data"))
    assert repairs.of("README.md") == "counterfoil build --from 'my data' --out 'my data'"
    assert repairs.of_shard("receipts/a-00000.json").startswith("rm 'my data/receipts/a-00000.json' && counterfoil")
    assert repairs.of("evaluation/results.json") == "counterfoil evaluate 'my data' --into-card"
