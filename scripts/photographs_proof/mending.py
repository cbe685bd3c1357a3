"""Part *mending*: what `mend` does for networks that fail on corrupted photographs.

Each class's photographs are split by number. A head learns from corrupted photographs of the first
part; the command chooses λ on one half of the second; the third took no part, and only judges.
There one corruption more is measured that no head learned from. Heads stand beside the network as
it was: the command's, its two controls (the head retrained alone, and with as many untouched
photographs), and Deep Feature Reweighting (Kirichenko 2023) by the known groups, class and
corruption, on the half that chose λ.
"""

from __future__ import annotations

import copy
import csv
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from counterfoil import evaluate, mend
from counterfoil.arrays import Bools
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.mending.evaluating import GRID
from counterfoil.mending.given import given_variants
from counterfoil.mending.one_model import load_mendable, mend_one
from counterfoil.mending.prepared import MendSettings, mend_source, prepare_inputs
from counterfoil.models.classifiers.head import LinearHead
from counterfoil.models.classifiers.of_python import handed_over
from counterfoil.stats import mean_over_units, seeded_generator
from photographs_proof.networks import CLASSES, CifarResNet, load_network, transform
from photographs_proof.scored import SEED, hits_of

LEARNED = ("fog", "gaussian_noise", "low_resolution")
UNSEEN = "motion_blur"
ORIGINAL = "original"
RETRAINED = "retrained"
CONTROL = "control"
MENDED = "mended"
BALANCED = "bound"
# By the role of a variant in `mend`.
HEADS = {
    ORIGINAL: "as it was",
    RETRAINED: "retrained alone (λ = 0)",
    CONTROL: "with as many untouched photographs",
    MENDED: "`mend` with corrupted photographs",
    BALANCED: "balanced groups (reweighting)",
}
COMPARED = (
    (MENDED, ORIGINAL),
    (MENDED, RETRAINED),
    (MENDED, CONTROL),
    (BALANCED, ORIGINAL),
    (BALANCED, MENDED),
)
# The networks that were looked at before the rule for λ was set, on the same photographs.
CHOOSING = ("resnet20", "resnet32")
# The network whose head is fitted by `counterfoil.mend` too: it must be the very head that is
# judged.
CHECKED = "resnet20"
# Mean over the corruptions that heads learned from.
_TOGETHER = "learned"


class HeadOnTrunk(nn.Module):
    """A network with another last layer. Networks that share `features` compute what it reads once
    a batch."""

    label_names = CLASSES

    def __init__(
        self, network: CifarResNet, head: LinearHead | None, features: dict[bytes, torch.Tensor]
    ) -> None:
        super().__init__()
        self.network, self.features = copy.deepcopy(network), features
        if head is not None:
            self.network.linear.weight.data = torch.from_numpy(head.weight.copy())
            self.network.linear.bias.data = torch.from_numpy(head.bias.copy())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        key = hashlib.sha256(x.numpy().tobytes()).digest()
        if key not in self.features:
            self.features[key] = self.network.read_by_head(x)
        return self.network.linear(self.features[key])


def measured_mending(
    weights: Path, recipe: Path, learned: Path, audited: Path, judged: Path, out: Path
) -> dict[str, Any]:
    """Mend a network, and judge every head on photographs that took no part; accuracies and paired
    differences.

    recipe: of the split photographs. learned, audited, judged: datasets of its three splits. out:
    folders begin so.
    """
    network = load_network(weights)
    name = weights.stem
    features: dict[bytes, torch.Tensor] = {}
    original = HeadOnTrunk(network, None, features)
    groups = _written_groups(audited, out.with_name(f"{out.name}-groups.csv"))
    using = [str(learned), f"dfr:{groups}"]
    # As `counterfoil.mend` does, which leaves one head and not all.
    with handed_over({name: original}, transform()) as (called, held):
        source = mend_source(recipe, (), "test", None, 0, [str(audited)])
        for holder in held:
            holder.images = lambda: [source.train]
        settings = MendSettings(GRID, "lbfgs", None, 0, None, effects=False)
        prepared = prepare_inputs(source, given_variants(using), {}, settings)
        mended_model = mend_one(load_mendable(called, source)[called[0]], prepared, out, "cpu")
    heads = {}
    for variant in mended_model.summary.arms:
        head = mended_model.heads[variant.name]
        assert isinstance(head, LinearHead)
        heads[variant.role] = head
    if name == CHECKED:
        command = mend(
            {name: original}, recipe, using, out.with_name(f"{out.name}-command"), transform=transform(),
            audited=[str(audited)], test="test", save=str(learned), device="cpu",
        )  # fmt: skip
        head = command.heads[name]
        assert isinstance(head, LinearHead) and np.array_equal(head.weight, heads[MENDED].weight)
    models = {role: HeadOnTrunk(network, heads.get(role), features) for role in HEADS}
    evaluation = out.with_name(f"{out.name}-judged")
    evaluate(
        judged,
        models,
        transform=transform(),
        out=evaluation,
        device="cpu",
        reference=False,
        seed=SEED,
    )
    hits = {role: hits_of(evaluation, role) for role in HEADS}
    mended = next(variant for variant in mended_model.summary.arms if variant.role == MENDED)
    return {
        "lambda": {variant.role: variant.lam for variant in mended_model.summary.arms},
        "images": {variant.role: variant.images for variant in mended_model.summary.arms},
        "outcome": mended.outcome,
        "verdict": mended.verdict,
        "accuracy": {
            role: {shift: float(role_hits.mean()) for shift, role_hits in hits[role].items()}
            for role in HEADS
        },
        "differences": {
            f"{first} {other}": _differences(hits[first], hits[other]) for first, other in COMPARED
        },
    }


def _written_groups(audited: Path, file: Path) -> Path:
    """Write which corruption each audited image has."""
    opened = open_dataset(str(audited))
    shifts = [shift.name for shift in opened.recipe.all_shifts()]
    with file.open("w", encoding="utf-8", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(("key", "group"))
        rows.writerows(
            (key, shifts[shift])
            for key, shift in zip(opened.keys, opened.shifts.tolist(), strict=True)
        )
    return file


def _differences(
    first: Mapping[str, Bools], other: Mapping[str, Bools]
) -> dict[str, list[float | None]]:
    """Return by shift how much more accurate one head is than another, with its 95 % interval over
    photographs."""
    by_shift = {
        shift: first[shift].astype(np.float64).ravel() - other[shift].ravel() for shift in first
    }
    by_shift[_TOGETHER] = np.mean([by_shift[shift] for shift in LEARNED], axis=0)
    differences = {}
    for shift, values in by_shift.items():
        estimate = mean_over_units(
            values, np.arange(len(values)), seeded_generator(SEED, "heads", shift)
        )
        differences[shift] = [estimate.value, estimate.low, estimate.high]
    return differences


def mending_table(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the accuracy of each head on photographs that took no part, and what it gains on
    others."""
    shifts = ("base", *LEARNED, UNSEEN)
    first = next(iter(results.values()))
    lines = [
        "### Heads mended with corrupted photographs",
        "",
        "Accuracy in % on photographs that took no part, untouched (*base*) and corrupted at"
        " severity 3. Heads learn"
        f" from {first['images'][MENDED]:,} photographs under {', '.join(LEARNED)}; none learned"
        f" from {UNSEEN}."
        f" *Balanced groups*: {first['images'][BALANCED]:,} photographs of the half that chooses λ,"
        " as many of each"
        " class and corruption; this uses the corruption of each photograph, which nobody knows in"
        " use. That λ may not"
        " cost unchanged photographs more than half a point became the command's rule after"
        f" {' and '.join(CHOOSING)} had been looked at without it; the other networks were first"
        " seen with it.",
        "",
        f"| network | head | λ | {' | '.join(shifts)} |",
        "| :-- | :-- | --: |" + " --: |" * len(shifts),
    ]
    for network, result in results.items():
        for role, words in HEADS.items():
            lam = result["lambda"].get(role)
            cells = [f"{100 * result['accuracy'][role][shift]:.1f}" for shift in shifts]
            lines.append(
                f"| {network} | {words} | {'' if lam is None else f'{lam:g}'} | {' | '.join(cells)}"
                " |"
            )
    lines += [
        "",
        "Differences in points, with 95 % intervals over photographs (of the same photographs, so"
        " paired).",
        "",
        f"| network | of | mean of the three | {' | '.join(shifts)} |",
        "| :-- | :-- | --: |" + " --: |" * len(shifts),
    ]
    for network, result in results.items():
        for role, other in COMPARED:
            values = result["differences"][f"{role} {other}"]
            cells = [_cell(values[shift]) for shift in (_TOGETHER, *shifts)]
            lines.append(
                f"| {network} | {HEADS[role]}, less {HEADS[other]} | {' | '.join(cells)} |"
            )
    lines += ["", "What `mend` says:", ""]
    return lines + [
        f"- {network}: {result['outcome']}. {result['verdict']}"
        for network, result in results.items()
    ]


def _cell(difference: list[float]) -> str:
    value, low, high = (100 * share for share in difference)
    return f"{value:+.1f} ({low:+.1f} to {high:+.1f})"
