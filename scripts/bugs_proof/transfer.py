"""Part *transfer*: of what the target gets wrong under its findings' words, how much do others get
wrong too?

On generated images: all accepted ones of the findings' tests. On true renders: scenes with the
attributes that are named. Beside it how often the others fail on the base of the same classes.
Wiles 2022, Figure 4: 78 % of another initialisation of the same architecture, 39 to 61 % of others.
"""

from __future__ import annotations

from numpy.typing import NDArray

from bugs_proof.proof import Proof
from bugs_proof.runs import Carried, Shown
from bugs_proof.truth import BASE
from bugs_proof.words import renderable
from counterfoil.arrays import Bools
from counterfoil.evaluation.tasks.classes.measures.transfer import architecture_family
from counterfoil.models.classifiers import describe_classifier
from directions_proof.intervals import share_of
from proof_files import Facts, Results


def measure(proof: Proof) -> Facts:
    """Return by other classifier [its failures, the target's failures], and [failures, images] of
    its own base."""
    panel = proof.audit.panel
    target = proof.target
    findings = proof.run("bugs").findings
    others = {
        name: {
            "family": architecture_family(describe_classifier(name).architecture, name),
            "drawn": _drawn(proof, name, findings),
        }
        | {"rendered": _rendered(proof, name, findings)}
        for name in panel.names
        if name != target
    }
    return {
        "family": architecture_family(describe_classifier(target).architecture, target),
        "others": others,
    }


def _drawn(proof: Proof, name: str, findings: tuple[Carried, ...]) -> dict[str, list[int]]:
    failed = [
        _of(proof, proof.target, finding.label, shown)
        for finding in findings
        for shown in finding.pictures
    ]
    other = [
        _of(proof, name, finding.label, shown) for finding in findings for shown in finding.pictures
    ]
    base = [
        _of(proof, name, finding.label, shown) for finding in findings for shown in finding.beside
    ]
    return _counts(failed, other, base)


def _rendered(proof: Proof, name: str, findings: tuple[Carried, ...]) -> dict[str, list[int]]:
    cells = dict.fromkeys(
        (finding.label, finding.claims) for finding in findings if renderable(finding.claims)
    )
    answers = [proof.truth.failed(*cell) for cell in cells]
    base = [proof.truth.failed(label, BASE)[name] for label, _ in cells]
    return _counts(
        [answer[proof.target] for answer in answers], [answer[name] for answer in answers], base
    )


def _counts(
    failed: list[NDArray], other: list[NDArray], base: list[NDArray]
) -> dict[str, list[int]]:
    too = sum(int((first & second).sum()) for first, second in zip(failed, other, strict=True))
    return {
        "too": [too, sum(int(failures.sum()) for failures in failed)],
        "base": [
            sum(int(failures.sum()) for failures in base),
            sum(len(failures) for failures in base),
        ],
    }


def _of(proof: Proof, name: str, label: int, shown: Shown) -> Bools:
    audit = proof.audit
    return audit.panel.failed(audit.store, shown.cell, label, name)[list(shown.indices)]


def table(results: Results) -> list[str]:
    """Return Markdown: same family and others, on both kinds of images."""
    lines = [
        "Share of the target's failures that another classifier fails on too; intervals over pairs"
        " of classifiers.",
        "",
        "| images | other classifier | pairs | fails too | on the base |",
        "| -- | -- | --: | --: | --: |",
    ]
    for what, called in (("drawn", "generated"), ("rendered", "true renders")):
        for same, kin in ((True, "same family"), (False, "another family")):
            pairs = [
                other[what]
                for result in results.values()
                for other in result["others"].values()
                if (other["family"] == result["family"]) == same and other[what]["too"][1]
            ]
            if pairs:
                too = share_of([tuple(pair["too"]) for pair in pairs]).text(percent=True)
                base = share_of([tuple(pair["base"]) for pair in pairs]).text(percent=True)
                lines.append(f"| {called} | {kin} | {len(pairs)} | {too} | {base} |")
    return lines
