"""`counterfoil build --from`: make a dataset again, or repair it in place, and say how it is to the original."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.cli.build_summary import build_as_json, print_summary
from counterfoil.cli.options import print_json
from counterfoil.cli.progress import BuildDisplay, note

if TYPE_CHECKING:
    from counterfoil.engines import EngineChoice
    from counterfoil.regeneration.comparison import Comparison, RowDifferences
    from counterfoil.regeneration.regenerate_dataset import Regeneration

MOST_LISTED = 10


def make_again(
    source: str,
    out: Path,
    overrides: Sequence[str],
    device: str,
    workers: int | None,
    allow_mixed: bool,
    engine: EngineChoice,
    json: bool,
) -> int:
    """Regenerate, print, and give the exit code: 1 when files differ though the stack is the same."""
    note(f"{source} → {out}: loading libraries and checking what it is made from")
    from counterfoil.regeneration.regenerate_dataset import regenerate

    with BuildDisplay():
        made = regenerate(
            source, out, overrides=overrides, device=device, workers=workers, allow_mixed=allow_mixed, engine=engine
        )
    if json:
        print_json(build_as_json(made) | {"repaired": made.repaired, "comparison": _as_json(made.comparison)})
    else:
        print_summary(made)
        for line in _lines(made):
            print(line)
    return 1 if made.comparison is not None and made.comparison.unexplained else 0


def _as_json(comparison: Comparison | None) -> dict[str, Any] | None:
    return None if comparison is None else {"identical": comparison.identical, **asdict(comparison)}


def _lines(made: Regeneration) -> list[str]:
    found = made.comparison
    if found is None:
        return ["It was compared with nothing: the original has no sound manifest.json."]
    lines = []
    if found.identical:
        lines.append(f"Identical to the original: all {found.shard_files} shard files and what stands beside them.")
    else:
        lines.append(f"{len(found.differing)} of {found.shard_files} shard files differ from the original's.")
        lines += _listed(found.differing)
        if found.others:
            lines += ["Other files that differ:", *_listed(found.others)]
    if found.stack:
        lines += ["The stack differs, which may change bytes:", *_listed(found.stack)]
    if found.unexplained:
        lines += ["The stack does not explain these:", *_listed(found.unexplained)]
    if found.rows is not None:
        lines += _row_lines(found.rows)
    if found.left_out:
        lines += ["Not compared:", *_listed(found.left_out)]
    return lines


def _row_lines(rows: RowDifferences) -> list[str]:
    others = rows.rows - rows.same_bytes - rows.same_pixels
    lines = [
        f"Of {rows.rows} images compared in these shards {rows.same_bytes} are the same bytes, {rows.same_pixels} the"
        f" same pixels in other bytes, {others} differ."
    ]
    if rows.least_psnr is not None:
        lines.append(f"Their PSNR: least {rows.least_psnr:.1f} dB, median {rows.median_psnr:.1f} dB.")
    lines.append(f"{rows.decisions} candidates of these shards were decided otherwise.")
    return lines + _listed([f"{c.key}: {c.there or 'absent'} there, {c.here or 'absent'} here" for c in rows.changed])


def _listed(names: Sequence[str]) -> list[str]:
    more = [f"  … and {len(names) - MOST_LISTED} more"] if len(names) > MOST_LISTED else []
    return [*(f"  {name}" for name in names[:MOST_LISTED]), *more]
