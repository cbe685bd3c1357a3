"""What answers are worth, in words: which models and classes are near chance, and whose best scores are equal."""

from __future__ import annotations

from counterfoil.card.spoken_results import near_chance_sentences, unknown_sentences
from counterfoil.report.results import Results

# Beside an accuracy that is near chance.
NEAR_CHANCE = "near chance"


def everyone(results: Results) -> str:
    """Whom averages over models are over."""
    return "models not near chance" if len(results.sound_models) < len(results.models) else "all models"


def averaged(results: Results) -> str:
    """That a number is averaged over models, and over which; nothing where there is one model."""
    if len(results.models) < 2:
        return ""
    return f"averaged over {everyone(results).removeprefix('all ')}"


def spoken_floor(results: Results) -> tuple[str, ...]:
    """A sentence for the classes and one for the models that are near chance on the base; none where none is."""
    base = results.base_group
    if base is None:
        return ()
    classes = [one.name for one in results.near_chance_classes]
    found = near_chance_sentences(
        classes,
        base.classes + len(base.left_out),
        [model.short_name for model in results.models if model.near_chance],
        len(results.models),
    )
    reference = results.reference
    if reference is None:
        return found
    return (*found, *unknown_sentences(classes, reference.unseen, known=reference.unseen_known))


def spoken_ties(results: Results) -> tuple[str, ...]:
    """A sentence for each model that scored two outputs of some image equally, and best."""
    return tuple(
        f"{model.short_name} gives {model.tied:,} image{'s' if model.tied > 1 else ''} two equal best scores; the first"
        " class of the two counts as its answer."
        for model in results.models
        if model.tied
    )
