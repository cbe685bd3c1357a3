"""Counterfoil builds counterfactual image test sets from recipes and measures where vision models
fail.

Each command is a function here. They are listed in the order in which most people need them:

    init(source, out)                        propose a recipe for your own images
    evaluate(dataset, models)                measure accuracies and drops, and write a report
    compare(first, second)                   compare two files of answers to the same images
    build(recipe, out)                       build the dataset of a recipe
    calibrate(dataset)                       write a page on which you choose thresholds by looking
    recut(dataset, cut, out)                 apply those thresholds to the dataset
    review(dataset)                          write a page on which people check labels
    review_answers(dataset, files)           count their answers and store them in the dataset
    mine(recipe, out)                        find and test what a classifier gets wrong
    mend(models, recipe, datasets, out)      fit a new head and compare it with controls
    verify(dataset)                          check that a dataset is complete and correct
    regenerate(dataset, out)                 rebuild a dataset from its own recipe and lock
    publish(dataset, repo)                   publish a dataset on the Hub
    publish_model(folder, repo)              publish a model on the Hub
    learn_tokens(recipe, out)                learn class tokens by textual inversion
    import_tokens(recipe, source, out)       import class tokens from files
    corrupt(image, name, severity)           corrupt one image; corruptions() lists the names
    Corrupt(names, severities)               the same as a transform of training code

Three functions read a recipe without running it: load_recipe(name), resolve_classes(recipe),
make_plan(recipe).

A recipe is a bundled name, a path or a Recipe. A model is a name, a torch module or a function with
`transform=`. A single text where a function takes several is one of them. What a command prints as
`Warning: …` is a `counterfoil.errors.CounterfoilWarning`.
Notebooks and terminals show one line of progress; disable_progress_bars() hides it and
enable_progress_bars() shows it again. Heavy libraries load when you first call a function that
needs them. `help(counterfoil.evaluate)` explains the arguments of a function.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from counterfoil.building.build_dataset import build
    from counterfoil.building.regenerate_dataset import regenerate
    from counterfoil.comparing.compare_files import compare
    from counterfoil.corrupting.corrupt import corrupt, corruptions
    from counterfoil.corrupting.transform import Corrupt
    from counterfoil.data.resolved_classes import resolve_classes
    from counterfoil.dataset.verification import verify
    from counterfoil.evaluation import evaluate
    from counterfoil.generate.tokens.import_tokens import import_tokens
    from counterfoil.generate.tokens.learn_tokens import learn_tokens
    from counterfoil.mending.mend_models import mend
    from counterfoil.mining.methods.bugs.trying import mine_again, try_descriptions
    from counterfoil.mining.mine_recipe import mine
    from counterfoil.plan.layout import make_plan
    from counterfoil.progress import disable_progress_bars, enable_progress_bars
    from counterfoil.publishing.publish_dataset import publish
    from counterfoil.publishing.publish_model import publish_model
    from counterfoil.recipe import load_recipe
    from counterfoil.reviewing.calibrate_dataset import calibrate
    from counterfoil.reviewing.recut_dataset import recut
    from counterfoil.reviewing.review_answers import review_answers
    from counterfoil.reviewing.review_dataset import review
    from counterfoil.starting.init_recipe import init

_HOMES = {
    "Corrupt": "counterfoil.corrupting.transform",
    "build": "counterfoil.building.build_dataset",
    "calibrate": "counterfoil.reviewing.calibrate_dataset",
    "compare": "counterfoil.comparing.compare_files",
    "corrupt": "counterfoil.corrupting.corrupt",
    "corruptions": "counterfoil.corrupting.corrupt",
    "disable_progress_bars": "counterfoil.progress",
    "enable_progress_bars": "counterfoil.progress",
    "evaluate": "counterfoil.evaluation",
    "import_tokens": "counterfoil.generate.tokens.import_tokens",
    "init": "counterfoil.starting.init_recipe",
    "learn_tokens": "counterfoil.generate.tokens.learn_tokens",
    "load_recipe": "counterfoil.recipe",
    "make_plan": "counterfoil.plan.layout",
    "mend": "counterfoil.mending.mend_models",
    "mine": "counterfoil.mining.mine_recipe",
    "mine_again": "counterfoil.mining.methods.bugs.trying",
    "publish": "counterfoil.publishing.publish_dataset",
    "publish_model": "counterfoil.publishing.publish_model",
    "recut": "counterfoil.reviewing.recut_dataset",
    "review": "counterfoil.reviewing.review_dataset",
    "review_answers": "counterfoil.reviewing.review_answers",
    "try_descriptions": "counterfoil.mining.methods.bugs.trying",
    "regenerate": "counterfoil.building.regenerate_dataset",
    "resolve_classes": "counterfoil.data.resolved_classes",
    "verify": "counterfoil.dataset.verification",
}

__all__ = [
    "Corrupt",
    "__version__",
    "build",
    "calibrate",
    "compare",
    "corrupt",
    "corruptions",
    "disable_progress_bars",
    "enable_progress_bars",
    "evaluate",
    "import_tokens",
    "init",
    "learn_tokens",
    "load_recipe",
    "make_plan",
    "mend",
    "mine",
    "mine_again",
    "publish",
    "publish_model",
    "recut",
    "regenerate",
    "resolve_classes",
    "review",
    "review_answers",
    "try_descriptions",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'counterfoil' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
