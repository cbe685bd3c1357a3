"""Columns and features: equal to what `datasets` itself writes and reads."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from store_cases import candidate_of, plan_of

from clip_verdicts import clip_verdict
from counterfoil.store.layout import WHATS, What
from counterfoil.store.rows import TableForm, arrow_schema, features, row, unique_names, webdataset_features

NAMES = ["crane (a)", "crane (b)", "coot"]


@pytest.mark.parametrize("embeddings", [False, True])
@pytest.mark.parametrize("what", WHATS)
def test_schema_is_what_datasets_writes(what: What, embeddings: bool) -> None:
    import datasets

    ours = arrow_schema(what, NAMES, TableForm(embeddings))
    theirs = datasets.Features.from_dict(features(what, NAMES, TableForm(embeddings)))
    assert ours.equals(theirs.arrow_schema, check_metadata=False)
    assert ours.metadata == theirs.arrow_schema.metadata
    read = datasets.Features.from_arrow_schema(ours)
    assert read == theirs
    assert isinstance(read["label"], datasets.ClassLabel)
    assert read["label"].names == NAMES
    assert ("image" in read) == (what != "candidates")
    assert ("reason" in read) == (what != "data")


def test_webdataset_features_are_understood() -> None:
    import datasets

    declared = datasets.Features.from_dict(webdataset_features("data", NAMES, TableForm(True), "webp"))
    assert list(declared) == ["cls", "json", "webp", "__key__", "__url__"]
    assert isinstance(declared["webp"], datasets.Image)
    assert declared["cls"] == datasets.ClassLabel(names=NAMES)
    assert "image" not in declared["json"]
    without = webdataset_features("candidates", NAMES, TableForm(), "webp")
    assert list(without) == ["cls", "json", "__key__", "__url__"]


def test_names_become_unique() -> None:
    assert unique_names([("n1", "crane"), ("n2", "crane"), ("n3", "coot")]) == (
        "crane (n1)",
        "crane (n2)",
        "coot",
    )
    assert unique_names([("n1", "a"), ("n2", "b")]) == ("a", "b")


def test_names_stay_unique_beside_a_class_that_looks_like_one() -> None:
    names = unique_names([("n1", "crane"), ("n2", "crane"), ("n3", "crane (n1)")])
    assert len(set(names)) == 3
    assert all(id in name for id, name in zip(["n1", "n2", "n3"], names, strict=True))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_score_is_a_number_or_none(value: float) -> None:
    plan = plan_of()
    sample = next(plan.shards[0].samples(plan))
    candidate = replace(candidate_of(sample), verdict=clip_verdict((value, None), (0.25, None)))
    with pytest.raises(ValueError, match=rf"{sample.key}: object_score is {value}"):
        row(candidate, "data", TableForm(), "png")


def test_metadata_is_the_same_text_as_that_of_datasets() -> None:
    import datasets

    info = json.loads(arrow_schema("data", NAMES, TableForm()).metadata[b"huggingface"])
    theirs = datasets.Features.from_dict(features("data", NAMES, TableForm()))
    assert list(info["info"]["features"]) == list(theirs)
