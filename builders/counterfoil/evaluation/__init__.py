"""Score classifiers on a built dataset: drops per shift with intervals, tables, and one report.

Importing this package is cheap; torch and timm are loaded when `evaluate` runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from counterfoil.evaluation.results import Evaluation
    from counterfoil.prediction.passes import Progress

__all__ = ["evaluate"]


def evaluate(
    dataset: str | Path,
    models: str | Path | Sequence[str | Path] | None = None,
    *,
    out: Path | None = None,
    device: str = "auto",
    batch_size: int = 64,
    min_images_per_class: int | None = None,
    seed: int = 0,
    into_card: bool = False,
    repo: str | None = None,
    on_progress: Progress | None = None,
) -> Evaluation:
    """Score `models` (the recipe's own by default) on a dataset directory or Hub id, and write the report.

    A model may be a file that lists names, one a line: a Path, `@FILE`, or a `.txt` file. `out` receives
    results.csv, robustness.csv, shifts.csv, classes.csv and report.html; by default it is
    `.counterfoil/evaluation/` inside the dataset, which is neither published nor compared. Each
    model's predictions are cached by content and used again, and a killed run goes on where each model
    stood. `seed` is the bootstrap's; `on_progress` is told (stage, done, total).

    `into_card` also stores the results in the dataset directory, `evaluation/`, and shows them on its card, until
    its images change; `build` run again keeps them. `repo` is the dataset's `user/name` on the Hub (by default the
    recipe's `publish.repo`, or where the dataset came from): where it is known, `eval_results/` has
    evaluation-result entries, a YAML file a model, for the models' repositories.

    Raises UserError for a dataset, a model or a class map that cannot be used, all of them together;
    RunFailure when a model cannot be fetched or computed, once the others are scored and kept.
    """
    from counterfoil.evaluation.run import run_evaluation

    return run_evaluation(
        dataset,
        models,
        out=out,
        device=device,
        batch_size=batch_size,
        min_images_per_class=min_images_per_class,
        seed=seed,
        into_card=into_card,
        repo=repo,
        on_progress=on_progress,
    )
