"""What answers are worth, in words: which models and classes are near chance, and whose best scores are equal."""

from __future__ import annotations

from counterfoil.card.spoken_results import near_chance_sentences, unknown_sentences
from counterfoil.evaluation.results import Evaluation

# Beside an accuracy that is near chance.
NEAR_CHANCE = "near chance"


def everyone(evaluation: Evaluation) -> str:
    """Whom averages over models are over."""
    return "models not near chance" if len(evaluation.sound_models) < len(evaluation.models) else "all models"


def averaged(evaluation: Evaluation) -> str:
    """That a number is averaged over models, and over which; nothing where there is one model."""
    if len(evaluation.models) < 2:
        return ""
    return f"averaged over {everyone(evaluation).removeprefix('all ')}"


def spoken_floor(evaluation: Evaluation) -> tuple[str, ...]:
    """A sentence for the classes and one for the models that are near chance on the base; none where none is."""
    base = evaluation.base
    if base is None:
        return ()
    classes = [one.name for one in evaluation.near_chance_classes]
    found = near_chance_sentences(
        classes,
        base.classes + len(base.left_out),
        [model.short_name for model in evaluation.models if model.near_chance],
        len(evaluation.models),
    )
    reference = evaluation.reference
    if reference is None:
        return found
    return (*found, *unknown_sentences(classes, reference.unseen, known=reference.unseen_known))


def spoken_ties(evaluation: Evaluation) -> tuple[str, ...]:
    """A sentence for each model that scored two outputs of some image equally, and best."""
    return tuple(
        f"{model.short_name} gives {model.tied:,} image{'s' if model.tied > 1 else ''} two equal best scores; the first"
        " class of the two counts as its answer."
        for model in evaluation.models
        if model.tied
    )
