"""Inputs of mending: tables of keys, equal numbers of each class, and nothing shared with the
judging images."""

from __future__ import annotations

import os
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from counterfoil.data.labelled_images import LabelledImages
from counterfoil.errors import RunFailure, UserError
from counterfoil.mending.given import MOST_ROWS, _table, numbered_groups, read_key_table
from counterfoil.mending.one_model import context_rows, refuse_infinite_features
from counterfoil.mending.prepared import (
    Known,
    confirm_chose,
    pixels_of,
    refuse_mined_on_judges,
    refuse_near_chance,
    refuse_shared,
)
from counterfoil.mending.variants import Context, choose_train_rows, equal_numbers, rows_within
from counterfoil.recipe import load_recipe
from support.images import encoded
from support.refusals import problems_of

OURS = Known("ours", ("a", "b"), ("1", None), ("u", "v"), "photos", frozenset({5}))
THEIRS = Known("theirs", ("x", "y"), ("2", None), ("w", "z"), "photos", frozenset({6}))


def test_two_sides_that_share_nothing_pass() -> None:
    """Undecodable images are no common pictures, and units of another dataset are other units."""
    refuse_shared([OURS], [THEIRS])
    refuse_shared([OURS], [replace(THEIRS, units=("u", "z"), of="other photos")])


@pytest.mark.parametrize(
    ("shared", "says"),
    [
        ({"pixels": ("1", None)}, "1 image of ours and theirs are the same, such as x"),
        ({"units": ("v", "u")}, "ours and theirs share 2 units, such as u"),
        (
            {"seeds": frozenset({5, 6})},
            "1 image of ours and images of theirs come from the same noise",
        ),
    ],
)
def test_each_thing_that_is_shared_is_refused(shared: dict, says: str) -> None:
    problems = problems_of(refuse_shared, [OURS], [THEIRS, replace(THEIRS, **shared)])
    assert len(problems) == 1 and says in problems[0]


def test_edits_of_rows_are_no_images_to_learn_from_where_those_judge() -> None:
    edits = replace(OURS, edited=frozenset({"y", "q"}), edited_of="photos")
    with pytest.raises(UserError, match="ours are edits of 1 image of theirs, such as y"):
        refuse_shared([edits], [THEIRS])
    refuse_shared([edits], [replace(THEIRS, of="other photos")])
    with pytest.raises(UserError, match="ours are edits of 1 image of theirs, such as y"):
        refuse_shared([THEIRS], [edits])


def test_edits_of_one_row_are_on_one_side_alone() -> None:
    left, right = (
        replace(side, edited=frozenset({"q", side.name}), edited_of="photos")
        for side in (OURS, THEIRS)
    )
    with pytest.raises(UserError, match="ours and theirs share 1 edited row, such as q"):
        refuse_shared([left], [replace(right, of="built")])
    refuse_shared([left], [replace(right, edited_of="other photos")])


def test_what_is_audited_shares_nothing_with_the_test() -> None:
    """Rows of its discover half choose λ, and balanced groups learn from them."""
    test = replace(THEIRS, name="test", pixels=("3", None), units=("s", "t"), seeds=frozenset())
    refuse_shared([OURS], [THEIRS], [test])
    pixels: dict[str, Any] = {"pixels": ("2", "4")}
    units: dict[str, Any] = {"units": ("w", "s")}
    for shared, says in ((pixels, "1 image of theirs and test"), (units, "1 unit")):
        with pytest.raises(UserError, match=says):
            refuse_shared([OURS], [THEIRS], [replace(test, **shared)])


BUILT = "/home/somebody/built:contexts"


def test_what_was_mined_on_rows_that_judge_is_refused_and_what_cannot_be_compared_is_told() -> None:
    audited = "a" * 64
    test = "b" * 64

    def judged(record: dict) -> tuple[str, ...]:
        return refuse_mined_on_judges(
            [(BUILT, (record,))], {audited: "validation"}, "1" * 64, {test: "test"}
        )

    on = {"on": [{"name": "photos", "content": audited}]}
    assert judged(on | {"discover_sha256": "1" * 64}) == ()
    for record, says in (
        (on | {"discover_sha256": "2" * 64}, "than the discover half here"),
        (on, "does not say on which half"),
        (
            {"on": [{"name": "photos", "content": test}], "discover_sha256": "1" * 64},
            "which is the test here",
        ),
    ):
        with pytest.raises(UserError, match=says):
            judged(record)
    for record, says in (
        ({}, "./built:contexts does not say which rows it was mined on"),
        (
            {"on": [{"name": "photos", "content": "c" * 64}]},
            "mined on photos, and no images tested here",
        ),
    ):
        (note,) = judged(record)
        assert says in note


def test_what_the_confirm_half_confirmed_is_judged_by_a_test_or_refused() -> None:
    """`hard` of a recipe of findings holds confirmed images; contexts are drawn also if they are
    not confirmed."""
    audited = "a" * 64
    test = "b" * 64
    on = {"on": [{"name": "photos", "content": audited}], "discover_sha256": "1" * 64}
    confirmed = on | {"finding": "striped_shirt", "role": "hard", "q": 0.01}
    for record, chose in (
        (confirmed, True),
        (on | {"finding": "striped_shirt", "role": "easy"}, True),
        (confirmed | {"tested_on": "both"}, True),
        (confirmed | {"tested_on": "rendered"}, False),
        (confirmed | {"confirmed": True, "rank": 0}, False),
        (confirmed | {"confirmed": False, "rank": 0}, False),
        (confirmed | {"on": [{"name": "photos", "content": "c" * 64}]}, False),
        (on | {"pool": "unlabelled"}, False),
    ):
        assert confirm_chose((record,), {audited: "validation"}) == chose, record
        if chose:
            with pytest.raises(
                UserError,
                match="comes from findings that the confirm half of validation confirmed, and",
            ):
                refuse_mined_on_judges([(BUILT, (record,))], {audited: "validation"}, "1" * 64, {})
        assert (
            refuse_mined_on_judges(
                [(BUILT, (confirmed,))], {audited: "validation"}, "1" * 64, {test: "test"}
            )
            == ()
        )


def images_of(*contents: bytes) -> LabelledImages:
    keys = tuple(f"{index}" for index in range(len(contents)))
    zeros = np.zeros(len(contents), dtype=np.int64)
    name = f"{hash(contents):x}"
    read = dict(zip(keys, contents, strict=True))
    return LabelledImages(
        name, f"test-{name}", keys, zeros, zeros, ("all",),
        lambda wanted: ((key, content) for key, content in read.items() if wanted is None or key in wanted),
    )  # fmt: skip


def test_a_picture_is_the_same_however_it_is_encoded() -> None:
    rng = np.random.default_rng(0)
    picture, other = (
        Image.fromarray(rng.integers(0, 256, (8, 6, 3), dtype=np.uint8)) for _ in range(2)
    )
    # the same bytes in another shape
    turned = Image.fromarray(np.asarray(picture).reshape(6, 8, 3))
    images = images_of(
        encoded(picture, "PNG"),
        encoded(picture, "WEBP", lossless=True),
        encoded(other, "PNG"),
        b"no image",
        encoded(turned, "PNG"),
    )
    hashes = pixels_of(images)
    assert hashes[0] == hashes[1] and hashes[3] is None
    assert len({hashes[0], hashes[2], hashes[4]}) == 3
    # What is kept is found again without an image being read.
    assert pixels_of(replace(images, read=lambda wanted: iter(()))) == hashes


def test_a_row_is_in_the_context_of_its_class_that_it_is_most_like_or_in_none() -> None:
    recipe = load_recipe("wardrobe-mini")
    contexts = [
        Context("a", 0, "first", "first"),
        Context("b", 0, "second", "second"),
        Context("c", 1, "third", "third"),
    ]
    vectors = {
        "first": 0,
        "second": 1,
        "third": 2,
        "a photo of a t-shirt": 3,
        "a photo of a trouser": 4,
    }

    def embed(texts):
        return np.eye(5, dtype=np.float32)[[vectors[text] for text in texts]]

    features = np.eye(5, dtype=np.float32)
    dealt = context_rows(contexts, recipe, features, np.asarray([0, 0, 0, 0, 1], np.int64), embed)
    indices = dealt.among([0, 1, 2])
    # The third is like the context of another class alone, the last two like their class without
    # any.
    assert indices.tolist() == [0, 1, -1, -1, -1]
    assert context_rows(contexts, recipe, features[2:3], np.asarray([1], np.int64), embed).among(
        [0, 1, 2]
    ).tolist() == [2]
    assert (
        context_rows([], recipe, features, np.zeros(5, dtype=np.int64), embed).among([]).tolist()
        == [-1] * 5
    )
    # Among some of the contexts a row of another is in the one that is next, or in none.
    assert dealt.among([1]).tolist() == [-1, 1, -1, -1, -1] and dealt.among([]).tolist() == [-1] * 5


def test_features_that_are_no_numbers_are_told() -> None:
    features = np.zeros((3, 2))
    refuse_infinite_features("m", features, "photos")
    features[1, 0] = np.nan
    with pytest.raises(RunFailure, match="1 of 3 images of photos"):
        refuse_infinite_features("m", features, "photos")


def test_a_base_near_chance_is_judged_as_evaluate_judges_it() -> None:
    """Accuracy is averaged over classes with images enough; one of several classes near chance is a
    note."""
    labels = np.repeat([0, 1, 2], [20, 20, 3])
    chances = np.full(3, 1 / 3)
    names = ["a", "b", "c"]

    def notes(*shares: float) -> tuple[str, ...]:
        counts = zip(shares, (20, 20, 3), strict=True)
        right = np.concatenate([np.arange(count) < round(share * count) for share, count in counts])
        return refuse_near_chance("m", "d", right, labels, chances, names, 5)

    assert notes(1, 1, 0) == ()
    (note,) = notes(1, 0.3, 1)
    assert note.startswith("m is near chance on the base of d for 1 of 2 classes (b)")
    with pytest.raises(
        UserError, match=r"m is near chance on the base of d: 35\.0 % of 40 images right"
    ):
        notes(0.4, 0.3, 1)
    few = np.zeros(3, dtype=np.int64)
    assert refuse_near_chance("m", "d", few > 0, few, chances, names, 5) == ()


COLUMNS: dict[str, type] = {"key": str, "weight": float}


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path, store_schema=False)
    return path


def test_what_is_written_is_read_in_its_order(tmp_path: Path) -> None:
    keys = [f"train_{row:08d}" for row in range(20_000)]
    weights = np.arange(20_000) / 7
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        table = pa.table({"key": pa.array(keys).cast(kind), "weight": weights, "other": keys})
        pq.write_table(table.replace_schema_metadata({"from": "here"}), tmp_path / "w.parquet")
        columns, metadata = read_key_table(tmp_path / "w.parquet", "w", COLUMNS)
        assert columns == {"key": keys, "weight": weights.tolist()}
        assert metadata[b"from"] == b"here"


ODD: dict[str, tuple[dict[str, Any], str]] = {
    "no column": ({"key": ["a"]}, "'weight'|weight"),
    "numbers for keys": (
        {"key": [1], "weight": [1.0]},
        "has the column 'key' of int64, expected text",
    ),
    "texts for weights": (
        {"key": ["a"], "weight": ["1"]},
        "has the column 'weight' of string, expected numbers",
    ),
    "times": ({"key": pa.array([2**62], pa.timestamp("us")), "weight": [1.0]}, "expected text"),
    "bytes": ({"key": pa.array([b"\xff"], pa.binary()), "weight": [1.0]}, "expected text"),
    "lists": ({"key": [["a"]], "weight": [1.0]}, "expected text"),
    "nothing in a row": ({"key": ["a", None], "weight": [1.0, 1.0]}, "a row is empty"),
}


@pytest.mark.parametrize("case", ODD)
def test_what_is_no_such_table_is_told(tmp_path: Path, case: str) -> None:
    columns, says = ODD[case]
    with pytest.raises(UserError, match=says) as error:
        read_key_table(
            parquet(tmp_path / "w.parquet", **columns), "--with w", COLUMNS, "Write them."
        )
    assert str(error.value).startswith("--with w: ") and error.value.hint == "Write them."


def test_text_that_is_no_text_is_told(tmp_path: Path) -> None:
    keys = pa.array([b"\xff\xfe"], pa.binary()).view(pa.string())
    with pytest.raises(UserError, match="expected a Parquet"):
        read_key_table(parquet(tmp_path / "w.parquet", key=keys, weight=[1.0]), "w", COLUMNS)


def test_groups_of_long_names_are_numbered_as_short_ones_are() -> None:
    names = ["b", "a", "c" * 120_000] * 4000
    by_key = {f"k{index}": name for index, name in enumerate(names)}
    assert numbered_groups(by_key, list(by_key), "dfr:w").tolist() == [1, 0, 2] * 4000


@pytest.mark.parametrize("bomb", ["one long text in every row", "one row many times"])
def test_a_bomb_takes_no_memory(tmp_path: Path, bomb: str) -> None:
    text, rows = ("x" * 1_000_000, 3_000) if bomb.startswith("one long") else ("a", MOST_ROWS + 1)
    key = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, dtype=np.int32)), [text])
    file = parquet(tmp_path / "w.parquet", key=key, weight=np.zeros(rows))
    assert file.stat().st_size < 50_000
    del key
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=r"has a text of|rows, expected at most"):
        read_key_table(file, "w", COLUMNS)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "w.parquet")
    with pytest.raises(UserError, match="is a pipe"):
        read_key_table(tmp_path / "w.parquet", "w", COLUMNS)


def test_groups_of_a_csv_have_bounds_too(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text(f"key,group\na,{'x' * 100_000}\n")
    with pytest.raises(UserError, match="a key or group of over 1,000 letters"):
        _table(str(tmp_path / "g.csv"))
    (tmp_path / "g.csv").write_text("key,group\na,rain\nb,\n")
    assert _table(str(tmp_path / "g.csv")) == {"a": "rain", "b": ""}


LABELS = (
    np.random.default_rng(1)
    .choice([0, 1, 2, 7], size=300, p=[0.5, 0.4, 0.08, 0.02])
    .astype(np.int64)
)


def counts(labels: np.ndarray) -> dict[int, int]:
    return {label: int((labels == label).sum()) for label in np.unique(labels).tolist()}


def test_of_each_class_so_many_come_or_all_that_there_are() -> None:
    rows = choose_train_rows(LABELS, 30, 0)
    assert counts(LABELS[rows]) == {label: min(30, n) for label, n in counts(LABELS).items()}
    assert rows.tolist() == sorted(set(rows.tolist()))


def test_a_class_is_drawn_alike_whatever_the_others_are() -> None:
    alone = np.where(LABELS == 1, LABELS, 0)
    drawn = [
        set(choose_train_rows(labels, 10, seed=3).tolist()) & set(np.flatnonzero(LABELS == 1))
        for labels in (LABELS, alone)
    ]
    assert drawn[0] == drawn[1] and len(drawn[0]) == 10


def test_another_seed_draws_others_and_fewer_are_a_part_of_more() -> None:
    first, again, other, more = (
        choose_train_rows(LABELS, rows, seed).tolist()
        for rows, seed in ((10, 1), (10, 1), (10, 2), (30, 1))
    )
    assert first == again != other and set(first) < set(more)


def test_arms_are_cut_to_equal_numbers_of_each_class() -> None:
    variants = {
        "contexts": LABELS,
        "class_name": LABELS[:90],
        "random_contexts": np.repeat([0, 1, 2], 11),
    }
    cut = equal_numbers(variants, seed=5)
    per_class = [counts(labels[cut[name]]) for name, labels in variants.items()]
    assert per_class[0] == per_class[1] == per_class[2]
    for label in (0, 1, 2):
        assert per_class[0][label] == min(
            int((labels == label).sum()) for labels in variants.values()
        )
    assert 7 not in per_class[0]  # one variant has none
    none = equal_numbers({"a": LABELS, "b": LABELS[:0]}, 0)
    assert [len(rows) for rows in none.values()] == [0, 0]


RANKS = np.repeat([0, 1, 2, 0, 1], [6, 6, 6, 2, 6])
SHIFTS = np.repeat([0, 1, 2, 3, 4], [6, 6, 6, 2, 6])


@pytest.mark.parametrize(("k", "images"), [(2, 4), (None, 5), (2, None)])
def test_a_curves_rows_are_of_the_first_contexts_and_at_most_so_many_of_each(
    k: int | None, images: int | None
) -> None:
    rows = rows_within(RANKS, SHIFTS, k=k, images=images)
    wanted = {
        shift: min(n, images or n)
        for shift, n in counts(SHIFTS).items()
        if k is None or RANKS[shift == SHIFTS][0] < k
    }
    assert counts(SHIFTS[rows]) == wanted


def test_images_of_no_context_are_in_every_point_of_a_curve() -> None:
    shifts = np.where(SHIFTS == 3, -1, SHIFTS)
    outside = set(np.flatnonzero(shifts < 0).tolist())
    rows = rows_within(RANKS, shifts, images=1)
    assert outside <= set(rows.tolist()) and len(rows) == len(outside) + 4
    assert rows_within(RANKS, shifts, images=6).tolist() == list(range(len(shifts)))


def test_points_of_a_curve_add_to_each_other() -> None:
    few, more = (set(rows_within(RANKS, SHIFTS, k=2, images=n, seed=4).tolist()) for n in (2, 4))
    assert few < more
    assert set(rows_within(RANKS, SHIFTS, k=1, images=2, seed=4).tolist()) < few
