"""Part *reachable*: which true failures could be found at all in what the generator draws of the
base prompt.

A cell (class, attribute value) is worth finding when the classifier truly fails 15 points more
often with the value than on the base. It is reachable when at least 2 % of the class's base images
show the value, by the oracle: a search that begins with failures on the base meets no other.
Captions leave weather, light, companion and style at their default, so that the base has next to
none of them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from bugs_proof.plan import SHOWN, WORTH_FINDING
from bugs_proof.proof import Proof
from bugs_proof.truth import Claims, cell_text, shown, single_cells
from counterfoil.lab.planted import named_world
from counterfoil.lab.vocabulary import ATTRIBUTES
from counterfoil.mining.methods.bugs.search import class_baseline
from proof_files import Facts, Results


@dataclass(frozen=True, slots=True)
class WorthCell:
    """A cell that is worth finding. shown: share of the class's base images; planted: it was put
    into the world.

    left_out: the search looks at no failure of its class, since the base fails more often than not,
    or never.
    """

    label: int
    claims: Claims
    drop: float
    shown: float
    planted: bool
    left_out: bool

    @property
    def reachable(self) -> bool:
        return self.shown >= SHOWN and not self.left_out


def worth_finding(proof: Proof) -> list[WorthCell]:
    """Return all cells of a target that are worth finding, largest drops first. Render what is not
    rendered yet."""
    worth = []
    _, base = proof.audit.baseline()
    for label, of_class in proof.truth.mix.items():
        left_out = class_baseline(base, proof.audit.recipe.classes[label]).reason is not None
        for claims in single_cells():
            rate = proof.truth.rate(proof.target, label, claims)
            if rate.drop >= WORTH_FINDING:
                planted = is_planted(proof.target, label, claims)
                share = shown(of_class, claims)
                worth.append(WorthCell(label, claims, rate.drop, share, planted, left_out))
    return sorted(worth, key=lambda cell: -cell.drop)


def is_planted(target: str, label: int, claims: Claims) -> bool:
    """Return if a world plants this failure: in correlation worlds, every other value of the
    context's attribute."""
    world = named_world(target.rpartition("/")[2])
    if (
        world is None
        or world.planted is None
        or world.attribute in (None, "class")
        or label != world.planted
    ):
        return False
    ((attribute, value),) = claims
    return attribute == world.attribute and (value == world.value) == (world.kind == "noisy")


def measure(proof: Proof) -> Facts:
    """Return the cells of a target."""
    return {"cells": worth_finding(proof)}


def table(results: Results) -> list[str]:
    """Return Markdown: a line a target, then the unreachable cells by attribute."""
    lines = [
        f"True drop of {100 * WORTH_FINDING:.0f} points or more; reachable: shown by"
        f" {100 * SHOWN:.0f} % of the class's"
        " base images or more, of a class that the search does not leave out.",
        "",
        "| classifier | worth finding | reachable | planted | largest reachable ones (drop, shown"
        " by) |",
        "| -- | --: | --: | --: | -- |",
    ]
    without: Counter[str] = Counter()
    left_out = 0
    for target, result in results.items():
        cells = result["cells"]
        reachable = [cell for cell in cells if cell.reachable]
        without.update(
            cell.claims[0][0] for cell in cells if not cell.reachable and not cell.left_out
        )
        left_out += sum(cell.left_out for cell in cells)
        text = "; ".join(
            f"{cell_text(cell.label, cell.claims)} ({100 * cell.drop:.0f}, {100 * cell.shown:.0f} %)"
            for cell in reachable[:3]
        )
        planted = sum(cell.planted for cell in cells)
        lines.append(f"| {target} | {len(cells)} | {len(reachable)} | {planted} | {text} |")
    total = sum(without.values())
    if total:
        text = ", ".join(f"{name} {without[name]}" for name in ATTRIBUTES if without[name])
        lines += [
            "",
            f"Of no class that is left out, {total} are not reachable: {text}. {left_out} are of"
            " such a class.",
        ]
    return lines
