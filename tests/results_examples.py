"""A small document of results, for the tests of what is made of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from counterfoil.evaluation.results import Evaluation
from counterfoil.report.results import (
    ClassFacts,
    GroupFacts,
    LeftOut,
    ModelFacts,
    ResultRow,
    ResultRows,
    Results,
)
from counterfoil.stats import Estimate


def model(name: str, *, near_chance: bool = False) -> ModelFacts:
    return ModelFacts(
        name=name, short_name=name, architecture="resnet10t", outputs="names", num_classes=10, img_size=64,
        crop_pct=1.0, interpolation="bicubic", param_count=1000, sha256="ab" * 32, top_k=5, chance=0.1,
        near_chance=near_chance, tied=0,
    )  # fmt: skip


def group(name: str, kind: str | None = "colour", left_out: Sequence[LeftOut] = ()) -> GroupFacts:
    return GroupFacts(
        name=name, kind=kind, prompt="a {class}", group=name, candidates=90, accepted=70, unreadable=0, classes=7,
        left_out=tuple(left_out), images=70, base_images=70,
    )  # fmt: skip


def results(models: int, shifts: int, rows: Iterable[ResultRow] = ()) -> Results:
    """Return results of `model-0` … under the base and `shift_0` …, with these rows."""
    return Results(
        content="c" * 64,
        dataset="set",
        seed=0,
        min_images_per_class=5,
        confidence=0.95,
        replicates=2000,
        paired=True,
        unreadable=0,
        image_side=None,
        base="base",
        classes=(ClassFacts("a", "coat"),),
        models=tuple(model(f"model-{number}") for number in range(models)),
        groups=(
            group("base", None),
            *(
                group(f"shift_{number}", left_out=[LeftOut("a", "coat", 3, 3)])
                for number in range(shifts)
            ),
        ),
        measures=(),
        rows=ResultRows(rows),
    )


def top1(evaluation: Evaluation, index: int = 0) -> Estimate:
    """Return how many of all base images, or of all images without a base, a model is right
    about."""
    estimate = evaluation.number(
        "top1", model=evaluation.models[index].name, group=evaluation.results.base or ""
    )
    assert estimate is not None
    return estimate
