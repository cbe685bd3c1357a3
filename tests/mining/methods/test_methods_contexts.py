"""Contexts as hypotheses, on made vectors whose contexts and failures are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from counterfoil.errors import UserError
from counterfoil.mining.contexts.choosing import nearest_context
from counterfoil.mining.contexts.templates import plain_caption, prompt_in, words_alone
from counterfoil.mining.method import CandidateCaptions, DiscoverHalf, Found
from counterfoil.mining.methods.contexts import find_contexts
from counterfoil.mining.mine_recipe import mine
from counterfoil.recipe.schema_mine import ContextsSettings, Mine

WIDTH, ROWS = 16, 300
SETTINGS = ContextsSettings(contexts="wardrobe")
CONTEXTS = ("in the snow", "at night", "on the beach", "in a cave")
SHARES = (0.1, 0.5, 0.3, 0.1)


def made(failing: dict[int, float], doubles: bool = False, **settings: object) -> tuple[DiscoverHalf, Found]:
    """One class whose images are in known contexts; `failing` says how often each of these fails, 0 elsewhere."""
    rng = np.random.default_rng(3)
    context = rng.choice(len(CONTEXTS), size=ROWS, p=SHARES)
    axes = np.eye(WIDTH)
    features = 3 * axes[0] + axes[1 + context] + 0.05 * rng.normal(size=(ROWS, WIDTH))
    failed = rng.random(ROWS) < np.asarray([failing.get(one, 0.0) for one in range(len(CONTEXTS))])[context]
    texts = [plain_caption(SETTINGS, "thing"), *(SETTINGS.caption("thing", one) for one in CONTEXTS)]
    vectors = np.stack([axes[0], *(3 * axes[0] + axes[1 + place] for place in range(len(CONTEXTS)))])
    if doubles:
        texts.append(SETTINGS.caption("thing", "on snow"))
        vectors = np.concatenate([vectors, vectors[1:2] + 0.001 * axes[9]])
    half = DiscoverHalf(
        features=unit(features).astype(np.float32),
        labels=np.zeros(ROWS, np.int64),
        failed=failed,
        answers=np.zeros((ROWS, 1), np.int32),
        units=np.arange(ROWS),
        centre=np.zeros(WIDTH),
        spread=np.ones(WIDTH),
        captions=CandidateCaptions(tuple(texts), unit(vectors).astype(np.float32), (0,), (np.arange(1, len(texts)),)),
        class_names=("thing",),
        categories=(None,),
    )
    given = ContextsSettings.model_validate({"contexts": "wardrobe", "similarity": 0.995, **settings})
    return half, find_contexts(half, Mine(), given, 1)


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_the_sets_of_all_contexts_are_a_partition_of_the_class() -> None:
    half, found = made(dict.fromkeys(range(4), 0.5), k=4)
    members = np.stack([one.members(half.features, half.labels) for one in found.hypotheses])
    assert len(members) == 4 and (members.sum(axis=0) == 1).all()


def test_count_takes_what_is_frequent_and_lift_what_fails() -> None:
    failing = {0: 0.9, 1: 0.25, 2: 0.1}
    by_count = made(failing, rank="count")[1].hypotheses
    by_lift = made(failing, rank="lift")[1].hypotheses
    assert by_count[0].words == "thing at night" and by_lift[0].words == "thing in the snow"
    assert by_lift[0].about["lift"] > 5 and by_lift[0].about["rank"] == 0
    assert all(one.caption == SETTINGS.caption("thing", one.words.removeprefix("thing ")) for one in by_lift)


def test_evidence_are_rows_of_the_set_the_failures_first() -> None:
    half, found = made({0: 0.6})
    (one,) = found.hypotheses
    assert one.members(half.features, half.labels)[one.evidence].all()
    wrong = half.failed[one.evidence]
    assert wrong.any() and not wrong.all() and (np.diff(wrong.astype(int)) <= 0).all()


def test_all_contexts_are_told_with_both_shares_the_chosen_ones_first() -> None:
    half, found = made({0: 0.9, 1: 0.25}, k=1, rank="lift")
    contexts = found.notes[0].contexts
    assert [one.rank for one in contexts] == [0, None, None, None]
    assert sum(one.failures for one in contexts) == half.failed.sum()
    assert sum(one.right for one in contexts) == (~half.failed).sum()


def test_failures_of_further_classifiers_choose_too_each_counted_for_itself() -> None:
    half, alone = made({0: 0.9}, k=1, rank="lift")
    # Another classifier fails wherever the third context is.
    at_beach = nearest_context(half.features, half.captions.vectors[1:]) == 2
    settings = ContextsSettings(contexts="wardrobe", k=2, similarity=0.995)
    both = find_contexts(replace(half, pooled={"other": at_beach}), Mine(), settings, 1)
    assert [one.words for one in both.hypotheses] == ["thing on the beach", "thing in the snow"]
    told = {one.words: one for one in both.notes[0].contexts}
    assert told["on the beach"].failures == at_beach.sum() and told["on the beach"].right >= at_beach.sum()
    # An image that both fail on is drawn for once, whoever counts.
    more = find_contexts(replace(half, pooled={"same": half.failed}), Mine(), settings, 1).notes[0].contexts
    assert [one.failures for one in more] == [2 * (one.failed_images or 0) for one in more] and more[0].failures > 0
    assert {one.failed_images for one in alone.notes[0].contexts} == {None}
    assert told["in the snow"].failures == alone.notes[0].contexts[0].failures


def test_a_pooled_classifier_that_there_is_not_is_told_of_the_setting_that_names_it(tmp_path: Path) -> None:
    sets = ["mine.settings.pooled=[lab:resnet99]"]
    with pytest.raises(UserError, match="lab:resnet99") as told:
        mine("wardrobe-contexts", tmp_path, overrides=sets, target="lab:resnet10t", device="cpu")
    assert "mine.settings.pooled" in str(told.value.hint) and "mine.others" not in str(told.value.hint)


def test_a_double_is_dropped_before_anything_is_counted() -> None:
    _, found = made({0: 0.9}, doubles=True)
    assert [one.words for one in found.notes[0].contexts].count("on snow") == 0
    assert len(found.notes[0].contexts) == 4


def test_a_class_without_failures_or_with_one_says_so() -> None:
    _, none = made({})
    assert not none.hypotheses and none.notes[0].reason == "no failure on the discover half"
    half, _ = made({})
    half.failed[3] = True
    one = find_contexts(half, Mine(), ContextsSettings.model_validate({"contexts": "wardrobe"}), 1)
    assert not one.hypotheses and "2 failures" in (one.notes[0].reason or "") and one.notes[0].contexts


def test_a_context_comes_out_of_its_caption_again() -> None:
    for prompt in ("a photo of a {class} {context}", "a photo of a {context} {class}", "a {class} {context} somewhere"):
        own = ContextsSettings(contexts="wardrobe", prompt=prompt)
        assert words_alone(own, "ankle boot", own.caption("ankle boot", "in the snow")) == "in the snow"
    assert prompt_in(SETTINGS, "at night") == "a photo of a {class} at night"
    colours = ContextsSettings(contexts="wardrobe-colours", axis="colour")
    assert (
        plain_caption(colours, "bag") == "a photo of a bag" and colours.caption("bag", "red") == "a photo of a red bag"
    )
