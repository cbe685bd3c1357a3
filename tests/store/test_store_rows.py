"""Columns and features: equal to what `datasets` itself writes and reads."""

from __future__ import annotations

import dataclasses
import itertools
import os
import sys
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_cases import all_candidates, build, candidate_of, candidates_of, opened, plan_of

import warm
from clip_verdicts import clip_verdict
from counterfoil.plan.layout import Plan
from counterfoil.recipe import RecipeClass
from counterfoil.store.dataset_store import DatasetStore
from counterfoil.store.layout import (
    SUFFIXES,
    WHATS,
    ShardFile,
    What,
    parse_receipt_path,
    parse_shard_path,
    receipt_path,
    shard_path,
)
from counterfoil.store.reading import read_batches, read_rows
from counterfoil.store.rows import (
    Candidate,
    TableForm,
    arrow_schema,
    features,
    stored_row,
    unique_names,
    webdataset_features,
)
from counterfoil.store.shard_files import ROWS_A_GROUP_WITH_IMAGES
from support.files import published
from support.refusals import refuses

NAMES = ["crane (a)", "crane (b)", "coot"]


@pytest.mark.parametrize("embeddings", [False, True])
@pytest.mark.parametrize("what", WHATS)
def test_schema_is_what_datasets_writes(what: What, embeddings: bool) -> None:
    import datasets

    ours = arrow_schema(what, NAMES, TableForm(embeddings))
    reference = datasets.Features.from_dict(features(what, NAMES, TableForm(embeddings)))
    assert ours.equals(reference.arrow_schema, check_metadata=False)
    assert ours.metadata == reference.arrow_schema.metadata
    read = datasets.Features.from_arrow_schema(ours)
    assert read == reference
    assert isinstance(read["label"], datasets.ClassLabel)
    assert read["label"].names == NAMES
    assert ("image" in read) == (what != "candidates")
    assert ("reason" in read) == (what != "data")


def test_webdataset_features_are_understood() -> None:
    import datasets

    declared = datasets.Features.from_dict(
        webdataset_features("data", NAMES, TableForm(True), "webp")
    )
    assert list(declared) == ["cls", "json", "webp", "__key__", "__url__"]
    assert isinstance(declared["webp"], datasets.Image)
    assert declared["cls"] == datasets.ClassLabel(names=NAMES)
    assert "image" not in declared["json"]
    without = webdataset_features("candidates", NAMES, TableForm(), "webp")
    assert list(without) == ["cls", "json", "__key__", "__url__"]


def named(*names: str) -> list[RecipeClass]:
    return [
        RecipeClass(f"n{label + 1}", name, label, label, ()) for label, name in enumerate(names)
    ]


def test_names_become_unique() -> None:
    assert unique_names(named("crane", "crane", "coot")) == ("crane (n1)", "crane (n2)", "coot")
    assert unique_names(named("a", "b")) == ("a", "b")


def test_names_stay_unique_beside_a_class_that_looks_like_one() -> None:
    names = unique_names(named("crane", "crane", "crane (n1)"))
    assert len(set(names)) == 3
    assert all(id in name for id, name in zip(["n1", "n2", "n3"], names, strict=True))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_score_is_a_number_or_none(value: float) -> None:
    plan = plan_of()
    sample = next(plan.shards[0].samples(plan))
    candidate = replace(candidate_of(sample), verdict=clip_verdict((value, None), (0.25, None)))
    with pytest.raises(ValueError, match=rf"{sample.key}: object_score is {value}"):
        stored_row(candidate, "data", TableForm(), "png")


# Paths: each is read back to what it was made from, and nothing else is taken for one.


slugs = st.from_regex(r"[a-z0-9_]+", fullmatch=True)


@given(
    st.sampled_from(WHATS),
    slugs,
    slugs,
    st.integers(0, 10**6),
    st.integers(1, 10**6),
    st.sampled_from(list(SUFFIXES)),
)
def test_shard_paths_read_back(what, group, split, number, of, format) -> None:
    path = shard_path(what, group, split, number, of, format)
    assert parse_shard_path(path) == ShardFile(what, group, split, number, of, SUFFIXES[format])
    assert parse_receipt_path(receipt_path(group, number)) == (group, number)


def test_paths_are_those_of_datasets() -> None:
    assert (
        shard_path("data", "grass", "test", 0, 5, "parquet")
        == "data/grass/test-00000-of-00005.parquet"
    )
    assert (
        shard_path("candidates", "base", "test", 4, 5, "webdataset")
        == "candidates/base/test-00004-of-00005.tar"
    )


@pytest.mark.parametrize(
    "path",
    [
        "data/test-00000-of-00005.parquet",
        "data/a/test-0-of-5.parquet",
        "figures/a/test-00000-of-00005.tar",
        "data/a/b/test-00000-of-00005.tar",
        "data/a/test-00000-of-00005.parquet.17.cf.tmp",
    ],
)
def test_other_paths_are_not_taken_for_shards(path: str) -> None:
    assert parse_shard_path(path) is None


# What is read back is what was written, and the bytes depend on nothing but the content.


SCORE = st.none() | st.floats(-1, 1, width=32)


def expected_rows(candidates: list[Candidate], what: What, embeddings: bool = False) -> list[dict]:
    chosen = [
        c
        for c in candidates
        if what == "candidates"
        or (c.accepted if what == "data" else not c.accepted and c.image is not None)
    ]
    return [_expected(candidate, what, embeddings) for candidate in chosen]


def _expected(candidate: Candidate, what: What, embeddings: bool) -> dict:
    def float32(value: float | None) -> float | None:
        return None if value is None else float(np.float32(value))

    sample = candidate.sample
    values = {
        name: getattr(sample, name)
        for name in ("key", "label", "shift", "class_id", "index", "pair", "prompt", "seed")
    }
    for name in ("object", "shift"):
        values[f"{name}_score"] = float32(candidate.verdict.scores[name])
        values[f"{name}_threshold"] = float32(candidate.verdict.thresholds[name])
    if what != "candidates":
        values["image"] = {"bytes": candidate.image, "path": f"{sample.key}.png"}
    if what != "data":
        values["reason"] = candidate.reason
    if embeddings:
        embedding = candidate.embedding
        values["embedding"] = None if embedding is None else [float32(value) for value in embedding]
    return values


@pytest.mark.parametrize("what", WHATS)
def test_rows_come_back_in_the_order_of_the_plan(
    built: dict[str, Path], format: str, what: What
) -> None:
    expected = expected_rows(all_candidates(plan_of()), what)
    assert expected, "there are rows of every kind"
    assert list(read_rows(built[format], what=what)) == expected


def test_columns_and_groups_are_chosen(built: dict[str, Path], format: str) -> None:
    dataset = built[format]
    rows = list(read_rows(dataset, columns=["shift", "key"], groups=["weather"], what="candidates"))
    assert {tuple(row) for row in rows} == {("shift", "key")}
    assert {row["shift"] for row in rows} == {"snow", "rain"}
    assert next(b.schema.names for b in read_batches(dataset, columns=["label", "image"])) == [
        "label",
        "image",
    ]
    with pytest.raises(ValueError, match="has no column reason; it has key, "):
        list(read_rows(dataset, columns=["reason"]))
    with refuses("unknown-group", dataset, "'grass'") as caught:
        list(read_rows(dataset, groups=["grass"]))
    assert caught.value.hint == "Its groups are base, weather, nowhere."


def test_rows_of_an_unfinished_dataset_are_those_with_a_receipt(
    tmp_path: Path, format: str
) -> None:
    plan = plan_of(f"output.format={format}")
    with opened(tmp_path, plan) as store:
        shard = store.pending()[1]
        store.writer.write(shard, candidates_of(plan, shard))
        (tmp_path / "candidates/base/test-00000-of-00002.parquet").write_bytes(b"in flight")
        expected = expected_rows(candidates_of(plan, shard), "candidates")
        assert list(read_rows(str(tmp_path), what="candidates")) == expected
        assert list(read_rows(tmp_path, groups=["weather"])) == []


def test_a_folder_without_a_dataset_is_not_read(tmp_path: Path) -> None:
    with refuses("no-dataset"):
        list(read_rows(tmp_path))


def test_both_formats_give_equal_batches(built: dict[str, Path]) -> None:
    parquet, tar = (list(read_batches(dataset)) for dataset in built.values())
    assert [batch.schema for batch in parquet] == [batch.schema for batch in tar]
    assert [batch.to_pylist() for batch in parquet] == [batch.to_pylist() for batch in tar]


@st.composite
def any_candidates(draw: st.DrawFn) -> list[Candidate]:
    """Draw a quota cell that stopped anywhere, with any content that the types allow."""
    plan = _QUOTA["parquet"]
    count = draw(st.integers(1, 6))
    candidates = []
    for sample in list(plan.shards[0].samples(plan))[:count]:
        reason = draw(
            st.sampled_from(["accepted", "low_object", "surplus", "failed"])
            | st.text(min_size=1, max_size=5)
        )
        may_fail = st.none() if reason == "failed" else st.binary(max_size=50)
        prompt = draw(st.text(st.characters(codec="utf-8"), max_size=20) | st.none())
        embedding = draw(
            st.none()
            | st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=3)
        )
        candidates.append(
            Candidate(
                dataclasses.replace(sample, prompt=prompt),
                clip_verdict((draw(SCORE), draw(SCORE)), (draw(SCORE), draw(SCORE))),
                reason,
                draw(may_fail),
                embedding,
            )
        )
    return candidates


_QUOTA: dict[str, Plan] = {
    format: plan_of(
        "samples.candidates=null",
        "samples.accepted=2",
        "samples.at_most=8",
        "screen.store_embeddings=true",
        f"output.format={format}",
    )
    for format in ("parquet", "webdataset")
}


@pytest.mark.parametrize("which", ["parquet", "webdataset"])
@given(candidates=any_candidates())
def test_any_row_reads_back_as_it_was_written(which: str, candidates: list[Candidate]) -> None:
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder), _QUOTA[which]) as store:
        store.writer.write(store.pending()[0], candidates)
        for what in WHATS:
            assert list(read_rows(Path(folder), what=what)) == expected_rows(
                candidates, what, embeddings=True
            )


def test_another_process_writes_the_same_bytes(
    built: dict[str, Path], tmp_path: Path, format: str
) -> None:
    rebuilt = tmp_path / "there"
    code = (
        "import sys, time; from pathlib import Path; from store_cases import build, plan_of;"
        " time.tzset(); "
        "build(Path(sys.argv[1]), plan_of(sys.argv[2]))"
    )
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    # Its hashes of texts have another seed than those here: each process that is not forked draws
    # one.
    environment = {**os.environ, "PYTHONPATH": paths, "TZ": "Asia/Tokyo"}
    arguments = [sys.executable, "-c", code, str(rebuilt), f"output.format={format}"]
    warm.run(arguments, environment, cwd=tmp_path, check=True)
    assert published(built[format]) == published(rebuilt)


def test_the_order_of_writing_changes_no_byte(
    built: dict[str, Path], tmp_path: Path, format: str
) -> None:
    plan = plan_of(f"output.format={format}")
    with opened(tmp_path / "backward", plan) as store:
        for shard in reversed(store.pending()):
            store.writer.write(shard, candidates_of(plan, shard))
    build(tmp_path / "backward", plan)
    assert published(built[format]) == published(tmp_path / "backward")


def test_no_member_of_a_tar_tells_who_wrote_it_or_when(built: dict[str, Path]) -> None:
    for path in built["webdataset"].rglob("*.tar"):
        with tarfile.open(path) as tar:
            members = tar.getmembers()
        assert {(m.mtime, m.uid, m.gid, m.uname) for m in members} == {(0, 0, 0, "counterfoil")}
        stems = [member.name.partition(".")[0] for member in members]
        assert [stem for stem, _ in itertools.groupby(stems)] == list(dict.fromkeys(stems)), (
            "not adjacent"
        )


def test_a_key_longer_than_a_plain_tar_header_survives(tmp_path: Path) -> None:
    plan = plan_of(
        "output.format=webdataset",
        f"source.classes=[{{id: {'n' * 96}, name: crane, source_label: 0}}]",
    )
    build(tmp_path, plan)
    assert list(read_rows(tmp_path)) == expected_rows(all_candidates(plan), "data")


def test_row_groups_are_fixed_and_images_are_not_packed_again(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    plan = plan_of("samples.candidates=150", "output.rows_per_shard=450")
    shard = plan.shards[0]
    accepted = [
        dataclasses.replace(c, reason="accepted", image=b"x" * 5000)
        for c in candidates_of(plan, shard)
    ]
    with opened(tmp_path, plan) as store:
        receipt = store.writer.write(shard, accepted)
    file = receipt.file("data")
    assert file is not None
    metadata = pq.read_metadata(tmp_path / file.path)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    assert [group.num_rows for group in groups] == [100, 100, 100, 100, 50]
    # The Hub's viewer takes 300 MB of a file at once, and a row may have 2 MB.
    assert ROWS_A_GROUP_WITH_IMAGES * 2_000_000 <= 300_000_000
    columns = {
        groups[0].column(c).path_in_schema: groups[0].column(c)
        for c in range(groups[0].num_columns)
    }
    assert columns["image.bytes"].compression == "UNCOMPRESSED"
    assert columns["prompt"].compression == "SNAPPY"
    assert all(column.has_offset_index for column in columns.values()), (
        "pages can be fetched one by one"
    )
    assert columns["seed"].has_column_index
    assert columns["image.bytes"].statistics is None


def test_candidates_of_another_shard_or_order_are_refused(tmp_path: Path) -> None:
    plan = plan_of()
    first = plan.shards[0]
    second = plan.shards[1]
    rows = candidates_of(plan, first)

    def write(store: DatasetStore, candidates: list[Candidate]) -> None:
        store.writer.write(first, candidates)

    with opened(tmp_path, plan) as store:
        for wrong, message in [
            (candidates_of(plan, second), "not a sample of shard base-00000"),
            (rows[::-1], "out of order"),
            ([*rows, rows[-1]], "out of order"),
            (rows[:-1], "3 candidates of base, label 1, expected 4"),
            (
                [
                    dataclasses.replace(
                        candidate_of(rows[0].sample), reason="accepted", image=None
                    ),
                    *rows[1:],
                ],
                "no image",
            ),
        ]:
            with pytest.raises(ValueError, match=message):
                write(store, wrong)
        assert len(store.pending()) == plan.n_shards
