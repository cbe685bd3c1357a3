"""The main path once, by the installed command: build, verify, evaluate, publish to the loopback
Hub, load back.

    python scripts/main_path.py

Builds the bundled wardrobe-mini with two candidates a cell and scores it with a lab classifier. The
dataset goes, with the results, to a Hub on this machine (tests/loopback_hub), is verified there by
name, and is loaded by `load_dataset`. Prints what was done; exits 1 where a step fails or what
comes back differs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "publishing")]

from publishing_cases import contents, published  # noqa: E402

from counterfoil.store.reading import read_rows  # noqa: E402
from loopback_hub import LoopbackHub, Reader, client_environment  # noqa: E402

REPO = "someone/wardrobe-mini"
MODEL = "lab:resnet10t"
REDUCED = ("samples.candidates=2", "evaluate.min_images_per_class=1")


def counterfoil(*words: str | Path, environment: Mapping[str, str] | None = None) -> str:
    """Return what the command installed beside this Python prints. End this script if the command
    fails."""
    line = [str(Path(sys.executable).with_name("counterfoil")), *map(str, words)]
    began = time.monotonic()
    variables = {"HF_HUB_OFFLINE": "1", **os.environ} if environment is None else environment
    done = subprocess.run(
        line, env={"OMP_NUM_THREADS": "1", **variables}, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\nfailed: {' '.join(line[1:])}")
    print(f"{time.monotonic() - began:6.1f} s  counterfoil {words[0]} {words[1]}", flush=True)
    return done.stdout


def images_of(directory: Path) -> dict[str, dict[str, bytes]]:
    """Split → key → encoded image, as the store reads them."""
    images: dict[str, dict[str, bytes]] = {}
    for row in read_rows(directory, columns=["key", "shift", "image"]):
        # in this recipe each shift is a group
        images.setdefault(row["shift"], {})[row["key"]] = row["image"]["bytes"]
    return images


def loaded(reader: Reader, streaming: bool) -> dict[str, dict[str, bytes]]:
    """Return the same by `load_dataset` from the Hub."""
    splits = reader.rows(REPO, columns=["key", "image"], streaming=streaming)
    return {
        split: {row["key"]: bytes.fromhex(row["image"]["bytes"]) for row in rows}
        for split, rows in splits.items()
    }


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        dataset = work / "wardrobe-mini"
        settings = [word for change in REDUCED for word in ("--set", change)]
        counterfoil(
            "build",
            "wardrobe-mini",
            "--out",
            dataset,
            "--device",
            "cpu",
            "--workers",
            "1",
            *settings,
        )
        counterfoil("verify", dataset, "--rerender", "2", "--device", "cpu")
        report = counterfoil(
            "evaluate", dataset, "--models", MODEL, "--device", "cpu", "--into-card", "--json"
        )
        if not any(
            row["measure"] == "drop" and row.get("value") for row in json.loads(report)["rows"]
        ):
            sys.exit(f"{report}\nfailed: no shift makes a difference to {MODEL}")
        with LoopbackHub(work / "hub") as hub:
            environment = client_environment(hub, work / "home")
            counterfoil("publish", dataset, REPO, "--yes", "--tag", "v1", environment=environment)
            if published(hub, repo=REPO) != contents(dataset):
                sys.exit(f"failed: what {REPO} holds is not the directory")
            counterfoil("verify", f"{REPO}@v1", environment=environment)
            began = time.monotonic()
            expected = images_of(dataset)
            with Reader(hub, work / "reader") as reader:
                if not expected or any(
                    loaded(reader, streaming) != expected for streaming in (False, True)
                ):
                    sys.exit(f"failed: load_dataset({REPO!r}) gives other images")
            print(f"{time.monotonic() - began:6.1f} s  load_dataset {REPO}, plain and streaming")
    count = sum(map(len, expected.values()))
    print(
        f"{count} accepted images in {len(expected)} splits came back from the Hub as they were"
        " built."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
