"""Part *power*: which failures does mining report, by how much they fail and how few rows they are?

Failures are injected where rows exist: in each class of the wardrobe's split `audit` a *cell* (all
rows of one colour, one place, one pattern; or of one colour against the wall) is chosen, and right
answers in it are made wrong at random until it fails so many points more often than the rest of its
class. A gap of 0 is the control. Answers are those of the lab's classifiers, with all that they get
wrong by themselves, or of one that is right everywhere else; of the second the truth about every
word is known, for a row fails by its attributes alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from counterfoil.arrays import Bools, Floats
from counterfoil.lab.planted import PlantedWorld
from counterfoil.mining.hypotheses import Hypothesis, Role
from directions_proof.captions import captions_of, claims_of
from directions_proof.honesty import MINE, ROLES, mined_rows
from directions_proof.intervals import share_of, share_percent
from directions_proof.worlds import Attributes, AuditedWardrobe
from proof_files import Facts, Results, Values

CAUGHT = 1.5  # a set catches a cell whose rows are so much more frequent in it than in the class
RUNS = 80  # a classifier and way of answering; each plants a cell in each of ten classes
GAPS = (0.0, 0.1, 0.2, 0.3, 0.5)
SHARES = ((0.02, 0.06), (0.06, 0.12), (0.12, 0.2), (0.4, 0.6))
REAL = "the lab's eight"
PERFECT = "right everywhere else"
_SEED = 300  # of cells, gaps and halves: nothing was chosen on it
# What no caption of the grammar says: every picture is so unless something says otherwise.
_UNSAID = {
    "pattern": "plain",
    "weather": "clear",
    "light": "day",
    "companion": "none",
    "style": "photo",
}
_PAIRED = ("colour", "background", "wall")

Cell = Values


def measure(audited: AuditedWardrobe) -> Facts:
    """Return every planted cell with what became of it, and every reported finding with the truth
    of its words."""
    planted = []
    findings = []
    for answers in (REAL, PERFECT):
        for run in range(RUNS):
            rng = np.random.default_rng([_SEED, run, *audited.name.encode(), answers == REAL])
            cells, reported = _run(audited, answers, rng)
            planted += cells
            findings += reported
    return {"planted": planted, "findings": findings}


def _run(
    audited: AuditedWardrobe, answers: str, rng: np.random.Generator
) -> tuple[list[Facts], list[Facts]]:
    rows = audited.validation
    attributes = audited.attributes
    unplanted = rows.failed if answers == REAL else np.zeros(len(rows.labels), bool)
    failed = unplanted.copy()
    chances = np.zeros(len(unplanted))
    cells = {}
    for label in range(len(audited.classes)):
        of_class = np.flatnonzero(rows.labels == label)
        cell = plant(
            unplanted[of_class],
            {name: values[of_class] for name, values in attributes.items()},
            rng,
        )
        if cell is None:
            continue
        members = holds(attributes, cell["cell"]) & (rows.labels == label)
        chances[members] = cell["chance"]
        failed |= members & (rng.random(len(unplanted)) < cell["chance"])
        cells[label] = cell | {"members": members}
    outcomes = mined_rows(
        replace(rows, failed=failed), audited.whitening, captions_of(audited), audited.world.class_names,
        seed=int(rng.integers(2**32)), permutations=0,
    )  # fmt: skip
    reported = [outcome.hypothesis for outcome in outcomes if outcome.after.confirmed]
    inside = {
        finding.name: np.isin(rows.labels, finding.labels)
        & finding.members(rows.features, rows.labels)
        for finding in reported
    }
    planted = []
    for label, cell in cells.items():
        sets = [finding for finding in reported if label in finding.labels]
        members = cell["members"]
        rest = (rows.labels == label) & ~members
        caught = [
            members[inside[finding.name]].mean() >= CAUGHT * cell["share"] for finding in sets
        ]
        right = [
            finding.role == "hard" and _tells(audited.world, label, finding.caption, cell["cell"])
            for finding in sets
        ]
        gap = failed[members].mean() - failed[rest].mean()
        planted.append(
            {
                "answers": answers,
                "share": cell["share"],
                "gap": cell["gap"],
                "drawn_gap": float(gap),
                "caught": any(caught),
                "named": any(right),
                "reported": bool(sets),
            }
        )
    if answers == REAL:
        return planted, []
    findings = [
        {
            "role": finding.role,
            "set": _difference(chances, inside[finding.name], np.isin(rows.labels, finding.labels)),
            "words": _of_words(audited, finding, cells),
        }
        for finding in reported
    ]
    return planted, findings


def plant(failed: Bools, attributes: Attributes, rng: np.random.Generator) -> Facts | None:
    """Return a cell of one class, its share, the gap to plant, and the chance that a right row
    turns wrong; None if none fits.

    failed, and each attribute: of the class's n rows. The cell is one of a band of shares, and of
    those that do not fail more than that already; None if there is no such cell.
    """
    gap = float(rng.choice(GAPS))
    low, high = SHARES[int(rng.integers(len(SHARES)))]
    fit = []
    for cell in cells_of(attributes):
        members = holds(attributes, cell)
        if not low <= members.mean() < high:
            continue
        rate = failed[members].mean()
        wanted = failed[~members].mean() + gap
        if rate <= wanted <= 1:
            chance = (wanted - rate) / (1 - rate) if rate < 1 else 0.0
            fit.append((cell, float(members.mean()), float(chance)))
    if not fit:
        return None
    cell, share, chance = fit[int(rng.integers(len(fit)))]
    return {"cell": dict(cell), "share": share, "gap": gap, "chance": chance}


def cells_of(attributes: Attributes) -> Iterator[Cell]:
    """Yield all cells that captions can name, of any share."""
    for name, values in attributes.items():
        yield from (
            {name: value} for value in np.unique(values).tolist() if _UNSAID.get(name) != value
        )
    name, beside, value = _PAIRED
    yield from ({name: first, beside: value} for first in np.unique(attributes[name]).tolist())


def holds(attributes: Attributes, claims: Values) -> Bools:
    """Return (n,) for which rows every claim holds."""
    return np.logical_and.reduce([attributes[name] == value for name, value in claims.items()])


def difference_of_words(
    attributes: Attributes, cell: Cell, chance: float, claims: Values, role: Role
) -> float:
    """Return how much more often a class's scenes fail with what is claimed (`hard`), or without it
    (`far_from`).

    attributes: of the class's rows; a row in the cell fails by `chance`, every other never.
    Compared are the scenes of which the claims do not hold, as they are and changed so that they
    do. Nothing claimed makes no difference.
    """
    others = ~holds(attributes, claims) if claims else np.zeros(0, bool)
    if not others.any():
        return 0.0
    as_is = {name: values[others] for name, values in attributes.items()}
    changed = as_is | {name: np.full(int(others.sum()), value) for name, value in claims.items()}
    more = chance * (holds(changed, cell).mean() - holds(as_is, cell).mean())
    return float(more if role == "hard" else -more)


def _of_words(audited: AuditedWardrobe, finding: Hypothesis, cells: Mapping[int, Facts]) -> float:
    """Return the largest difference that a finding's words make in its classes."""
    differences = [0.0]
    for label in finding.labels:
        if label in cells:
            of_class = audited.validation.labels == label
            of_the_class = {name: values[of_class] for name, values in audited.attributes.items()}
            claims = claims_of(audited.world, label, finding.caption)
            differences.append(
                difference_of_words(
                    of_the_class, cells[label]["cell"], cells[label]["chance"], claims, finding.role
                )
            )
    return max(differences)


def _difference(chances: Floats, inside: Bools, of_classes: Bools) -> float:
    rest = of_classes & ~inside
    return (
        float(chances[inside].mean() - chances[rest].mean()) if inside.any() and rest.any() else 0.0
    )


def _tells(world: PlantedWorld, label: int, caption: str, cell: Cell) -> bool:
    claims = claims_of(world, label, caption)
    return all(claims.get(name) == value for name, value in cell.items())


def table(results: Results) -> list[str]:
    """Return Markdown: what is caught and named, by gap and share; then what is false of what was
    reported."""
    lines = [
        "Failures injected into answers on the wardrobe's split `audit`, 600 rows of a class in"
        " each half: in each of"
        f" ten classes a cell, {RUNS} runs a classifier. *Caught*: a finding of the class is"
        " reported at"
        f" q ≤ {MINE.fdr:g} whose set has the cell's rows {CAUGHT:g} times as often as the class;"
        " *named*: it is near a"
        " caption that tells the cell, whatever else it tells. In brackets: 95 % over classifiers.",
        "",
        "| answers | the cell's share of its class | "
        + " | ".join(f"+{100 * gap:.0f} points" for gap in GAPS)
        + " |",
        "| -- | -- |" + " --: |" * len(GAPS),
    ]
    for answers in (REAL, PERFECT):
        for low, high in SHARES:
            cells = [_cell(results, answers, (low, high), gap) for gap in GAPS]
            lines.append(
                f"| {answers} | {100 * low:.0f} to {100 * high:.0f} % | {' | '.join(cells)} |"
            )
    lines += [
        "",
        f"What is false among the findings reported where answers are {PERFECT}: sets, and words,"
        " that truly make no"
        f" more than {100 * MINE.margin:.0f} points of a difference. In brackets: 95 % over"
        " classifiers.",
        "",
        "| findings | reported | sets false | words false |",
        "| -- | --: | --: | --: |",
    ]
    for name, roles in (*((role.replace("_", " "), (role,)) for role in ROLES), ("all", ROLES)):
        kept = [
            [finding for finding in world["findings"] if finding["role"] in roles]
            for world in results.values()
        ]
        false = [
            share_percent(
                (sum(finding[what] <= MINE.margin for finding in each), len(each)) for each in kept
            )
            for what in ("set", "words")
        ]
        lines.append(f"| {name} | {sum(map(len, kept))} | {' | '.join(false)} |")
    return lines


def _cell(results: Results, answers: str, shares: tuple[float, float], gap: float) -> str:
    """Return `76 % (70 % to 81 %); named 61 %; of 120`."""
    cells = [
        [
            cell
            for cell in world["planted"]
            if (cell["answers"], cell["gap"]) == (answers, gap)
            and shares[0] <= cell["share"] < shares[1]
        ]
        for world in results.values()
    ]
    count = sum(map(len, cells))
    if not count:
        return "–"
    caught, named = (
        share_of([(sum(cell[what] for cell in each), len(each)) for each in cells])
        for what in ("caught", "named")
    )
    return f"{caught.text(percent=True)}; named {100 * named.value:.0f} %; of {count}"
