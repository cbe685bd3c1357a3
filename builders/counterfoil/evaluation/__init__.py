"""Score classifiers on a built dataset: drops per shift with intervals, tables, and one report.

Importing this package is cheap; torch and timm are loaded when `evaluate` runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterfoil.evaluation.results import Evaluation
    from counterfoil.prediction.passes import Progress

__all__ = ["evaluate"]


def evaluate(
    dataset: str | Path,
    models: str | Path | Sequence[str | Path] | Mapping[str, Callable[[Any], Any] | str] | None = None,
    *,
    transform: Callable[[Any], Any] | Mapping[str, Callable[[Any], Any]] | None = None,
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

    A model may be a file that lists names, one a line: a Path, `@FILE`, or a `.txt` file. Or `models` is a mapping from
    names to callables, `{"mine": model}`: a batch in, scores [b, classes] out. `transform` prepares each PIL image for
    it (one for all, or a mapping by name); without one it takes float32 [3, height, width] from 0 to 1. A torch module
    is given a tensor on `device`, in eval mode, and afterwards is as it was; any other callable is given a numpy array.
    Outputs are matched to classes by an attribute `label_names` where there is one, else by their number. What a
    callable computes is not known from outside, so its answers are not cached. A value may also be a model's name.

    `out` receives
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
        transform=transform,
        out=out,
        device=device,
        batch_size=batch_size,
        min_images_per_class=min_images_per_class,
        seed=seed,
        into_card=into_card,
        repo=repo,
        on_progress=on_progress,
    )
