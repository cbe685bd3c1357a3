"""Models as everybody may see them: by names that hold no folder of this machine, each for one model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from counterfoil.evaluation.results import Evaluation
from counterfoil.recipe.layering import without_folders
from counterfoil.report.nested import ReferenceResult


def with_public_names(evaluation: Evaluation) -> Evaluation:
    """The same evaluation, its models renamed. Folders of one name are told apart by the hash of their weights."""
    names = _public_names({model.name: model.sha256 for model in evaluation.models})
    return replace(
        evaluation,
        models=tuple(replace(model, name=names[model.name]) for model in evaluation.models),
        scores=tuple(replace(score, model=names[score.model]) for score in evaluation.scores),
        findings=tuple(
            # A judge that was not scored has the name by which the recipe that is published knows it.
            replace(
                one, scores=tuple(replace(score, model=names.get(score.model, score.model)) for score in one.scores)
            )
            for one in evaluation.findings
        ),
        transfer=tuple(
            # A model that tells no architecture is a family by its own name.
            replace(
                one,
                scores=tuple(
                    replace(
                        score,
                        model=names.get(score.model, score.model),
                        family=names.get(score.family, score.family),
                    )
                    for score in one.scores
                ),
            )
            for one in evaluation.transfer
        ),
        reference=None if evaluation.reference is None else _reference(evaluation.reference, names),
        distances=tuple(replace(one, features=without_folders(one.features)) for one in evaluation.distances),
    )


def _reference(reference: ReferenceResult, names: Mapping[str, str]) -> ReferenceResult:
    return replace(
        reference,
        gaps=tuple(replace(one, model=names[one.model]) for one in reference.gaps),
        left_out={names[name]: why for name, why in reference.left_out.items()},
    )


def _public_names(sha256: Mapping[str, str]) -> dict[str, str]:
    """Name → public name, of models with these hashes."""
    shown = {name: without_folders(name) for name in sha256}
    times = Counter(shown.values())
    named = {name: one if times[one] == 1 else f"{one}-{sha256[name][:8]}" for name, one in shown.items()}
    taken: Counter[str] = Counter()
    for name, one in named.items():  # the same weights in two folders
        taken[one] += 1
        if taken[one] > 1:
            named[name] = f"{one}-{taken[one]}"
    return named
