"""Accuracies that timm publishes on real test sets of ImageNet, for an evaluation of ImageNet
classes.

timm keeps the tables in its repository, but no release of timm has them. This package has a copy of
a few columns, written by `scripts/write_published.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from counterfoil.evaluation.figures import published_figure
from counterfoil.evaluation.tasks.classes.answers import AllAnswers, NestedMeasure
from counterfoil.recipe.layering import bundled_folder
from counterfoil.report.published import ACCURACY, SETS, PublishedLine, PublishedResults
from counterfoil.report.results import ResultRow, estimate_row
from counterfoil.stats import least_squares_line

if TYPE_CHECKING:
    import pyarrow as pa

_TABLE = "published/timm.parquet"
# Test set → its base. The bases of R and A are ImageNet's validation images of the same 200
# classes.
COUNTERPARTS = {
    "v2": "imagenet",
    "sketch": "imagenet",
    "r": "r_clean",
    "a": "a_clean",
}
_HUB = "hf-hub:timm/"


def read_published(*columns: str) -> pa.Table:
    """Return these columns of the published table, all if none is named. Accuracies are in percent,
    or null."""
    import pyarrow.parquet as pq

    path = bundled_folder() / _TABLE
    return pq.read_table(path, columns=list(columns) or None)


def published_line(shifted: str) -> PublishedLine:
    """Return the lines fitted for a test set, over all (model, size) pairs with both accuracies.

    There are 1,556 such pairs (1,555 for A). No accuracy is clipped, because all are between .4 and
    99 %.
    """
    clean = COUNTERPARTS[shifted]
    table = read_published(clean, shifted)
    clean_percent = table[clean].to_numpy()
    shifted_percent = table[shifted].to_numpy()
    x = clean_percent.astype(np.float64) / 100
    y = shifted_percent.astype(np.float64) / 100
    both = np.isfinite(x) & np.isfinite(y)
    x = x[both]
    y = y[both]
    plain, _, r_squared = least_squares_line(x, y)
    probit, intercept, probit_r_squared = least_squares_line(ndtri(x), ndtri(y))
    return PublishedLine(
        shifted,
        clean,
        len(x),
        float(x.min()),
        float(x.max()),
        plain.value,
        r_squared,
        probit.value,
        intercept,
        probit_r_squared,
    )


def timm_name(name: str) -> str | None:
    """Return the name by which timm publishes a model, with the tag of its weights; None for
    weights of others."""
    if name.startswith(_HUB):
        return None if "@" in name else name.removeprefix(_HUB)
    if ":" in name or "/" in name:
        return None
    if "." in name:
        return name
    import timm

    config = timm.get_pretrained_cfg(name)  # the default weights of a bare name
    return f"{name}.{config.tag}" if config is not None and config.tag else name


def published_models(
    models: Mapping[str, tuple[str | None, int | None]],
) -> dict[str, tuple[str, dict[str, float]]]:
    """Return the published name and accuracies (fractions) of each model that is in the table.

    models: name → (timm's name, image size). The accuracies are those at the published size nearest
    to the model's size. If the model's size is unknown, they are those at the largest published
    size.
    """
    wanted = {timm for timm, _ in models.values()}
    if wanted <= {None}:
        return {}
    # Model → published size → row; the first row of a size counts.
    rows: dict[str, dict[int, Any]] = {}
    for published_row in read_published().to_pylist():
        name = published_row["model"]
        if name in wanted:
            by_size = rows.setdefault(name, {})
            by_size.setdefault(published_row["img_size"], published_row)
    published = {}
    for name, (timm, size) in models.items():
        if timm not in rows:
            continue
        sizes = rows[timm]
        if size is None:
            chosen = max(sizes)
            unknown = " (the largest published; the model's own size is not known)"
        else:
            distances = {published_size: abs(published_size - size) for published_size in sizes}
            chosen = min(distances, key=distances.__getitem__)
            unknown = ""
        accuracies = {}
        for column in SETS:
            percent = sizes[chosen][column]
            if percent is not None:
                accuracies[column] = percent / 100
        published[name] = f"{timm}, {chosen} px{unknown}", accuracies
    return published


def measure_published(
    answered: AllAnswers,
) -> tuple[PublishedResults | None, list[ResultRow]]:
    """Return the lines and the models in timm's table. Return None if a class has no ImageNet
    index."""
    indices = [cls.imagenet for cls in answered.subject.classes]
    if not all(indices):
        return None, []
    stands_for = answered.asking.models.stands_for
    names = {}
    for scores in answered.scored:
        classifier = scores.classifier
        model = stands_for.get(classifier.name)
        known_name = timm_name(model) if isinstance(model, str) else None
        size = classifier.input_size[-1] if classifier.input_size else None
        names[classifier.name] = known_name, size
    shown = {}
    rows = []
    for name, (published_name, accuracies) in published_models(names).items():
        shown[name] = published_name
        for column, value in accuracies.items():
            rows.append(estimate_row(ACCURACY, value, model=name, at=column))
    metadata = read_published("model").schema.metadata or {}
    commit = metadata[b"commit"].decode()
    lines = tuple(map(published_line, COUNTERPARTS))
    several = any(len(index) > 1 for index in indices)
    return PublishedResults(commit, lines, shown, several), rows


MEASURE = NestedMeasure(measure_published, lambda results: [published_figure(results)])
