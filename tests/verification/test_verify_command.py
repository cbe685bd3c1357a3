"""`counterfoil verify` as people and scripts run it: exit codes, what goes to stdout, and no traceback."""

from __future__ import annotations

import json
from pathlib import Path

from tiny_builds import run_command


def test_a_whole_dataset_exits_0_with_a_short_summary(datasets: dict[str, Path]) -> None:
    done = run_command(["verify", str(datasets["parquet"]), "--rerender", "2", "--device", "cpu"])
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.endswith(": identical bytes")] == lines[:2]
    assert "2 rows rendered again on the stack of their shards." in lines
    assert f"{datasets['parquet']} is whole: " in done.stdout and "8 shards, 24 candidates" in done.stdout
    assert "files: " in done.stderr and "rendering: 2 done" in done.stderr


def test_a_damaged_dataset_exits_1_and_names_file_fault_and_repair(parquet: Path) -> None:
    (parquet / "README.md").write_text("---\n")
    (parquet / "recipe.yaml").unlink()
    done = run_command(["verify", str(parquet)])
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "recipe.yaml is missing"
    assert f"  Repair: counterfoil build --from {parquet} --out {parquet}" in lines
    assert lines[-1].startswith(f"{parquet} is damaged: 2 files of ")
    assert "Note: rows were not compared with the plan" in done.stderr


def test_json_holds_every_problem(parquet: Path) -> None:
    (parquet / "stray").write_text("")
    done = run_command(["verify", str(parquet), "--json"])
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["whole"] is False and found["directory"] == str(parquet)
    assert found["problems"] == [
        {
            "path": "stray",
            "what": "is unexpected: the manifest does not list it",
            "repair": f"move it out of {parquet}",
        }
    ]


def test_no_dataset_and_mistakes_exit_2(tmp_path: Path, datasets: dict[str, Path]) -> None:
    for words in (
        [str(tmp_path)],
        [str(tmp_path / "nowhere")],
        [str(datasets["parquet"]), "--rerender", "-1"],
        [str(datasets["parquet"]), "--set", "samples.seed=1"],
        [str(datasets["parquet"]), "--rerender", "1", "--device", "abacus"],
    ):
        done = run_command(["verify", *words])
        assert (done.returncode, done.stdout) == (2, ""), words
        assert done.stderr.strip() and "Traceback" not in done.stderr
