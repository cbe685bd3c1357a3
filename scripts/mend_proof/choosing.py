"""Part *choosing*: do the k contexts that are chosen for the planted class name where it fails?

What that means depends on the kind. In *noisy* worlds the planted context is where labels were
flipped: it should be among the k. In *rare* worlds the scarce kind fails: one of the k should name
it; beside it, whether all do. In *correlation* worlds, and of the wardrobe's classes that learned a
place, the slice is the class *without* its context: none of the k should be the planted one, which
chance mostly grants too, so chance is shown, and how much more of the slice the chosen contexts
hold: of their rows of the confirm half, the share truly in the slice over the class's.
"""

from __future__ import annotations

from math import comb
from typing import Any

import numpy as np

from counterfoil.lab.vocabulary import BACKGROUND_BIAS
from directions_proof.intervals import POSITIVE, mean_of, mean_percent, percent_of
from mend_proof.plan import RANKS, RunResults, groups_of, kind_of
from mend_proof.runs import Audit, Run
from proof_files import Facts


def planted_of(audit: Audit) -> list[tuple[int, tuple[str, str]]]:
    """Return (label, (attribute, value)) of what was planted: one of a world, several of the
    wardrobe."""
    world = audit.target.world
    if world is not None:
        assert world.planted is not None
        return [(world.planted, (str(world.attribute), str(world.value)))]
    names = list(audit.target.class_names)
    return [
        (names.index(name), ("background", background))
        for name, background in BACKGROUND_BIAS.items()
    ]


def measure(run: Run) -> Facts:
    """Return by rank, by planted class if it is chosen, chance, and what the chosen contexts hold
    of the slice."""
    return {
        rank: [_of_class(run, label, claim, rank) for label, claim in planted_of(run.audit)]
        for rank in RANKS
    }


def _of_class(run: Run, label: int, claim: tuple[str, str], rank: Any) -> Facts:
    audit = run.audit
    kind = kind_of(run.target.name)
    contexts = audit.contexts[label]
    chosen = run.chosen(label, rank)
    named = [claim in context.claims for context in contexts]
    hits = [named[index] for index in chosen]
    count = len(contexts)
    others = len(contexts) - sum(named)
    none_by_chance = comb(others, run.settings.k) / comb(count, run.settings.k)
    absent = kind in ("correlation", "wardrobe")
    missed = not any(hits)
    rows = run.halves.confirm[audit.mined.labels[run.halves.confirm] == label]
    inside = np.isin(audit.assigned[rows], chosen)
    members = audit.mined.members[rows]
    return {
        "holds": bool(chosen) and missed == absent,
        "all": bool(chosen) and (missed if absent else all(hits)),
        "chance": none_by_chance if absent else 1 - none_by_chance,
        "lift": float(members[inside].mean() / members.mean())
        if inside.any() and members.any()
        else float("nan"),
        "failures": float(audit.failed[rows][inside].mean()) if inside.any() else float("nan"),
        "of class": float(audit.failed[rows].mean()),
        "words": [contexts[index].words for index in chosen],
    }


def table(results: RunResults) -> list[str]:
    """Return Markdown: one line a kind and rank; a world's value is the mean of its runs."""
    lines = [
        "*noisy*: the planted context is among the 3 chosen of the planted class. *rare*: one of"
        " the 3 names the scarce"
        " kind (*all*: each does). *correlation* and *wardrobe*: none of the 3 is the planted"
        " context, for there the"
        " class fails without it. *chance*: of 3 contexts drawn blindly. *slice*: among rows of the"
        " confirm half in the"
        " chosen contexts, the share truly in the slice, over that of the class. *fails*: failure"
        " rate of these rows,"
        " and of the class.",
        "",
        "| targets | rank | holds | all | chance | slice | fails | class fails |",
        "| -- | -- | --: | --: | --: | --: | --: | --: |",
    ]
    for title, group in groups_of(results).items():
        lines += [_line(title, group, rank) for rank in RANKS]
    return lines


def _line(title: str, results: RunResults, rank: str) -> str:
    def of(which: str) -> list[float]:
        return [
            float(np.nanmean([choice[which] for run in runs for choice in run[rank]]))
            for runs in results.values()
        ]

    cells = [
        mean_percent(of("holds")),
        mean_percent(of("all")),
        percent_of(float(np.mean(of("chance")))),
        mean_of(of("lift"), POSITIVE).text(),
        mean_percent(of("failures")),
        mean_percent(of("of class")),
    ]
    return f"| {title} | {rank} | {' | '.join(cells)} |"
