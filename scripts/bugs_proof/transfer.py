"""Part *transfer*: of what the target gets wrong under its findings' words, how much do others get
wrong too?

On generated images: all accepted ones of the findings' tests. On true renders: scenes with the
attributes that are named. Beside it how often the others fail on the base of the same classes.
Wiles 2022, Figure 4: 78 % of another initialisation of the same architecture, 39 to 61 % of others.
"""

from __future__ import annotations

from bugs_proof.proof import Proof
from bugs_proof.runs import Carried, Shown
from bugs_proof.truth import BASE
from bugs_proof.words import renderable
from counterfoil.arrays import Bools
from counterfoil.evaluation.tasks.classes.measures.transfer import architecture_family
from counterfoil.models.classifiers import describe_classifier
from directions_proof.intervals import share_percent
from proof_files import Facts, Results

Counts = dict[str, tuple[int, int]]


def measure(proof: Proof) -> Facts:
    """Return by other classifier [its failures, the target's failures], and [failures, images] of
    its own base."""
    findings = proof.run("bugs").findings
    others = {
        name: {
            "family": _family(name),
            "drawn": _drawn(proof, name, findings),
            "rendered": _rendered(proof, name, findings),
        }
        for name in proof.audit.panel.names
        if name != proof.target
    }
    return {"family": _family(proof.target), "others": others}


def _family(name: str) -> str | None:
    return architecture_family(describe_classifier(name).architecture, name)


def _drawn(proof: Proof, name: str, findings: tuple[Carried, ...]) -> Counts:
    pictures = [(finding.label, shown) for finding in findings for shown in finding.pictures]
    beside = [(finding.label, shown) for finding in findings for shown in finding.beside]
    return _counts(
        [_of(proof, proof.target, *shown) for shown in pictures],
        [_of(proof, name, *shown) for shown in pictures],
        [_of(proof, name, *shown) for shown in beside],
    )


def _rendered(proof: Proof, name: str, findings: tuple[Carried, ...]) -> Counts:
    cells = dict.fromkeys(
        (finding.label, finding.claims) for finding in findings if renderable(finding.claims)
    )
    answers = [proof.truth.failed(*cell) for cell in cells]
    base = [proof.truth.failed(label, BASE)[name] for label, _ in cells]
    return _counts(
        [answer[proof.target] for answer in answers], [answer[name] for answer in answers], base
    )


def _counts(failed: list[Bools], other: list[Bools], base: list[Bools]) -> Counts:
    too = sum(int((first & second).sum()) for first, second in zip(failed, other, strict=True))
    failures = sum(int(each.sum()) for each in failed)
    base_failures = sum(int(each.sum()) for each in base)
    return {"too": (too, failures), "base": (base_failures, sum(map(len, base)))}


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
                too = share_percent([pair["too"] for pair in pairs])
                base = share_percent([pair["base"] for pair in pairs])
                lines.append(f"| {called} | {kin} | {len(pairs)} | {too} | {base} |")
    return lines
