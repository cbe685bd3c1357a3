"""Film strips of the report: one scene at its base and at every level, and where models first fail.

Which scenes is a rule, not a choice: of the model with the middle median failure point, and of the complete
trajectories that it gets right at the base, those at the quartiles of its failure points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterfoil.evaluation.failures import MOST_SHIFTS, THUMBNAIL
from counterfoil.evaluation.measures.severity import shifts_with_levels, trajectories_of
from counterfoil.evaluation.scores import AllAnswers
from counterfoil.report.pictures import data_uri, webp
from counterfoil.report.results import ModelFacts, Results
from counterfoil.report.severity import Severity, middle_model
from counterfoil.store.decoding import rgb_image
from counterfoil.trajectory_stats import failure_runs


@dataclass(frozen=True)
class Frame:
    """An image at the base ("0") or a level: which models are first wrong here, and whether the strip's model is."""

    at: str
    image: str
    failing: tuple[str, ...]
    marked: bool


# A shift, the model of its strips, and each scene's class and frames.
FilmStrips = tuple[Severity, ModelFacts, list[tuple[str, tuple[Frame, ...]]]]


def pick_strips(answered: AllAnswers, results: Results) -> list[FilmStrips]:
    """The strips of each shift with levels; reads only the images shown."""
    subject, groups = answered.subject, shifts_with_levels(answered.subject)
    chosen = []
    for severity in results.severity[:MOST_SHIFTS]:
        model = middle_model(severity, results)
        if model is None:
            continue
        of_model = answered.models.index(model.name)
        scenes = trajectories_of(answered, groups[severity.shift])
        scenes = scenes.only(scenes.complete & scenes.right_at_base[:, of_model])
        _, cells = failure_runs(scenes.present[:, 1:], scenes.right[:, 1:])
        # By side of the strip; who is wrong at the base fails there.
        fails = np.where(scenes.right_at_base, cells + 1, 0)
        order = np.argsort(fails[:, of_model], kind="stable")
        for place in sorted({len(order) * quartile // 4 for quartile in (1, 2, 3)} if len(order) else ()):
            scene = int(order[place])
            name = subject.classes[int(scenes.labels[scene])].name
            chosen.append((severity, model, name, scenes.rows[scene].tolist(), fails[scene].tolist()))
    shown = frozenset(subject.keys[row] for *_, rows, _ in chosen for row in rows)
    images = subject.images(shown) if shown else ()
    pictures = {key: data_uri(webp(rgb_image(encoded), 88, THUMBNAIL)) for key, encoded in images}
    found: dict[str, FilmStrips] = {}
    for severity, model, name, rows, fails in chosen:
        frames = []
        for side, (at, row) in enumerate(zip(severity.ats, rows, strict=True)):
            here = [one for one, fail in zip(results.models, fails, strict=True) if fail == side]
            failing = tuple(one.short_name for one in here)
            frames.append(Frame(at, pictures[subject.keys[row]], failing, model in here))
        found.setdefault(severity.shift, (severity, model, []))[2].append((name, tuple(frames)))
    return list(found.values())
