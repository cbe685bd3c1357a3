"""What came of a run: a table of kinds and outcomes, the bad cases grouped by cause, and the section of RESULTS.md."""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fuzzing.judging import BAD, BROKEN, GOOD, Verdict
from fuzzing.limits import Limits
from fuzzing.plan import KINDS

HEADING = "## Strangers' files: `scripts/fuzz.py`"
_VERSIONS = ("counterfoil", "torch", "timm", "pyarrow", "pillow", "pyyaml", "pydantic", "typer")


def table(verdicts: Sequence[Verdict]) -> list[str]:
    """Kinds × outcomes, with the slowest case and the greatest memory of each, as Markdown."""
    columns = [*GOOD, *BAD] + ([BROKEN] if any(one.outcome == BROKEN for one in verdicts) else [])
    titles = ["kind", "cases", *columns, "slowest", "most memory"]
    lines = [_line(titles), _line(["--", *["--:"] * (len(titles) - 1)])]
    kinds = [name for name in KINDS if any(one.case.kind == name for one in verdicts)]
    lines += [_row(name, [one for one in verdicts if one.case.kind == name], columns) for name in kinds]
    if len(kinds) > 1:
        lines.append(_row("all", verdicts, columns))
    return lines


def _row(name: str, verdicts: Sequence[Verdict], columns: Sequence[str]) -> str:
    counts = Counter(one.outcome for one in verdicts)
    slowest = max(verdicts, key=lambda one: one.seconds)
    cells = [name, f"{len(verdicts):,}", *(f"{counts[column]:,}" for column in columns)]
    return _line([*cells, f"{slowest.seconds:.1f} s ({slowest.case})", f"{max(one.grown for one in verdicts):,} MiB"])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def bad_line(verdict: Verdict) -> str:
    """One line about a bad case: its name, what happened, where, and what was odd."""
    told = "; ".join(verdict.told)
    return f"{verdict.case} {verdict.outcome}: {verdict.line} | {verdict.step} | {told[:300]}"


def by_cause(verdicts: Sequence[Verdict]) -> list[tuple[str, str, list[Verdict]]]:
    """(outcome, cause, cases) of all bad cases, most frequent first."""
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for one in verdicts:
        if one.bad:
            groups.setdefault((one.outcome, one.cause), []).append(one)
    return sorted(((*key, found) for key, found in groups.items()), key=lambda group: (-len(group[2]), group[:2]))


def section(verdicts: Sequence[Verdict], command: str, limits: Limits) -> str:
    """The section of RESULTS.md: how it was run, the counts, and every cause of a bad case."""
    lines = [
        HEADING,
        "",
        f"`{command}`, on {platform.system()} with Python {platform.python_version()} and {', '.join(_versions())}.",
        f"Each case is a process of its own with at most {limits.mebibytes:,} MiB more than it begins with. A step of"
        f" over {limits.seconds:g} s is a hang. What a step answers in words, with exit code 1 or 2, is refused.",
        "",
        *table(verdicts),
        "",
        *(f"- `{name}`: {KINDS[name].what}." for name in KINDS if any(one.case.kind == name for one in verdicts)),
        "",
    ]
    causes = by_cause(verdicts)
    if causes:
        lines += [f"Bad cases ({sum(len(found) for *_, found in causes):,}) by cause:", ""]
        lines += [f"- {len(found):,} × {outcome}: {cause} (`{found[0].case}`)" for outcome, cause, found in causes]
    else:
        lines += ["No case crashed, hung, took more memory, read outside, or raised what a person should not see."]
    return "\n".join([*lines, ""])


def _versions() -> list[str]:
    found = []
    for name in _VERSIONS:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return found


def with_section(document: str, section: str) -> str:
    """A document whose section of the given one's heading is the given one; the others stay as they are."""
    if not document:
        document = "# Results\n\n"
    heading = section.partition("\n")[0]
    pattern = re.compile(rf"^{re.escape(heading)}$.*?(?=^## |^<!-- |\Z)", re.MULTILINE | re.DOTALL)
    if pattern.search(document):
        return pattern.sub(lambda _: f"{section}\n", document).rstrip("\n") + "\n"
    return f"{document.rstrip()}\n\n{section}"


def write_section(path: Path, text: str) -> None:
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    path.write_text(with_section(before, text), encoding="utf-8")
