"""Score classifiers on a built dataset: drops per shift with intervals, tables, and one report.

Importing this package is cheap; torch and timm are loaded when `evaluate` runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterfoil.engines import EngineChoice
    from counterfoil.evaluation.results import Evaluation
    from counterfoil.recipe import Recipe

__all__ = ["evaluate"]


def evaluate(
    dataset: str | Path,
    models: str | Path | Sequence[str | Path] | Mapping[str, Callable[[Any], Any] | str] | None = None,
    *,
    transform: Callable[[Any], Any] | Mapping[str, Callable[[Any], Any]] | None = None,
    recipe: Recipe | str | Path | None = None,
    base: str | None = None,
    groups: str | None = None,
    beside: Mapping[str, str | Path] | None = None,
    out: Path | None = None,
    device: str = "auto",
    batch_size: int = 64,
    min_images_per_class: int | None = None,
    seed: int = 0,
    into_card: bool = False,
    repo: str | None = None,
    distances: str | Sequence[str] | None = None,
    against: str | Path | None = None,
    compare: tuple[str, str] | None = None,
    reference: bool | None = None,
    workers: int | None = None,
    engine: EngineChoice | None = None,
) -> Evaluation:
    """Score `models` (the recipe's own by default) on a dataset directory or Hub id, and write the report.

    A model may be a file that lists names, one a line: a Path, `@FILE`, or a `.txt` file. Or `models` is a mapping from
    names to callables, `{"mine": model}`: a batch in, scores [b, classes] out. `transform` prepares each PIL image for
    it (one for all, or a mapping by name); without one it takes float32 [3, height, width] from 0 to 1. A torch module
    is given a tensor on `device`, in eval mode, and afterwards is as it was; any other callable is given a numpy array.
    Outputs are matched to classes by an attribute `label_names` where there is one, else by their number. What a
    callable computes is not known from outside, so its answers are not cached. A value may also be a model's name.

    `dataset` may also be any images with labels: a folder (imagefolder, Parquet, WebDataset), a name of the Hub,
    `lab:wardrobe:validation`, or `source:SPLIT` of the recipe's input dataset; a split stands behind a colon. `recipe`
    gives their classes, else they are their own; `groups` names the column that tells groups, or is "configs"; `base`
    is the group that the others are compared with, and without one plain accuracies are reported. `beside` is a mapping
    from names to such images, which stand beside the dataset as groups of their own: natural test sets.

    `out` receives results.csv, robustness.csv, shifts.csv, classes.csv, report.html and predictions.parquet (an image a
    row: key, label, shift, of a folder of images path, each model's answer, confidence and whether it is right), which
    `failures()` of the result reads as a DataFrame; by default it is `.counterfoil/evaluation/` inside the dataset,
    which is neither published nor compared, or the user's cache for other images. Each model's predictions are cached
    by content and used again, and a killed run goes on where each model stood. `seed` is the bootstrap's. A dataset
    with mined shifts also has findings.csv, and `findings` in the result: each model's failure rate over all candidates
    that passed the screen, before a classifier's rule took its pick, against the base. One whose keep rules chose what
    classifiers get wrong has transfer.csv, and `transfer`: how often each model fails on the images that a judge was
    wrong about. `evaluate_steps` tells how far it is.

    `into_card` also stores the results in the dataset directory, `evaluation/`, and shows them on its card, until
    its images change; `build` run again keeps them. `repo` is the dataset's `user/name` on the Hub (by default the
    recipe's `publish.repo`, or where the dataset came from): where it is known, `eval_results/` has
    evaluation-result entries, a YAML file a model, for the models' repositories.

    `distances` names models in whose features the dataset is compared with its source, all of it and shift by shift:
    "clip", the recipe's own, or a classifier. Result and distances.csv have KID with its interval and FID, with the
    source's two splits against each other beside them. `against` names other images to compare with, as `dataset` may.
    A source that is not at hand is skipped, with the reason in the result.

    `compare` names two of the models, a mended one and its original, which are scored too where `models` lacks them
    (and alone where none are given). Result, compare.csv and report then say group by group, paired by image, where the
    mended one is right more often and where less, with intervals, exact tests adjusted for all groups, and whether it
    loses more elsewhere than it gains. A model whose folder or repository has a `mended.json` is never scored on what
    it was mended on.

    `reference` scores a built dataset's models on its source's validation split too, at most 50 images a class, so that
    `reference` in the result tells how far accuracy on the base is from that on the input dataset. None does so where
    the source is at hand; True also fetches it from the Hub; False does not. What is not at hand is skipped, with the
    reason in the result.

    `device` may be several (`cuda`, `cuda:0,cuda:2`), and `workers` on each, or `engine` another place where models
    answer, such as a cluster; a callable answers in this process. With workers, a script that calls this needs
    the usual `if __name__ == "__main__":`.

    A model or class whose base accuracy is near chance (`near_chance`) is in the tables and in no average.

    Raises UserError for a dataset, a model or a class map that cannot be used, all of them together;
    RunFailure when a model cannot be fetched or computed, once the others are scored and kept.
    """
    from counterfoil.evaluation.evaluate_dataset import evaluate_steps
    from counterfoil.under_way import finish

    steps = evaluate_steps(
        dataset,
        models,
        transform=transform,
        recipe=recipe,
        base=base,
        groups=groups,
        beside=beside,
        out=out,
        device=device,
        batch_size=batch_size,
        min_images_per_class=min_images_per_class,
        seed=seed,
        into_card=into_card,
        repo=repo,
        distances=distances,
        against=against,
        compare=compare,
        reference=reference,
        workers=workers,
        engine=engine,
    )
    return finish(steps)
