"""Offer what a plugin is made of, one name for each kind: `from counterfoil.plugins import
Corruption`.

`counterfoil.testing` checks what a plugin promises, and docs/how-to/plugins.md shows how to
register one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterfoil.corrupting.corruptions import Corruption
    from counterfoil.data.truth import RowTruth
    from counterfoil.engines.engine import Engine
    from counterfoil.evaluation.failure_folder import ExportedFailures, ExportedImage
    from counterfoil.evaluation.scored_task import ScoredTask
    from counterfoil.evaluation.task import ResampledModel, ResampledTask
    from counterfoil.evaluation.tasks.classes.answers import EVERYWHERE, AnsweredGroup, Measure
    from counterfoil.evaluation.trackers import TrackedRun
    from counterfoil.generate.kinds.kind import ImageMaker, Materials
    from counterfoil.generate.pictures import ImageRenderer
    from counterfoil.mining.method import FindMethod, SearchMethod
    from counterfoil.models.classifiers.classifier import Classifier, ClassifierFacts
    from counterfoil.models.detectors.detector import Detector
    from counterfoil.recipe.keep.rule import Column, KeepRule, Verdict
    from counterfoil.recipe.kinds import AlteringKind, DrawingKind, GeneratorKind
    from counterfoil.recipe.section import Section
    from counterfoil.recipe.tasks.task import WholeImages

# Each is imported when it is asked for, so that a corruption loads no more than numpy.
_HOMES = {
    "AlteringKind": "counterfoil.recipe.kinds",
    "EVERYWHERE": "counterfoil.evaluation.tasks.classes.answers",
    "AnsweredGroup": "counterfoil.evaluation.tasks.classes.answers",
    "Classifier": "counterfoil.models.classifiers.classifier",
    "ClassifierFacts": "counterfoil.models.classifiers.classifier",
    "Column": "counterfoil.recipe.keep.rule",
    "Corruption": "counterfoil.corrupting.corruptions",
    "DrawingKind": "counterfoil.recipe.kinds",
    "Detector": "counterfoil.models.detectors.detector",
    "Engine": "counterfoil.engines.engine",
    "ExportedFailures": "counterfoil.evaluation.failure_folder",
    "ExportedImage": "counterfoil.evaluation.failure_folder",
    "FindMethod": "counterfoil.mining.method",
    "GeneratorKind": "counterfoil.recipe.kinds",
    "ImageMaker": "counterfoil.generate.kinds.kind",
    "ImageRenderer": "counterfoil.generate.pictures",
    "KeepRule": "counterfoil.recipe.keep.rule",
    "Materials": "counterfoil.generate.kinds.kind",
    "Measure": "counterfoil.evaluation.tasks.classes.answers",
    "ResampledModel": "counterfoil.evaluation.task",
    "ResampledTask": "counterfoil.evaluation.task",
    "RowTruth": "counterfoil.data.truth",
    "ScoredTask": "counterfoil.evaluation.scored_task",
    "SearchMethod": "counterfoil.mining.method",
    "Section": "counterfoil.recipe.section",
    "TrackedRun": "counterfoil.evaluation.trackers",
    "Verdict": "counterfoil.recipe.keep.rule",
    "WholeImages": "counterfoil.recipe.tasks.task",
}

__all__ = [
    "EVERYWHERE", "AlteringKind", "AnsweredGroup", "Classifier", "ClassifierFacts", "Column", "Corruption", "Detector",
    "DrawingKind",
    "Engine", "ExportedFailures", "ExportedImage", "FindMethod", "GeneratorKind", "ImageMaker", "ImageRenderer",
    "KeepRule", "Materials", "Measure", "ResampledModel", "ResampledTask", "RowTruth", "ScoredTask", "SearchMethod",
    "Section", "TrackedRun", "Verdict", "WholeImages",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'counterfoil.plugins' has no attribute '{name}'")
