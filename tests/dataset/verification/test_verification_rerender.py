"""Rows rendered again: equal bytes on the same stack; differences are measured, and another stack
is named."""

from __future__ import annotations

import io
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from doctored import Rows, decoded, doctor, named, path_of, problem_of, with_stack
from PIL import Image

from counterfoil.dataset.verification import Rerendered, verify
from counterfoil.dataset.verification.rerendering import (
    LEAST_PSNR,
    choose_rows,
    compare_images,
    greatest_difference,
    psnr,
    rendering_fault,
)
from counterfoil.errors import UserError
from counterfoil.models.names import LAB_WEIGHTS, folder_sha256
from counterfoil.progress import Stage, listening
from counterfoil.store.reading import read_receipts
from support.images import encoded
from support.refusals import refuses
from tiny_builds import tiny

EVERY = 24


@pytest.mark.parametrize("kind", ["webdataset", "tokens"])
def test_rows_come_out_again_byte_for_byte(kind: str, datasets: dict[str, Path]) -> None:
    heard: list[Stage] = []
    with listening(heard.append):
        verification = verify(datasets[kind], rerender=7, device="cpu")
    assert verification.problems == () and verification.notes == ()
    assert [row.outcome for row in verification.rerendered] == ["identical bytes"] * 7
    assert {row.stack for row in verification.rerendered} == {()}
    assert len({row.key for row in verification.rerendered}) == 7
    assert list(dict.fromkeys(stage.name for stage in heard)) == [
        "checking files",
        "checking images",
        "re-rendering",
    ]
    # in the generator's batches
    assert [stage.done for stage in heard if stage.name == "re-rendering"] == [4, 7]
    assert heard[-1] == Stage("re-rendering", 7, 7)


def test_the_choice_follows_from_the_seed_and_reaches_every_row(datasets: dict[str, Path]) -> None:
    receipts = read_receipts(datasets["parquet"])

    def chosen(count: int, seed: int) -> list[tuple[str, str, int]]:
        return [
            (row.receipt.path, row.what, row.row)
            for row in choose_rows(receipts, lambda path: True, count, seed)
        ]

    every = chosen(EVERY, 0)
    assert every == chosen(EVERY, 1) == chosen(1000, 2)
    assert len(set(every)) == EVERY
    assert {what for _, what, _ in every} == {"data", "rejected"}
    assert chosen(5, 3) == chosen(5, 3) and set(chosen(5, 3)) <= set(every)
    seen = [row for seed in range(200) for row in chosen(5, seed)]
    assert set(seen) == set(every)
    # 1000 draws over 24 rows: each about 42 times.
    assert min(map(seen.count, every)) > 15 and max(map(seen.count, every)) < 85


def test_every_row_of_a_sound_file_is_rendered_again_and_compared(parquet: Path) -> None:
    """Damage one file, put noise into an image of another, and pack those of a third otherwise."""
    damaged, noisy, packed = [r for r in read_receipts(parquet) if r.rows["data"] >= 2][:3]
    noise = np.random.default_rng(0).integers(-9, 10, (32, 32, 3))
    originals: dict[str, np.ndarray] = {}

    def with_noise(rows: Rows) -> Rows:
        originals[rows[1]["key"]] = before = decoded(rows[1]["image"]["bytes"])
        rows[1]["image"]["bytes"] = encoded(np.clip(before + noise, 0, 255).astype(np.uint8))
        return rows

    def packed_again(rows: Rows) -> Rows:
        for row in rows:
            file = io.BytesIO()
            Image.fromarray(decoded(row["image"]["bytes"])).save(file, "PNG", compress_level=1)
            row["image"]["bytes"] = file.getvalue()
        return rows

    noisy_path = doctor(parquet, noisy, "data", with_noise)
    packed_path = doctor(parquet, packed, "data", packed_again)
    # its num_bytes, and nothing else
    assert named(verify(parquet)) == {"README.md"}
    damaged_path = path_of(damaged, "data")
    (parquet / damaged_path).write_bytes(b"")
    verification = verify(parquet, rerender=EVERY, device="cpu")
    rows = {row.key: row for row in verification.rerendered}
    assert len(rows) == EVERY - damaged.rows["data"]
    assert any(note.startswith(f"{len(rows)} rows were re-rendered") for note in verification.notes)
    ((key, before),) = originals.items()
    row = rows.pop(key)
    assert row.outcome == "different"
    error = (np.clip(before + noise, 0, 255) - before).astype(float)
    assert row.psnr == pytest.approx(
        20 * math.log10(255 / math.sqrt((error**2).sum() / error.size))
    )
    assert row.greatest == np.abs(error).max()
    for other in rows.values():
        same = "pixels" if other.path == packed_path else "bytes"
        assert other.outcome == f"identical {same}" and other.path != damaged_path
    (problem,) = problem_of(verification, noisy_path)
    assert key in problem.what and f"PSNR {row.psnr:.1f} dB" in problem.what
    assert problem.repair.startswith("rm ")
    sentence = "re-rendered on the same stack, it is identical pixels"
    assert sentence in problem_of(verification, packed_path)[0].what


def test_another_stack_is_named_by_its_fields(parquet: Path) -> None:
    with_stack(parquet, cpu_capability="ABACUS", threads=7)
    verification = verify(parquet, rerender=1, device="cpu")
    assert verification.problems == ()
    for row in verification.rerendered:
        assert row.outcome == "identical bytes"
        assert [line.split(":")[0] for line in row.stack] == ["cpu_capability", "threads"]
        assert "threads: 7 there, 1 here" in row.stack


def rendered(outcome, psnr: float | None = None, *stack: str) -> Rerendered:
    return Rerendered("data/a", "a_00_000000", outcome, psnr, None if psnr is None else 3, stack)


def test_what_of_a_difference_is_damage_depends_on_the_stack() -> None:
    other = "versions.torch: 1 there, 2 here"
    assert rendering_fault(rendered("identical bytes")) is None
    assert rendering_fault(rendered("identical pixels")) is not None
    assert rendering_fault(rendered("different", 80.0)) is not None
    assert rendering_fault(rendered("not rendered")) is not None
    for fine in (
        rendered("identical bytes", None, other),
        rendered("identical pixels", None, other),
        rendered("different", LEAST_PSNR, other),
    ):
        assert rendering_fault(fine) is None
    for damaged in (
        rendered("different", LEAST_PSNR - 0.1, other),
        rendered("different", None, other),  # another size
        rendered("not rendered", None, other),
    ):
        assert "more than another stack explains (30 dB)" in (rendering_fault(damaged) or "")


def test_psnr_and_levels_of_known_differences() -> None:
    grey = np.full((10, 10, 3), 100, np.uint8)
    one_off = grey + 1
    assert psnr(grey, one_off) == pytest.approx(20 * math.log10(255))
    assert psnr(np.zeros_like(grey), np.full_like(grey, 255)) == 0
    assert psnr(grey, grey) == math.inf
    assert greatest_difference(np.zeros_like(grey), np.full_like(grey, 255)) == 255
    assert greatest_difference(one_off, grey) == greatest_difference(grey, one_off) == 1
    spot = grey.copy()
    spot[0, 0, 0] = 110
    assert psnr(grey, spot) == pytest.approx(10 * math.log10(255**2 * 300 / 100))
    assert compare_images(encoded(grey), encoded(spot)) == ("different", psnr(grey, spot), 10)
    assert compare_images(encoded(grey), encoded(grey[:5])) == ("different", None, None)


@pytest.fixture(scope="module")
def of_a_folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a dataset whose generator is a folder, and that folder, moved away after the build."""
    folder = tmp_path_factory.mktemp("folder")
    shutil.copytree(LAB_WEIGHTS / "sd", folder / "model")
    few = ("prompts.shifts={}", "samples.candidates=1")
    tiny(folder / "dataset", f"generator.model=local-dir:{folder / 'model'}", *few)
    (folder / "model").rename(folder / "elsewhere")
    return folder / "dataset", folder / "elsewhere"


def test_a_generator_that_is_a_folder_is_found_where_one_says(
    of_a_folder: tuple[Path, Path],
) -> None:
    dataset, model = of_a_folder
    assert verify(dataset).whole
    with pytest.raises(UserError, match=r"--set generator\.model=local-dir:PATH"):
        verify(dataset, rerender=2, device="cpu")
    verification = verify(
        dataset, rerender=2, device="cpu", overrides=[f"generator.model=local-dir:{model}"]
    )
    assert [row.outcome for row in verification.rerendered] == ["identical bytes"] * 2


def test_another_generator_is_refused_with_both_hashes(
    of_a_folder: tuple[Path, Path], tmp_path: Path
) -> None:
    dataset, model = of_a_folder
    other = Path(shutil.copytree(model, tmp_path / "model"))
    config = json.loads((other / "scheduler/scheduler_config.json").read_text())
    (other / "scheduler/scheduler_config.json").write_text(json.dumps(config | {"note": 1}))
    with pytest.raises(UserError) as refused:
        verify(dataset, rerender=1, device="cpu", overrides=[f"generator.model=local-dir:{other}"])
    assert folder_sha256(model) in str(refused.value) and folder_sha256(other) in str(refused.value)


@pytest.mark.parametrize(
    "override", ["generator.steps=3", "generator={model: lab:sd}", "samples.seed=4"]
)
def test_nothing_but_the_place_of_the_generator_can_be_set(
    override: str, datasets: dict[str, Path]
) -> None:
    with refuses("cannot-rerender", None, override, "only generator.model can be set"):
        verify(datasets["parquet"], rerender=1, device="cpu", overrides=[override])
    with refuses("cannot-rerender", "--set", "without --rerender"):
        verify(datasets["parquet"], overrides=[override])


@pytest.mark.parametrize("name", ["recipe.yaml", "lock.json"])
def test_nothing_is_rendered_from_what_is_damaged(name: str, parquet: Path) -> None:
    (parquet / name).write_bytes(b"{")
    verification = verify(parquet, rerender=3, device="cpu")
    assert named(verification) == {name}
    assert verification.rerendered == ()
    assert any(note.startswith("nothing was re-rendered") for note in verification.notes)
