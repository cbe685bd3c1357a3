"""Models that code hands over: what of them is refused, and that a name means nothing once its run is over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from counterfoil.errors import UserError
from counterfoil.models.classifiers import describe_classifier
from counterfoil.models.classifiers.of_python import handed_over


def model(batch: Any) -> Any:
    return np.zeros((len(batch), 2))


@pytest.mark.parametrize(
    ("models", "transform", "message"),
    [
        ("lab:resnet10t", model, "needs a callable"),
        (["lab:resnet10t"], model, "needs a callable"),
        ({"one": "lab:resnet10t"}, model, "needs a callable"),
        ([model, model], None, "found a function in a list, expected names"),
        ({"mine": model}, {"mien": model}, "did you mean 'mine'"),
        ({" ": model}, None, "expected a printable name"),
    ],
)
def test_what_is_no_model_with_a_name_is_refused(models: Any, transform: Any, message: str) -> None:
    with pytest.raises(UserError, match=message), handed_over(models, transform):
        raise AssertionError("it was held")


def test_a_name_is_of_one_run() -> None:
    with handed_over({"mine": model, "theirs": "lab:resnet10t"}) as (names, held):
        assert names == ["python:mine", "lab:resnet10t"] and [one.model for one in held] == [model]
        with pytest.raises(UserError, match="no other run"), handed_over({"mine": model}):
            raise AssertionError("it was held twice")
    with pytest.raises(UserError, match="passed in by your code"):
        describe_classifier("python:mine")
