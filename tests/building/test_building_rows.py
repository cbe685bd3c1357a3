"""A set of rows of a pool: screened, stored, verified, gone on with, cut again, made again and
published like any."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image

from counterfoil.building.build_dataset import BuildResult, build
from counterfoil.building.regenerate_dataset import regenerate
from counterfoil.data.pool import pin_pool
from counterfoil.dataset.verification import verify
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.evaluation import evaluate
from counterfoil.generate.kinds import Materials, maker_of
from counterfoil.generate.kinds import retrieve as retrieved_rows
from counterfoil.lab.scenes import load_wardrobe
from counterfoil.lab.world import render
from counterfoil.models.clip import load_clip
from counterfoil.plan.layout import RowTable
from counterfoil.progress import Stage, listening
from counterfoil.recipe import load_recipe, prompt_for
from counterfoil.recipe.rows_table import PoolRow, RowsByCell
from counterfoil.reviewing.recut_dataset import recut
from counterfoil.store.lock import read_lock
from lab_training.corpora import unbiased_scene
from support.built_rows import table_rows
from support.images import encoded
from tiny_builds import CLASSES, half_done, published, run_command

# Labels of the wardrobe go round: row r is of class r % 10.
ROWS = (
    "generator={kind: rows, model: null, steps: null, guidance: null, size: null, scheduler: null,"
    " batch_size: 4,"
    " rows: {base: {'00': [0, 10, 20], '05': [5, 15], '08': [8]}, red: {'00': [30, 40], '08': [18,"
    " 28, 38, 48, 58]}}}"
)
SETTINGS = (
    CLASSES,
    "tokens=null",
    "prompts.shifts={}",
    "prompts.shifts.red={prompt: 'a red {class}', caption: 'something red', kind: colour}",
    "screen={model: lab:clip, object_threshold: -1, shift_threshold: -1}",
    "samples={candidates: 4, seed: 0, noise: independent}",
    "output={format: parquet, rows_per_shard: 4}",
)


def rows_build(out: Path, *changes: str) -> None:
    overrides = [*SETTINGS, ROWS, *changes]
    build("wardrobe-mini", out, overrides=overrides, device="cpu", workers=1)


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("rows") / "dataset"
    rows_build(out)
    return out


def rows_of(directory: Path, *columns: str) -> list[dict[str, Any]]:
    return table_rows(directory, "key", "shift", "class_id", "index", "source_row", *columns)


def test_each_sample_is_the_row_that_the_recipe_says(chosen: Path) -> None:
    taken = {
        (row["shift"], row["class_id"], row["index"]): row["source_row"] for row in rows_of(chosen)
    }
    assert taken == {
        **{("base", "00", index): row for index, row in enumerate([0, 10, 20])},
        **{("base", "05", index): row for index, row in enumerate([5, 15])},
        ("base", "08", 0): 8,
        **{("red", "00", index): row for index, row in enumerate([30, 40])},
        # At most four candidates a cell.
        **{("red", "08", index): row for index, row in enumerate([18, 28, 38, 48])},
    }


def test_the_images_are_the_pools(chosen: Path) -> None:
    _, pixels = load_wardrobe("train")
    for row in rows_of(chosen, "image"):
        image = np.asarray(Image.open(io.BytesIO(row["image"]["bytes"])))
        assert np.array_equal(image, pixels(row["source_row"]))


def test_it_is_whole_and_made_again(chosen: Path, tmp_path: Path) -> None:
    assert verify(chosen).problems == ()
    regenerate(chosen, tmp_path / "regenerated", device="cpu", workers=1)
    assert published(tmp_path / "regenerated") == published(chosen)


def test_other_rows_are_another_plan(chosen: Path) -> None:
    with pytest.raises(UserError, match="rows"):
        rows_build(chosen, "generator.rows.red.00=[30]")


def test_a_changed_file_of_rows_is_seen(chosen: Path, tmp_path: Path) -> None:
    shutil.copytree(chosen, tmp_path / "changed")
    file = tmp_path / "changed" / "rows.csv"
    file.write_text(file.read_text().replace("base,00,0\n", "base,00,50\n"))
    assert {problem.path for problem in verify(tmp_path / "changed").problems} >= {"rows.csv"}


def test_rows_may_stand_in_a_file(chosen: Path, tmp_path: Path) -> None:
    table = load_recipe(chosen).generator.get("rows")
    assert table is not None
    lines = [
        f"{shift},{cls},{row}"
        for shift, cells in table.items()
        for cls, rows in cells.items()
        for row in rows
    ]
    (tmp_path / "mine.csv").write_text("\n".join(["shift,class_id,row", *lines]) + "\n")
    in_file = ROWS[: ROWS.index("rows: {base")] + f"rows: {tmp_path / 'mine.csv'}}}"
    settings = [*SETTINGS, in_file]
    build("wardrobe-mini", tmp_path / "out", overrides=settings, device="cpu", workers=1)
    assert published(tmp_path / "out") == published(chosen)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "generator.rows.base.00=[1]",
            "row 1 of lab:wardrobe, split train has the label of another class",
        ),
        ("generator.rows.base.00=[990000]", "found row 990000, and lab:wardrobe, split train has"),
        (
            "generator.rows.rde={'00': [0]}",
            "found 'rde', expected base or a shift; did you mean 'red'",
        ),
        ("generator.rows.base.07=[7]", "found '07', expected a class of the shift"),
        ("generator.rows.base.00=[0, 0]", "found a row again, expected each once"),
        ("generator.rows.base.00=[-1]", "found -1, expected rows from 0"),
        ("samples.noise=paired", "rows of a pool have no noise to share, expected independent"),
        ("generator.rows=./nowhere.csv", "No such file"),
        ("generator.license_column=license", "has no column 'license'"),
    ],
)
def test_what_cannot_be_taken_is_reported_before_anything_is_written(
    change: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(CounterfoilError) as refused:
        rows_build(tmp_path / "out", change)
    assert message in "\n".join(refused.value.problems)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"a,b\n", b"shift,class_id,row\nbase,00\n", b"shift,class_id,row\nbase,00,x\n", b"\xff"],
)
def test_a_file_that_is_no_table_of_rows_is_reported(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(content)
    with pytest.raises(UserError, match=r"rows\.csv"):
        rows_build(tmp_path / "out", f"generator.rows={tmp_path / 'rows.csv'}")


def test_a_pool_of_ones_own_with_licences(tmp_path: Path) -> None:
    """Labels of a folder of images are matched by name, and images keep their sizes."""
    rng = np.random.default_rng(0)
    pictures = [
        Image.fromarray(rng.integers(0, 256, (20 + n, 30, 3), dtype=np.uint8)) for n in range(4)
    ]
    names = datasets.ClassLabel(names=["sandal", "bag", "t-shirt"])
    table = datasets.Dataset.from_dict(
        {"image": pictures, "label": [2, 2, 0, 1], "terms": ["cc0", None, "cc-by-4.0", "mit"]},
        features=datasets.Features(
            {"image": datasets.Image(), "label": names, "terms": datasets.Value("string")}
        ),
    )
    table.save_to_disk(str(tmp_path / "pool"))
    own_pool = f"generator.dataset={tmp_path / 'pool'}"
    rows = "generator.rows={base: {'00': [0, 1], '05': [2], '08': [3]}}"
    rows_build(
        tmp_path / "out", "generator.rows=null", own_pool, rows, "generator.license_column=terms"
    )
    by_row = {row["source_row"]: row for row in rows_of(tmp_path / "out", "license", "image")}
    assert [by_row[row]["license"] for row in range(4)] == ["cc0", None, "cc-by-4.0", "mit"]
    assert Image.open(io.BytesIO(by_row[3]["image"]["bytes"])).size == (30, 23)
    assert verify(tmp_path / "out").problems == ()
    assert str(tmp_path) not in (tmp_path / "out" / "recipe.yaml").read_text()
    # The pool must be as it is pinned.
    (tmp_path / "pool" / "state.json").write_text(
        (tmp_path / "pool" / "state.json").read_text() + " "
    )
    with pytest.raises((UserError, RunFailure)):
        regenerate(
            tmp_path / "out", tmp_path / "again", overrides=[own_pool], device="cpu", workers=1
        )


def test_it_is_evaluated_without_pairs(chosen: Path, tmp_path: Path) -> None:
    evaluation = evaluate(
        chosen, ["lab:resnet10t"], out=tmp_path / "report", device="cpu", min_images_per_class=1
    )
    assert not evaluation.results.paired


# Images of a pool that CLIP finds nearest to each prompt: chosen once, none twice, and then a
# dataset like any.


CANDIDATES = 3
# Scenes of the pool: sandals, t-shirts and bags, half of them red.
SCENES = [10 * number + label for number in range(10) for label in (0, 5, 8)]
COPIES = {len(SCENES): 4, len(SCENES) + 1: 4}
BROKEN = len(SCENES) + 2
EMPTY = len(SCENES) + 3
RETRIEVAL = (
    CLASSES,
    "description=Garments that were found",
    "tokens=null",
    "prompts.shifts={}",
    "prompts.shifts.red={prompt: 'a photo of a red {class}', caption: 'a photo red', kind: colour}",
    "screen={model: lab:clip, object_threshold: -1, shift_threshold: -1}",
    f"samples={{candidates: {CANDIDATES}, seed: 0, noise: independent}}",
    "output={format: parquet, rows_per_shard: 3}",
    "generator={kind: retrieve, model: null, steps: null, guidance: null, batch_size: 4,"
    " license_column: terms}",
)


def scene(number: int) -> np.ndarray:
    chosen = unbiased_scene(number)
    return render(chosen.shifted("red") if number // 10 % 2 else chosen)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save images without labels, among them copies of one, a file that is no image and a row
    without a file."""
    files: list[bytes | None] = [encoded(scene(number)) for number in SCENES]
    files += [*(files[row] for row in COPIES.values()), b"no image", None]
    cells = [{"bytes": file, "path": None} if file is not None else None for file in files]
    terms = [f"licence {row}" for row in range(len(cells))]
    features = datasets.Features({"image": datasets.Image(), "terms": datasets.Value("string")})
    folder = tmp_path_factory.mktemp("pools") / "pool"
    datasets.Dataset.from_dict({"image": cells, "terms": terms}, features=features).save_to_disk(
        str(folder)
    )
    return folder


def retrieved_build(pool: Path, out: Path, *changes: str, workers: int = 1) -> BuildResult:
    settings = [*RETRIEVAL, f"generator.dataset={pool}", *changes]
    return build("wardrobe-mini", out, overrides=settings, device="cpu", workers=workers)


@pytest.fixture(scope="module")
def dataset(pool: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, BuildResult]:
    out = tmp_path_factory.mktemp("retrieved") / "dataset"
    heard: list[object] = []
    with listening(heard.append):
        result = retrieved_build(pool, out)
    stages = [event for event in heard if isinstance(event, Stage)]
    last = [event for event in stages if event.name.endswith(": finding nearest rows")][-1]
    assert last.done == last.total == 18
    return out, result


def rows_retrieved(directory: Path, *columns: str) -> list[dict[str, Any]]:
    return rows_of(directory, "retrieval_rank", "retrieval_score", *columns)


def test_each_prompt_takes_the_nearest_that_is_left_round_by_round(
    dataset: tuple[Path, BuildResult],
) -> None:
    """Compare with whole orders of the pool by CLIP, image by image."""
    recipe = load_recipe(dataset[0])
    clip = load_clip("lab:clip")
    images = clip.embed_images([Image.fromarray(scene(number)) for number in SCENES], 1).astype(
        np.float64
    )
    cells = [(shift, cls) for shift in recipe.all_shifts() for cls in recipe.classes]
    texts = clip.embed_texts([prompt_for(shift, cls) or "" for shift, cls in cells]).astype(
        np.float64
    )
    scores = texts @ images.T
    orders = np.argsort(-scores, axis=1)
    expected = {}
    taken = set()
    for turn in range(CANDIDATES):
        for index, (shift, cls) in enumerate(cells):
            rank, row = next(
                (rank, row)
                for rank, row in enumerate(orders[index].tolist(), 1)
                if row not in taken
            )
            taken.add(row)
            expected[shift.name, cls.id, turn] = (
                row,
                rank,
                pytest.approx(scores[index, row], abs=1e-3),
            )
    retrieved = {
        (row["shift"], row["class_id"], row["index"]): (
            row["source_row"],
            row["retrieval_rank"],
            row["retrieval_score"],
        )
        for row in rows_retrieved(dataset[0])
    }
    assert retrieved == expected
    assert any(rank > 1 + index for (_, _, index), (_, rank, _) in retrieved.items()), (
        "nobody had to go further"
    )


def test_a_row_may_serve_several_prompts_where_the_recipe_says_so(
    pool: Path, tmp_path: Path
) -> None:
    """More samples than the pool has images, each cell with the nearest of its own prompt."""
    repeats = ("generator.repeats=true", "samples.candidates=6")
    retrieved_build(pool, tmp_path / "out", *repeats)
    rows = rows_retrieved(tmp_path / "out")
    assert len(rows) == 36 > len({row["source_row"] for row in rows})
    assert [row["retrieval_rank"] for row in rows] == [1, 2, 3, 4, 5, 6] * 6
    assert verify(tmp_path / "out").problems == ()
    card = (tmp_path / "out" / "README.md").read_text()
    assert "an image may serve several prompts" in card and "No row is used twice" not in card
    with pytest.raises(UserError, match="a cell needs 31 samples, each a different image"):
        retrieved_build(pool, tmp_path / "many", "generator.repeats=true", "samples.candidates=31")


def test_no_image_is_there_twice(dataset: tuple[Path, BuildResult]) -> None:
    rows = rows_retrieved(dataset[0], "image", "license", "prompt")
    assert len(rows) == 2 * 3 * CANDIDATES
    assert (
        len({row["source_row"] for row in rows})
        == len({row["image"]["bytes"] for row in rows})
        == len(rows)
    )
    assert not {row["source_row"] for row in rows} & {*COPIES, BROKEN, EMPTY}
    for row in rows:
        assert np.array_equal(
            np.asarray(Image.open(io.BytesIO(row["image"]["bytes"]))),
            scene(SCENES[row["source_row"]]),
        )
        assert row["license"] == f"licence {row['source_row']}"
        assert ("red" in row["prompt"]) == (row["shift"] == "red")


def test_rows_that_nobody_can_take_are_reported(dataset: tuple[Path, BuildResult]) -> None:
    (note,) = dataset[1].notes
    assert "2 cannot be read and 2 are copies of an earlier one" in note


def test_it_is_whole_and_says_what_it_is(dataset: tuple[Path, BuildResult]) -> None:
    directory = dataset[0]
    assert verify(directory).problems == ()
    card, _, its_recipe = (directory / "README.md").read_text().partition("```yaml")
    assert "kind: retrieve" in its_recipe and "and the column `license` of each" in card
    lock = read_lock(directory)
    assert lock is not None and lock.inputs["models"].keys() == {"retrieval", "screen"}
    assert lock.inputs["models"]["retrieval"] == lock.inputs["models"]["screen"]


def test_nobody_ranks_the_pool_again(
    dataset: tuple[Path, BuildResult], pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resumed and repeated builds keep the rows of the first build."""
    again = half_done(dataset[0], tmp_path / "again", "red")

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("the pool is ranked again")

    monkeypatch.setattr(retrieved_rows, "nearest_rows", never)
    retrieved_build(pool, again)
    assert published(again) == published(dataset[0])
    overrides = [f"generator.dataset={pool}"]
    result = regenerate(dataset[0], tmp_path / "made", overrides=overrides, device="cpu", workers=1)
    assert result.comparison is not None and result.comparison.identical
    assert published(tmp_path / "made") == published(dataset[0])


@pytest.mark.whole
def test_two_workers_make_the_same_bytes(
    dataset: tuple[Path, BuildResult], pool: Path, tmp_path: Path
) -> None:
    retrieved_build(pool, tmp_path / "two", workers=2)
    assert published(tmp_path / "two") == published(dataset[0])


def test_rows_that_are_lost_are_chosen_again(
    dataset: tuple[Path, BuildResult], pool: Path, tmp_path: Path
) -> None:
    shutil.copytree(dataset[0], tmp_path / "lost")
    (tmp_path / "lost" / "rows.csv").unlink()
    assert "rows.csv" in {problem.path for problem in verify(tmp_path / "lost").problems}
    retrieved_build(pool, tmp_path / "lost")
    assert published(tmp_path / "lost") == published(dataset[0])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("base,00,", "base,05,"),
        (",1,0.", ",2,0."),
        (",0.", ",nan"),
    ],
)
def test_a_changed_table_is_seen_and_made_from_by_nobody(
    dataset: tuple[Path, BuildResult], pool: Path, tmp_path: Path, old: str, new: str
) -> None:
    shutil.copytree(dataset[0], tmp_path / "changed")
    file = tmp_path / "changed" / "rows.csv"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))
    assert "rows.csv" in {problem.path for problem in verify(tmp_path / "changed").problems}
    with pytest.raises(CounterfoilError, match=r"rows\.csv"):
        regenerate(
            tmp_path / "changed",
            tmp_path / "again",
            overrides=[f"generator.dataset={pool}"],
            device="cpu",
        )


def test_rows_past_the_end_of_the_pool_are_reported_before_any_is_taken(pool: Path) -> None:
    """Read a table as a stranger can write it, pinned by the lock beside it."""
    recipe = load_recipe("wardrobe-mini", [*RETRIEVAL, f"generator.dataset={pool}"])
    pin = pin_pool(recipe, None)
    last = EMPTY

    def taken(*rows: int) -> object:
        table: RowsByCell = {("base", "00"): [PoolRow(row, 1, 0.5) for row in rows]}
        return maker_of(recipe).renderer(
            Materials(recipe, pool=pin, table=RowTable.of(table, "retrieved"))
        )

    taken(0, last)
    for beyond in (last + 1, 10**14):
        with pytest.raises(
            UserError, match=rf"rows\.csv: 'base' of class '00': found row {beyond}, and"
        ) as caught:
            taken(0, beyond)
        assert f"has {last + 1} rows" in caught.value.problems[0]


def test_a_retrieval_is_cut_again(dataset: tuple[Path, BuildResult], tmp_path: Path) -> None:
    rows = rows_retrieved(dataset[0], "shift_score")
    scores = sorted(row["shift_score"] for row in rows if row["shift"] == "red")
    middle = scores[len(scores) // 2]
    (tmp_path / "cut.yaml").write_text(f"prompts: {{shifts: {{red: {{threshold: {middle!r}}}}}}}\n")
    recut(dataset[0], tmp_path / "cut.yaml", tmp_path / "cut")
    kept = [row for row in rows if row["shift"] == "base" or row["shift_score"] >= middle]
    assert rows_retrieved(tmp_path / "cut", "shift_score") == kept and len(kept) < len(rows)
    assert verify(tmp_path / "cut").problems == ()


def test_another_pool_of_the_same_name_is_refused(
    dataset: tuple[Path, BuildResult], pool: Path, tmp_path: Path
) -> None:
    other = tmp_path / "pool"
    rows: Any = datasets.load_from_disk(str(pool))
    rows.select(range(20)).save_to_disk(str(other))
    with pytest.raises(UserError, match="other inputs"):
        retrieved_build(other, dataset[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            f"samples.candidates={(len(SCENES) + 4) // 6 + 1}",
            f"has {len(SCENES) + 4} rows, but 36 samples are needed",
        ),
        (
            "prompts.shifts.in_the_snow={prompt: 'a {class} in the snow', classes: ['00', '05']}",
            None,
        ),
        (
            "tokens={path: lab:tokens}",
            "a pool is searched by class names, and a CLIP knows no class token",
        ),
        (
            "prompts.shifts.red={embedding: {file: a.safetensors}}",
            "rows of a pool are not drawn from embeddings",
        ),
        ("generator.guidance=3", "found guidance, expected none with kind retrieve"),
        ("generator.license_column=licence", "has no column 'licence'"),
        ("generator.image_column=picture", "has no column 'picture'"),
        ("generator.clip={weights: none}", "missing"),
    ],
)
def test_what_cannot_be_retrieved_is_reported_before_anything_is_written(
    pool: Path, change: str, message: str | None, tmp_path: Path
) -> None:
    more = [change] if message is not None else [change, "samples.candidates=4"]
    with pytest.raises(CounterfoilError) as refused:
        retrieved_build(pool, tmp_path / "out", *more)
    problems = "\n".join(refused.value.problems)
    if message is None:  # enough rows, and too few images among them
        assert "30 usable images (34 rows: 2 cannot be read, 2 are copies)" in problems
        assert "32 samples are needed" in problems
    else:
        assert message in problems
    assert not (tmp_path / "out").exists()


def test_the_clip_is_of_the_plan_by_its_name() -> None:
    named, screens, other = (
        load_recipe("wardrobe-mini", [*RETRIEVAL, change])
        for change in (
            "generator.clip={model: lab:clip}",
            "name=mini",
            "generator.clip={model: ./elsewhere/clip}",
        )
    )
    assert named.plan_hash == screens.plan_hash != other.plan_hash
    assert other.plan_document["generator"]["clip"] == {"model": "./clip", "weights": None}
    assert "elsewhere" not in other.portable_yaml


def test_a_pool_of_the_source_itself_is_reported() -> None:
    def message(*changes: str) -> str:
        recipe = load_recipe("wardrobe-mini", [*RETRIEVAL, *changes])
        return " ".join(maker_of(recipe).notes(recipe))

    assert "have seen these images" in message()
    assert "have seen these images" in message("generator.dataset=lab:wardrobe")
    assert "thresholds" in message("generator.split=validation")
    assert message("generator.split=audit") == message("generator.dataset=someone/photos") == ""


def test_check_knows_no_rate_and_fetches_nothing(pool: Path) -> None:
    settings = [
        word for change in (*RETRIEVAL, f"generator.dataset={pool}") for word in ("--set", change)
    ]
    done = run_command(["check", "wardrobe-mini", *settings])
    assert done.returncode == 0, done.stderr
    assert "no rate is known" in done.stdout
    missing = run_command(
        ["check", "wardrobe-mini", *settings, "--set", "generator.dataset=./nowhere"]
    )
    assert missing.returncode == 2 and "generator.dataset: there is no folder" in missing.stderr
