"""Counterfoil: recipes become counterfactual image datasets that show where vision models fail.

The command line's verbs are functions here, in the order in which most people need them:

    init(source, out)                      a recipe proposed for your own images
    evaluate(dataset, models)              accuracies and drops, with intervals and a report
    build(recipe, out)                     the dataset of a recipe
    calibrate(dataset), recut(dataset, cut, out)     thresholds chosen by looking, and a dataset cut by them
    review(dataset), review_answers(dataset, files)  people look at labels
    mine(recipe, out)                      what a classifier gets wrong, named and tested
    mend(models, recipe, datasets, out)    a new head for it, judged beside controls
    verify(dataset), regenerate(dataset, out)        whether a dataset is whole, and the same made again
    publish(dataset, repo), publish_model(folder, repo)
    learn_tokens(recipe, out), import_tokens(recipe, source, out)

    load_recipe(name), resolve_classes(recipe), make_plan(recipe)   what a recipe says, without running it

A recipe is a bundled name, a path or a Recipe; a model is a name, a torch module or a function, with `transform=`.
Names that end in `_steps` are generators that tell how far they are and return the result. Heavy libraries load when
a function is first used. `help(counterfoil.evaluate)` has the arguments of one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from counterfoil.building import build, build_steps
    from counterfoil.calibration import calibrate
    from counterfoil.calibration.recut_dataset import recut, recut_steps
    from counterfoil.evaluation import evaluate
    from counterfoil.evaluation.evaluate_dataset import evaluate_steps
    from counterfoil.mending.mend_models import mend, mend_steps
    from counterfoil.mining.bugs.trying import mine_again, try_descriptions
    from counterfoil.mining.mine_recipe import mine, mine_steps
    from counterfoil.plan import make_plan
    from counterfoil.publishing import publish, publish_model, publish_model_steps, publish_steps
    from counterfoil.recipe import load_recipe
    from counterfoil.regeneration.regenerate_dataset import regenerate, regenerate_steps
    from counterfoil.reviewing import review, review_answers
    from counterfoil.sources.resolved_classes import resolve_classes
    from counterfoil.starting.init_recipe import init
    from counterfoil.tokens.import_tokens import import_tokens
    from counterfoil.tokens.learn_tokens import learn_tokens, learn_tokens_steps
    from counterfoil.verification import verify, verify_steps

_HOMES = {
    "build": "counterfoil.building",
    "build_steps": "counterfoil.building",
    "calibrate": "counterfoil.calibration",
    "evaluate": "counterfoil.evaluation",
    "evaluate_steps": "counterfoil.evaluation.evaluate_dataset",
    "import_tokens": "counterfoil.tokens.import_tokens",
    "init": "counterfoil.starting.init_recipe",
    "learn_tokens": "counterfoil.tokens.learn_tokens",
    "learn_tokens_steps": "counterfoil.tokens.learn_tokens",
    "load_recipe": "counterfoil.recipe",
    "make_plan": "counterfoil.plan",
    "mend": "counterfoil.mending.mend_models",
    "mend_steps": "counterfoil.mending.mend_models",
    "mine": "counterfoil.mining.mine_recipe",
    "mine_again": "counterfoil.mining.bugs.trying",
    "mine_steps": "counterfoil.mining.mine_recipe",
    "publish": "counterfoil.publishing",
    "publish_model": "counterfoil.publishing",
    "publish_model_steps": "counterfoil.publishing",
    "publish_steps": "counterfoil.publishing",
    "recut": "counterfoil.calibration.recut_dataset",
    "review": "counterfoil.reviewing.review_dataset",
    "review_answers": "counterfoil.reviewing.review_answers",
    "try_descriptions": "counterfoil.mining.bugs.trying",
    "recut_steps": "counterfoil.calibration.recut_dataset",
    "regenerate": "counterfoil.regeneration.regenerate_dataset",
    "regenerate_steps": "counterfoil.regeneration.regenerate_dataset",
    "resolve_classes": "counterfoil.sources.resolved_classes",
    "verify": "counterfoil.verification",
    "verify_steps": "counterfoil.verification",
}

__all__ = [
    "__version__",
    "build",
    "build_steps",
    "calibrate",
    "evaluate",
    "evaluate_steps",
    "import_tokens",
    "init",
    "learn_tokens",
    "learn_tokens_steps",
    "load_recipe",
    "make_plan",
    "mend",
    "mend_steps",
    "mine",
    "mine_again",
    "mine_steps",
    "publish",
    "publish_model",
    "publish_model_steps",
    "publish_steps",
    "recut",
    "recut_steps",
    "regenerate",
    "regenerate_steps",
    "resolve_classes",
    "review",
    "review_answers",
    "try_descriptions",
    "verify",
    "verify_steps",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'counterfoil' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
