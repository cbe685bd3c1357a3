"""A model is scored against the right outputs, or refused with the reason."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from counterfoil.errors import UserError
from counterfoil.models.classifiers import ClassifierFacts
from counterfoil.prediction.class_map import ClassMap, map_classes
from counterfoil.prediction.inference import judge
from counterfoil.recipe.prompts import RecipeClass


def facts(num_classes: int, labels: tuple[str, ...] | None = None) -> ClassifierFacts:
    return ClassifierFacts("m", "m", "resnet18", num_classes, labels)


def classes(*imagenet: tuple[int, ...], source: tuple[int, ...] = (0, 1, 2)) -> list[RecipeClass]:
    names = ("cat", "dog", "bird")
    indices = imagenet or ((), (), ())
    return [RecipeClass(f"c{i}", names[i], i, source[i], indices[i]) for i in range(len(indices))]


def test_imagenet_outputs_use_the_imagenet_indices() -> None:
    found = map_classes(classes((281, 282), (207,)), facts(1000))
    assert (found.outputs, found.targets, found.top_k) == ("imagenet", ((281, 282), (207,)), 5)


def test_source_labels_are_the_outputs_of_a_model_of_that_many() -> None:
    found = map_classes(classes(source=(2, 0, 1)), facts(3))
    assert (found.outputs, found.targets, found.top_k) == ("source labels", ((2,), (0,), (1,)), 2)


def test_a_model_of_the_source_dataset_is_scored_even_where_indices_are_listed() -> None:
    assert map_classes(classes((1,), (2,), (3,)), facts(3)).outputs == "source labels"


def test_named_outputs_prove_the_map_for_a_recipe_over_fewer_classes() -> None:
    names = ("cat", "dog", "Bird", "horse", "frog")
    assert map_classes(classes(), facts(5, names)).targets == ((0,), (1,), (2,))
    with pytest.raises(UserError, match="match nothing"):
        map_classes(classes(), facts(5))


def test_named_outputs_in_another_order_are_refused() -> None:
    with pytest.raises(UserError, match=r"names its output 0 'dog'.*is 'cat'"):
        map_classes(classes(), facts(3, ("dog", "cat", "bird")))


def test_names_of_another_vocabulary_prove_nothing() -> None:
    assert map_classes(classes(), facts(3, ("n01", "n02", "n03"))).targets == ((0,), (1,), (2,))


@pytest.mark.parametrize(
    ("given", "outputs", "says"),
    [
        (classes(), 1000, "match nothing.*none lists `imagenet` indices"),
        (classes((1,), (), (3,)), 1000, "1 of 3 classes .* have no `imagenet` indices: c1"),
        (classes((1,), (2,), (1000,)), 1000, "outside 0 … 999: c2"),
        (classes((1,), (2,), (3,)), 21841, "need a model of 1000 outputs"),
    ],
)
def test_a_mismatch_says_what_is_missing(given: list[RecipeClass], outputs: int, says: str) -> None:
    with pytest.raises(UserError, match=says):
        map_classes(given, facts(outputs))


def test_judging_equals_loops_over_the_outputs() -> None:
    rng = np.random.default_rng(0)
    logits = torch.tensor(rng.normal(size=(50, 12)), dtype=torch.float32)
    labels = rng.integers(0, 3, 50)
    targets = ((0, 7), (1,), (2, 3, 11))
    found = judge(logits, labels, ClassMap("imagenet", 12, targets))
    for row in range(50):
        values = logits[row].tolist()
        order = sorted(range(12), key=lambda i: -values[i])
        right = targets[labels[row]]
        shares = np.exp(np.array(values, dtype=np.float64))
        shares /= shares.sum()
        assert found["prediction"][row] == order[0]
        assert found["correct"][row] == (order[0] in right)
        assert found["correct_top_k"][row] == any(one in right for one in order[:5])
        assert found["confidence"][row] == pytest.approx(shares[order[0]], rel=1e-5)
        assert found["true_confidence"][row] == pytest.approx(sum(shares[one] for one in right), rel=1e-5)


def test_top_k_always_leaves_an_output_to_get_wrong() -> None:
    assert [ClassMap("source labels", n, ()).top_k for n in (1, 2, 3, 5, 6, 10, 1000)] == [
        1,
        1,
        2,
        4,
        5,
        5,
        5,
    ]
