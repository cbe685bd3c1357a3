"""What came of a run: a table of kinds and outcomes, the bad cases grouped by cause, and the
section of RESULTS.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import results_page
from fuzzing.judging import BAD, BROKEN, GOOD, Verdict
from fuzzing.limits import Limits
from fuzzing.plan import KINDS

RESULTS = Path(__file__).with_name("RESULTS.md")
# What reads strangers' files, beside the words that every table has.
_VERSIONS = ("timm", "pyarrow", "pillow", "pyyaml", "pydantic", "typer")


def table(verdicts: Sequence[Verdict]) -> list[str]:
    """Return kinds × outcomes, with the slowest case and the greatest memory of each, as
    Markdown."""
    columns = [*GOOD, *BAD]
    if any(verdict.outcome == BROKEN for verdict in verdicts):
        columns.append(BROKEN)
    of_kind = {name: [v for v in verdicts if v.case.kind == name] for name in KINDS}
    of_kind = {name: cases for name, cases in of_kind.items() if cases}
    if len(of_kind) > 1:
        of_kind["all"] = list(verdicts)
    rows = []
    for name, cases in of_kind.items():
        counts = Counter(verdict.outcome for verdict in cases)
        slowest = max(cases, key=lambda verdict: verdict.seconds)
        most = max(verdict.grown for verdict in cases)
        cells = [name, f"{len(cases):,}", *(f"{counts[column]:,}" for column in columns)]
        rows.append([*cells, f"{slowest.seconds:.1f} s ({slowest.case})", f"{most:,} MiB"])
    return results_page.table(["kind", "cases", *columns, "slowest", "most memory"], rows)


def bad_line(verdict: Verdict) -> str:
    """Return one line about a bad case: its name, what happened, where, and what was odd."""
    changes = "; ".join(verdict.told)
    return f"{verdict.case} {verdict.outcome}: {verdict.line} | {verdict.step} | {changes[:300]}"


def by_cause(verdicts: Sequence[Verdict]) -> list[tuple[str, str, list[Verdict]]]:
    """Return (outcome, cause, cases) of all bad cases, most frequent first."""
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.bad:
            groups.setdefault((verdict.outcome, verdict.cause), []).append(verdict)
    causes = [(*key, cases) for key, cases in groups.items()]
    return sorted(causes, key=lambda group: (-len(group[2]), group[:2]))


def write(verdicts: Sequence[Verdict], command: str, limits: Limits, path: Path = RESULTS) -> None:
    """Put into RESULTS.md how it was run, the counts, and every cause of a bad case."""
    opening = [
        f"`{command}`. Each case is a process of its own with at most {limits.mebibytes:,} MiB more"
        " than it begins"
        f" with. A step of over {limits.seconds:g} s is a hang. What a step answers in words, with"
        " exit code 1 or 2, is"
        " refused.",
    ]
    kinds = {verdict.case.kind for verdict in verdicts}
    about = [f"- `{name}`: {kind.what}." for name, kind in KINDS.items() if name in kinds]
    lines = [*table(verdicts), "", *about, ""]
    causes = by_cause(verdicts)
    if causes:
        lines += [f"Bad cases ({sum(len(cases) for *_, cases in causes):,}) by cause:", ""]
        lines += [
            f"- {len(cases):,} × {outcome}: {cause} (`{cases[0].case}`)"
            for outcome, cause, cases in causes
        ]
    else:
        lines += [
            "No case crashed, hung, took more memory, read outside, or raised what a person should"
            " not see."
        ]
    read_by = ", ".join(f"{name} {version(name)}" for name in _VERSIONS)
    measured_in = {"cases": f"files read by {read_by}"}
    tables = {"cases": lines}
    results_page.write(path, "fuzz", "Strangers' files", opening, tables, ["cases"], measured_in)
