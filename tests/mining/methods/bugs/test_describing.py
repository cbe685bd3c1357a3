"""Clusters of failures, and descriptions by likelihood."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from counterfoil.mining.methods.bugs.describing import cluster_failures, combine
from counterfoil.mining.methods.bugs.descriptions import Description, Piece


def cloud(rng: np.random.Generator, rows: int, centre: int = 0, width: int = 32) -> np.ndarray:
    """Return unit vectors around an axis that share most of their direction, as embeddings do."""
    points = 0.1 * rng.standard_normal((rows, width)) * np.linspace(1, 0.2, width)
    points[:, -1] += 1
    points[:, centre] += 0.8 * (centre > 0)
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)


def clustered(
    features, answers, *, most: int = 20, least: int = 5, seed: int = 0
) -> list[tuple[int, list[int]]]:
    clusters = cluster_failures(
        np.asarray(features), np.asarray(answers), most=most, least=least, seed=seed
    )
    assert all(rows.dtype == np.int64 for rows, _ in clusters)
    return [(answered, sorted(rows.tolist())) for rows, answered in clusters]


def test_groups_of_one_answer_come_apart_as_they_were_made() -> None:
    rng = np.random.default_rng(0)
    features = np.concatenate(
        [cloud(rng, rows, centre) for rows, centre in ((30, 1), (20, 2), (12, 3))]
    )
    rows = [list(range(30)), list(range(30, 50)), list(range(50, 62))]
    assert clustered(features, np.full(62, 7)) == [(7, group) for group in rows]


def test_one_cloud_is_one_cluster() -> None:
    split = 0
    for seed in range(4):
        features = cloud(np.random.default_rng(seed), 60)
        split += len(clustered(features, np.zeros(60, np.int64), seed=seed)) > 1
    assert split == 0


def test_answers_come_first_and_the_largest_before() -> None:
    features = cloud(np.random.default_rng(1), 30)
    answers = np.array([3] * 8 + [1] * 22)
    assert clustered(features, answers) == [(1, list(range(8, 30))), (3, list(range(8)))]
    assert clustered(features, answers, most=1) == [(1, list(range(8, 30)))]


def test_answers_that_are_too_rare_are_one_group_of_their_own() -> None:
    rng = np.random.default_rng(2)
    features = np.concatenate([cloud(rng, 20), cloud(rng, 12, 2), cloud(rng, 8, 5)])
    answers = np.array([9] * 20 + [0, 1, 2] * 4 + [4, 4, 5, 6, 7, 4, 6, 6])
    clusters = clustered(features, answers, least=7)
    assert [rows for _, rows in clusters] == [
        list(range(20)),
        list(range(20, 32)),
        list(range(32, 40)),
    ]
    assert [answered for answered, _ in clusters] == [9, 0, 4]


def test_rows_that_are_too_few_are_no_cluster() -> None:
    features = cloud(np.random.default_rng(3), 10)
    assert clustered(features, [1] * 7 + [2, 2, 3], least=4) == [(1, list(range(7)))]
    assert clustered(features[:3], [1, 1, 1], least=4) == []
    assert clustered(np.zeros((0, 8)), np.zeros(0, np.int64)) == []


def test_a_part_that_is_too_small_joins_the_nearest_of_its_answer() -> None:
    rng = np.random.default_rng(4)
    features = np.concatenate(
        [cloud(rng, 20, 1), cloud(rng, 20, 2), cloud(rng, 3, 1) @ np.eye(32, dtype=np.float32)]
    )
    features[40:, 8] += 0.35  # apart from the first group, and farther from the second
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    clusters = clustered(features, np.zeros(43, np.int64), least=8)
    assert clusters == [(0, [*range(20), 40, 41, 42]), (0, list(range(20, 40)))]


def test_the_most_central_row_comes_first() -> None:
    features = cloud(np.random.default_rng(5), 15)
    ((rows, _),) = cluster_failures(
        features,
        np.zeros(15, np.int64),
        most=1,
        least=10,
        seed=0,
    )
    means = features.astype(np.float64) @ features.mean(axis=0)
    assert rows.tolist() == np.argsort(-means).tolist()


@pytest.mark.parametrize("rows", [2, 12])
def test_the_same_image_again_and_again_has_no_parts(rows: int) -> None:
    same = np.repeat(cloud(np.random.default_rng(8), 1), rows, axis=0)
    assert clustered(same, np.zeros(rows, np.int64), least=1) == [(0, list(range(rows)))]


def test_three_images_again_and_again_are_three_parts() -> None:
    three = np.concatenate(
        [np.repeat(cloud(np.random.default_rng(8), 1, centre), 6, axis=0) for centre in (1, 2, 3)]
    )
    clusters = clustered(three, np.zeros(18, np.int64), least=6)
    assert clusters == [(0, list(range(first, first + 6))) for first in (0, 6, 12)]


def test_three_rows_that_all_differ_are_no_error() -> None:
    clusters = cluster_failures(
        np.eye(3, 8),
        np.zeros(3, dtype=np.int64),
        most=4,
        least=1,
        seed=0,
    )
    assert sorted(row for rows, _ in clusters for row in rows.tolist()) == [0, 1, 2]


LAB = "a photo of a {class}"

RED = Piece("red", "before")
STRIPED = Piece("striped", "before")
PERSON = Piece("person and a", "before")

SNOW = Piece("in the snow", "after")
NIGHT = Piece("at night", "after")


class Teller:
    """A captioner with one caption per image. The log-likelihood per token falls after the first
    other token."""

    def __init__(self, *captions: str) -> None:
        self.captions = captions
        self.asked = []

    def __call__(self, descriptions: Sequence[Description]) -> np.ndarray:
        self.asked.append(len(descriptions))
        texts = [description.prompt(LAB, "sandal") for description in descriptions]
        return np.array([[self._one(text, caption) for caption in self.captions] for text in texts])

    @staticmethod
    def _one(text: str, caption: str) -> float:
        words = [*text.split(), "."]
        truth = [*caption.split(), "."]
        shared = next(
            (at for at, (a, b) in enumerate(zip(words, truth, strict=False)) if a != b),
            min(len(words), len(truth)),
        )
        return (shared * np.log(0.9) + (len(words) - shared) * np.log(0.01)) / len(words)


def test_the_caption_of_the_images_is_put_together_from_pieces_in_any_order() -> None:
    caption = "a photo of a person and a red striped sandal in the snow at night"
    for pieces in ([NIGHT, STRIPED, SNOW, RED, PERSON], [RED, PERSON, NIGHT, SNOW, STRIPED]):
        teller = Teller(caption)
        steps = combine(pieces, teller, 5)
        assert steps[-1][0].prompt(LAB, "sandal") == caption
        likelihoods = [likelihood for _, likelihood in steps]
        assert likelihoods == sorted(likelihoods) and len(teller.asked) == 5
        assert [len(description.pieces) for description, _ in steps] == [1, 2, 3, 4, 5]


def test_it_ends_where_no_piece_makes_the_images_more_likely() -> None:
    teller = Teller("a photo of a sandal in the snow")
    combined = combine([RED, NIGHT, SNOW], teller, 3)
    assert combined[-1][0].pieces == (SNOW,) and len(teller.asked) == 2


def test_the_rule_of_the_paper_says_every_sentence_that_it_may() -> None:
    """Compare with Wiles 2022, section 3, as a plain loop: s_j is the sentence with the largest
    product."""
    log_likelihood = {
        "red": [-1.0, -9.0], "dark": [-3.0, -4.0], "wet": [-6.0, -2.0], "cold": [-8.0, -8.0],
    }  # fmt: skip
    sentences = {name: Piece(f"it is {name}.", "after") for name in log_likelihood}
    names = {piece: name for name, piece in sentences.items()}

    def score(descriptions: Sequence[Description]) -> list[np.ndarray]:
        return [
            np.sum([log_likelihood[names[piece]] for piece in text.pieces], axis=0)
            for text in descriptions
        ]

    chosen: list[str] = []
    for _ in range(3):
        left = [name for name in log_likelihood if name not in chosen]
        products = [
            np.prod(np.exp(np.sum([log_likelihood[each] for each in [*chosen, name]], axis=0)))
            for name in left
        ]
        chosen.append(left[int(np.argmax(products))])
    steps = combine(list(sentences.values()), score, 3, rising=False)
    assert [names[piece] for piece in steps[-1][0].pieces] == chosen
    assert len(combine(list(sentences.values()), score, 3)[-1][0].pieces) == 1, (
        "each sentence lowers the product"
    )


def test_no_sentence_that_cannot_be_scored_is_added() -> None:
    scores: dict[tuple[Piece, ...], float] = {(SNOW,): -1.0}
    combined = combine(
        [SNOW, NIGHT],
        lambda many: [[scores.get(text.pieces, -np.inf)] for text in many],
        2,
        rising=False,
    )
    assert combined[-1][0].pieces == (SNOW,)


def test_no_more_pieces_than_asked_for() -> None:
    combined = combine(
        [SNOW, NIGHT, RED], Teller("a photo of a red sandal in the snow at night"), 2
    )
    assert len(combined[-1][0].pieces) == 2


def test_the_mean_over_the_images_decides() -> None:
    snow = "a photo of a sandal in the snow"
    night = "a photo of a sandal at night"
    assert combine([NIGHT, SNOW], Teller(snow, snow, night), 1)[-1][0].pieces == (SNOW,)
    assert combine([NIGHT, SNOW], Teller(snow, night, night), 1)[-1][0].pieces == (NIGHT,)


def test_every_order_of_phrases_is_tried_and_sentences_come_last_as_they_are_found() -> None:
    seen: list[Description] = []

    def score(descriptions: Sequence[Description]) -> list[list[float]]:
        seen.extend(descriptions)
        return [
            [description.length / 100 - at / 1e6] for at, description in enumerate(descriptions)
        ]

    dark = Piece("it is dark and late.", "after")
    wet = Piece("it is wet.", "after")
    combine([SNOW, NIGHT], score, 2)
    assert {description.pieces for description in seen} == {
        (SNOW,),
        (NIGHT,),
        (SNOW, NIGHT),
        (NIGHT, SNOW),
    }
    seen.clear()
    combine([wet, dark], score, 2)
    assert {description.pieces for description in seen} == {(wet,), (dark,), (dark, wet)}


def test_pieces_of_one_place_are_not_both_said_and_contradictions_may_be() -> None:
    woman = Piece("woman wearing a", "before")
    day = Piece("at day", "after")
    combined = combine(
        [PERSON, woman, day, NIGHT, NIGHT], lambda many: [[float(text.length)] for text in many], 9
    )
    assert set(combined[-1][0].pieces) in ({woman, day, NIGHT}, {PERSON, day, NIGHT})


def test_without_a_piece_nothing_is_asked() -> None:
    teller = Teller("a photo of a sandal")
    assert combine([], teller, 3) == [] and not teller.asked


def test_a_caption_that_cannot_be_said_is_never_chosen() -> None:
    scores = {"in the snow": -np.inf, "at night": -50.0}
    combined = combine(
        [SNOW, NIGHT], lambda many: [[scores.get(text.words("x")[2:], -np.inf)] for text in many], 2
    )
    assert combined[-1][0].pieces == (NIGHT,)
