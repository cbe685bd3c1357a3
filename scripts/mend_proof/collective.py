"""Part *collective*: do classifiers fail alike, and does one set of pictures mend several (Chegini
2023, 5.2.2, 5.3.2)?

On the wardrobe's eight classifiers, with one dealing of halves for all. *own*: each with what its
own failures choose. *type 1*: contexts are chosen by the failures of all of a group, counted
together. *type 2*: by those of one, for all. All at one λ, that of the paper. What is kept is a
set's gain on heldout over λ = 0, as a share of the gain of the classifier's own set; and, as the
paper counts, the heldout accuracy as a share of the own one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from counterfoil.evaluation.tasks.classes.measures.transfer import architecture_family
from counterfoil.mending.fitting import fit_head
from counterfoil.mending.mend_models import failure_overlap, kept_gain
from counterfoil.mining.methods.contexts import ContextCount, choose_contexts, images_a_context
from counterfoil.models.classifiers import describe_classifier
from directions_proof.intervals import POSITIVE, SHARE, mean_of, percent_of
from mend_proof.runs import Run, Wanted
from proof_files import Facts


def measure(runs: Sequence[Run]) -> Facts:
    """Return failures' overlap, and by target and way the heldout accuracies; `runs` are of one
    seed."""
    names = [run.target.name for run in runs]
    families = [architecture_family(describe_classifier(name).architecture, name) for name in names]
    measured: Facts = {
        "names": names,
        "families": families,
        "overlap": failure_overlap(np.stack([run.audit.failed for run in runs])).tolist(),
        "ways": {},
    }
    by_run = {name: run.wanted() for name, run in zip(names, runs, strict=True)}
    pooled = _pooled(runs)
    for run, family in zip(runs, families, strict=True):
        kin = [run for run, other in zip(runs, families, strict=True) if other == family]
        ways = {"λ = 0": None, "own": by_run[run.target.name], "type 1: all eight": pooled}
        if len(kin) > 1:
            ways["type 1: the family"] = _pooled(kin)
        ways |= {f"type 2: {name}": by_run[name] for name in names if name != run.target.name}
        measured["ways"][run.target.name] = {way: _at(run, wanted) for way, wanted in ways.items()}
    return measured


def _at(run: Run, wanted: list[Wanted] | None) -> Facts:
    """Return the accuracies of a head that is fitted at one λ, with pictures or without."""
    if wanted is None:
        return {"accuracy": dict(run.scored(run.nothing.head).accuracy)}
    fitted = fit_head(run.nothing.head, run.lesson, run.drawn(wanted), _LAMBDA)
    return {"accuracy": dict(run.scored(fitted.head).accuracy)}


def _pooled(runs: Sequence[Run]) -> list[Wanted]:
    """Return contexts by the failures of several classifiers, with pictures for all of them, up to
    the most of a context."""
    settings = runs[0].settings
    wanted = []
    for label, contexts in enumerate(runs[0].audit.contexts):
        counts = [
            _added([run.counts(label)[index] for run in runs]) for index in range(len(contexts))
        ]
        for index in choose_contexts(counts, settings.k, settings.rank, settings.fewest_failures):
            number = images_a_context(counts[index].failures, settings.a_failure, settings.most)
            wanted.append(Wanted(label, contexts[index].prompt, number))
    return wanted


def _added(counts: Sequence[ContextCount]) -> ContextCount:
    first = counts[0]
    return replace(
        first,
        **{
            name: sum(getattr(count, name) for count in counts)
            for name in ("failures", "of_failures", "right", "of_right")
        },
    )


def table(results: Sequence[Facts]) -> list[str]:
    """Return Markdown of runs: overlap within and across families, and what is kept by each way."""
    lines = [
        "Intersection over union of failures on all audited images, mean over pairs and runs:"
        " within a family"
        f" {_overlap(results, True)}, across families {_overlap(results, False)}.",
        "",
        "| set | classifiers | gain over λ = 0 | its own set's | kept of the gain | kept of heldout"
        " |",
        "| -- | --: | --: | --: | --: | --: |",
    ]
    for title, chooses in _WAYS.items():
        cells = _kept(results, chooses)
        if cells:
            lines.append(f"| {title} | {' | '.join(cells)} |")
    return lines


# Chegini 2023, Table 4.
_LAMBDA = 0.5
_WAYS = {
    "type 1: failures of all eight": lambda way, kin: way == "type 1: all eight",
    "type 1: failures of the family": lambda way, kin: way == "type 1: the family",
    "type 2: another of the family": lambda way, kin: way.startswith("type 2") and kin,
    "type 2: of another family": lambda way, kin: way.startswith("type 2") and not kin,
}


def _kept(results: Sequence[Facts], chooses: Any) -> list[str]:
    gains: dict[str, list[tuple[float, float, float, float]]] = {}
    for run in results:
        family = dict(zip(run["names"], run["families"], strict=True))
        for name, ways in run["ways"].items():
            at = {way: result["accuracy"]["heldout"] for way, result in ways.items()}
            for way in at:
                source = way.removeprefix("type 2: ")
                if chooses(way, family.get(source) == family[name]):
                    single = at["own"] - at["λ = 0"]
                    other = at[way] - at["λ = 0"]
                    gains.setdefault(name, []).append((other, single, at[way], at["own"]))
    if not gains:
        return []
    means = np.asarray([np.mean(gain, axis=0) for gain in gains.values()])
    kept = kept_gain(float(means[:, 1].mean()), float(means[:, 0].mean()))
    accuracy = [float(mean[2] / mean[3]) for mean in means if mean[3] > 0]
    return [
        str(len(gains)),
        mean_of(means[:, 0].tolist()).points(),
        mean_of(means[:, 1].tolist()).points(),
        "–" if kept is None else percent_of(kept),
        mean_of(accuracy, POSITIVE).text(percent=True),
    ]


def _overlap(results: Sequence[Facts], same: bool) -> str:
    overlaps = []
    for run in results:
        overlap = np.asarray(run["overlap"])
        families = run["families"]
        for i in range(len(families)):
            overlaps += [overlap[i, j] for j in range(i) if (families[i] == families[j]) == same]
    return mean_of(overlaps, SHARE).text() if overlaps else "–"
