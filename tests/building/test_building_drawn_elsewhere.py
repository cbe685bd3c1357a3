"""Images of a drawn dataset, given back as files with a CSV: screened, stored and scored as when
they were drawn."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import datasets
import pytest

from counterfoil.building.build_dataset import BuildResult, build
from counterfoil.building.regenerate_dataset import regenerate
from counterfoil.dataset.verification import verify
from counterfoil.errors import RunFailure, UserError
from counterfoil.evaluation import evaluate
from counterfoil.recipe import load_recipe
from counterfoil.store.lock import read_lock
from counterfoil.store.reading import read_rows
from shared_datasets import Once
from tiny_builds import TINY, images, published, run_command

COLUMNS = ("key", "shift", "class_id", "index", "seed", "prompt")
DECIDED = (
    *COLUMNS,
    "pair",
    "object_score",
    "shift_score",
    "object_threshold",
    "shift_threshold",
    "reason",
)


def drawn_of(directory: Path) -> list[dict[str, Any]]:
    return list(read_rows(directory, columns=list(COLUMNS), what="candidates"))


def give(directory: Path, folder: Path, *leave_out: str) -> Path:
    """Write the images of a drawn dataset, except some, to a folder with a CSV that describes
    each."""
    files = images(directory)
    (folder / "png").mkdir(parents=True)
    with (folder / "drawn.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "label", "shift", "index", "seed", "prompt"])
        for row in drawn_of(directory):
            if row["key"] not in leave_out:
                name = f"png/{row['key']}.png"
                (folder / name).write_bytes(files[row["key"]])
                writer.writerow(
                    [name, *(row[key] for key in ("class_id", "shift", "index", "seed", "prompt"))]
                )
    return folder


def settings(folder: Path, *changes: str) -> list[str]:
    others = [change for change in TINY if not change.startswith("generator=")]
    kind = (
        "kind: rows, model: null, steps: null, guidance: null, size: null, dtype: float32,"
        " batch_size: 4"
    )
    return [*others, f"generator={{{kind}, dataset: {folder}, index_column: index}}", *changes]


def given_build(folder: Path, out: Path, *changes: str, workers: int = 1) -> BuildResult:
    return build(
        "wardrobe-mini", out, overrides=settings(folder, *changes), device="cpu", workers=workers
    )


def screening(threshold: float) -> list[str]:
    more = ["screen.keep_rejected=true", "screen.store_embeddings=false"]
    return [f"screen.object_threshold={threshold!r}", *more]


@pytest.fixture(scope="module")
def folder(screened: Path, once_a_run: Once) -> Path:
    return once_a_run("given_folder", lambda out: give(screened, out))


@pytest.fixture(scope="module")
def dataset(folder: Path, half_threshold: float, once_a_run: Once) -> Path:
    return once_a_run("given", lambda out: given_build(folder, out, *screening(half_threshold)))


def decided(directory: Path) -> list[dict[str, Any]]:
    return sorted(
        read_rows(directory, columns=list(DECIDED), what="candidates"), key=lambda row: row["key"]
    )


def test_they_are_screened_and_accepted_as_when_they_were_drawn(
    screened: Path, dataset: Path
) -> None:
    assert decided(dataset) == decided(screened)
    assert {row["reason"] for row in decided(dataset)} == {"accepted", "low_object"}
    assert images(dataset) == images(screened)
    assert verify(dataset).problems == ()


def test_its_lock_pins_the_given_images_and_no_generator(dataset: Path) -> None:
    lock = read_lock(dataset)
    assert lock is not None and lock.inputs["models"].keys() == {"screen"}
    assert lock.inputs.keys() >= {"pool", "given"}


def test_a_dataset_is_made_again(folder: Path, dataset: Path, tmp_path: Path) -> None:
    overrides = [f"generator.dataset={folder}"]
    result = regenerate(dataset, tmp_path / "made", overrides=overrides, device="cpu", workers=1)
    assert result.comparison is not None and result.comparison.identical
    assert published(tmp_path / "made") == published(dataset)
    with pytest.raises(
        UserError,
        match=r"generator.dataset './given_folder': is a folder on the machine that built",
    ):
        regenerate(dataset, tmp_path / "lost", device="cpu", workers=1)
    with pytest.raises(UserError, match="holds images drawn elsewhere, which were not rendered"):
        verify(dataset, rerender=2)


def test_a_table_of_the_same_images_gives_the_same_images(
    dataset: Path, half_threshold: float, tmp_path: Path
) -> None:
    rows = {row["key"]: row for row in drawn_of(dataset)}
    files = images(dataset)
    table = {
        "image": [{"bytes": files[key], "path": None} for key in rows],
        "label": [row["class_id"] for row in rows.values()],
        **{
            name: [row[name] for row in rows.values()]
            for name in ("shift", "seed", "prompt", "index")
        },
    }
    features = datasets.Dataset.from_dict({"image": table["image"]}).features | {
        "image": datasets.Image()
    }
    given = datasets.Dataset.from_dict(
        {name: column for name, column in table.items() if name != "image"}
    )
    images_alone = datasets.Dataset.from_dict(
        {"image": table["image"]}, features=datasets.Features(features)
    )
    (tmp_path / "table").mkdir()
    datasets.concatenate_datasets([images_alone, given], axis=1).to_parquet(
        str(tmp_path / "table" / "all.parquet")
    )
    given_build(tmp_path / "table", tmp_path / "out", *screening(half_threshold))
    assert decided(tmp_path / "out") == decided(dataset)
    assert images(tmp_path / "out") == images(dataset)


def test_what_is_missing_of_a_cell_leaves_its_place_and_its_pairs(
    screened: Path, tmp_path: Path
) -> None:
    """Give an image without its base, a base without one of its shifts and a file that is no
    image."""
    seeds = {row["key"]: row["seed"] for row in drawn_of(screened)}
    first, second = sorted(
        (f"00_{n:06d}" for n in range(2)), key=lambda pair: seeds[f"base_{pair}"]
    )
    folder = give(screened, tmp_path / "folder", f"base_{first}", f"red_{second}")
    (folder / "png" / f"pencil_sketch_{second}.png").write_bytes(b"no image")
    out = tmp_path / "out"
    result = given_build(folder, out, "generator.index_column=null")
    notes = "\n".join(result.notes)
    assert (
        f"1 image that cannot be opened, counted as failed: png/pencil_sketch_{second}.png" in notes
    )
    assert "14 of 17 images of shifts are paired" in notes
    assert result.counts["pencil_sketch"] == {"accepted": 5, "failed": 1}
    rows = {(row["shift"], row["index"]): row for row in drawn_of(out) if row["class_id"] == "00"}
    complete = {(shift, at) for shift in ("in_the_snow", "pencil_sketch") for at in (0, 1)}
    assert rows.keys() == complete | {("base", 1), ("red", 0)}
    assert {(shift, at): row["seed"] for (shift, at), row in rows.items()} == {
        (shift, at): seeds[f"base_{(first, second)[at]}"] for shift, at in rows
    }
    assert verify(out).problems == ()
    scores = evaluate(
        out, ["lab:resnet10t"], out=tmp_path / "report", device="cpu", min_images_per_class=1
    )
    assert scores.results.paired


def test_a_changed_file_is_refused(
    folder: Path, dataset: Path, half_threshold: float, tmp_path: Path
) -> None:
    other = shutil.copytree(folder, tmp_path / folder.name)
    changed = sorted((other / "png").iterdir())[0]
    changed.write_bytes(changed.read_bytes() + b"\0")
    with pytest.raises(UserError, match="other inputs"):
        given_build(other, dataset, *screening(half_threshold))
    with pytest.raises((UserError, RunFailure)):
        regenerate(
            dataset,
            tmp_path / "made",
            overrides=[f"generator.dataset={other}"],
            device="cpu",
            workers=1,
        )


@pytest.mark.parametrize(
    ("old", "new"),
    [("base,00,", "base,05,"), ("index", "number"), (",0,", ",9999999,")],
)
def test_a_changed_table_is_seen(dataset: Path, tmp_path: Path, old: str, new: str) -> None:
    copied = shutil.copytree(dataset, tmp_path / "copied")
    file = copied / "rows.csv"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))
    assert {problem.path for problem in verify(copied).problems} == {"rows.csv"}


def test_a_quota_takes_images_in_order_until_enough_are_accepted(
    folder: Path, tmp_path: Path
) -> None:
    quota = "samples={candidates: null, accepted: 1, at_most: 2, seed: 0, noise: paired}"
    given_build(folder, tmp_path / "out", quota, "generator.batch_size=1")
    assert {row["index"] for row in drawn_of(tmp_path / "out")} == {0}
    assert verify(tmp_path / "out").problems == ()


def test_its_recipe_names_no_place_and_its_plan_no_order(
    folder: Path, dataset: Path, tmp_path: Path
) -> None:
    assert "dataset: ./given_folder" in (dataset / "recipe.yaml").read_text()
    assert str(folder.parent) not in (dataset / "recipe.yaml").read_text()
    shuffled = shutil.copytree(folder, tmp_path / folder.name)
    header, *lines = (folder / "drawn.csv").read_text().splitlines(keepends=True)
    (shuffled / "drawn.csv").write_text("".join([header, *reversed(lines)]))
    recipes = [load_recipe("wardrobe-mini", settings(path)) for path in (folder, shuffled)]
    assert recipes[0].plan_hash == recipes[1].plan_hash
    given_build(shuffled, tmp_path / "out")
    assert [row["key"] for row in drawn_of(tmp_path / "out")] == [
        row["key"] for row in drawn_of(dataset)
    ]


def test_check_says_what_a_build_would(folder: Path) -> None:
    def check(*changes: str) -> Any:
        words = [word for change in settings(folder, *changes) for word in ("--set", change)]
        return run_command(["check", "wardrobe-mini", *words])

    done = check("samples.candidates=5")
    assert done.returncode == 0, done.stderr
    output = " ".join(done.stdout.split())
    assert "24 images in 12 cells; 18 of 18 images of shifts are paired" in output
    assert "12 of 12 cells have fewer images than the recipe allows: base of 00 (2)" in output
    refused = check(
        "prompts.shifts.red=null", "prompts.shifts.at_night={caption: a photo at night}"
    )
    assert refused.returncode == 2
    output = " ".join(refused.stderr.split())
    assert (
        "6 rows of the shift 'red'" in output
        and "3 of 12 cells have no image: 'at_night' of '00'" in output
    )
