"""Prove the method `contexts` and mended heads in planted worlds and on the wardrobe's classifiers, beside controls.

    python scripts/prove_mend.py --write          # the tables, into mend_proof/RESULTS.md
    python scripts/prove_mend.py --settings --parts mending            # where settings were chosen
    python scripts/prove_mend.py --targets rare-100 --parts choosing   # one world, one part
    python scripts/prove_mend.py --draw 10                             # draw ahead what runs share, ten minutes

Classifiers of planted worlds come from `scripts/train_planted.py`; a world without one is told and left out. Pictures
are kept by prompt under --kept, rows and features by content, and what a run found as JSON by its code and settings: a
killed proof goes on. Intervals are over worlds, or classifiers, by Student's t, from five on.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

# One thread: sums are then the same on every machine of a kind.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import results_page as report
from counterfoil.models.names import LAB_WEIGHTS
from mend_proof.parts import PARTS, draw_ahead
from mend_proof.plan import CHOSEN_IN, RUNS, SETTINGS_RUNS, SETTINGS_WORLDS, WARDROBE, Settings, code_of_part
from mend_proof.runs import WIDE, Audit, Run, audit_of
from mend_proof.targets import Target
from proof_files import digest_of, measured

RESULTS = Path(__file__).parent / "mend_proof" / "RESULTS.md"
TITLE = "Contexts and mended heads"
_SCREENS = {
    "all": "all, without a screen",
    "recipe": "those that pass the screen of `wardrobe-contexts`",
    "class": "those that CLIP finds most like their own class, which no recipe asks",
}


def main() -> int:
    arguments = _arguments()
    kept = arguments.kept.resolve()
    settings = _settings(arguments.set)
    runs = arguments.runs or (SETTINGS_RUNS if arguments.settings else RUNS)
    targets = arguments.targets or (SETTINGS_WORLDS if arguments.settings else (*WARDROBE, *CHOSEN_IN))
    present = [name for name in targets if _is_there(name, arguments.work)]
    for name in targets:
        if name not in present:
            print(f"{name}: no classifier; python scripts/train_planted.py {name}", file=sys.stderr)
    if arguments.draw:
        told = draw_ahead([Target(name, arguments.work, kept) for name in present], settings, kept, arguments.draw)
        print(f"{told[0]} pictures drawn, {told[1]} prompts left", file=sys.stderr)
        return 0
    tables: dict[str, list[str]] = {}
    measured_in: dict[str, str] = {}
    audits = _Audits(arguments.work, kept)
    for part in arguments.parts:
        chosen = PARTS[part]
        names = [name for name in present if chosen.takes(name)]
        if not names:
            continue
        if chosen.together:
            found = [_kept(kept, part, names, seed, settings, audits) for seed in runs[: chosen.runs]]
        else:
            found = {
                name: [_kept(kept, part, [name], seed, settings, audits) for seed in runs[: chosen.most_runs(name)]]
                for name in names
            }
        used = [] if chosen.draws_nothing or chosen.only else [f"Pictures: {_SCREENS[settings.screen]}.", ""]
        tables[part] = [f"### {chosen.title}", "", *used, *chosen.table(found)]
        measured_in[part] = (
            f"{report.by_kind(names)}, runs {' '.join(map(str, runs))}, of classifiers the first {chosen.runs}"
        )
        print("\n".join([*tables[part], ""]), flush=True)
    if arguments.write:
        report.write(RESULTS, "prove_mend", TITLE, _opening(settings), tables, list(PARTS), measured_in)
    return 0


class _Audits(dict[str, Audit]):
    """Audits by name, made when they are asked for."""

    def __init__(self, work: Path, kept: Path) -> None:
        super().__init__()
        self.work, self.kept = work, kept

    def __missing__(self, name: str) -> Audit:
        self[name] = audit_of(name, self.work, self.kept)
        return self[name]


def _kept(kept: Path, part: str, names: list[str], seed: int, settings: Settings, audits: _Audits) -> dict[str, Any]:
    """What a part found in a run of one target, or of several together."""
    began = time.monotonic()
    part = PARTS[part].measured_as or part
    key = digest_of(
        [
            code_of_part(PARTS[part].measure.__module__.rpartition(".")[2]),
            [Target(name, audits.work, kept).sha256 for name in names],
            seed,
            repr(settings),
        ]
    )
    shown = names[0].replace(":", "-") if len(names) == 1 else "together"

    def measure() -> dict[str, Any]:
        several = [Run(audits[name], seed, settings) for name in names]
        return PARTS[part].measure(several if PARTS[part].together else several[0])

    found = measured(kept / "results" / part / f"{shown}-{seed}-{key}.json", measure)
    if time.monotonic() - began > 1:
        print(f"{part} {shown} {seed}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return found


def _is_there(name: str, work: Path) -> bool:
    return name in WARDROBE or any((place / name / "config.json").exists() for place in (work, LAB_WEIGHTS / "planted"))


def _settings(changes: list[str]) -> Settings:
    known: dict[str, Any] = {}
    for change in changes:
        name, _, value = change.partition("=")
        told = getattr(Settings(), name)
        if isinstance(told, tuple):
            known[name] = tuple(float(one) for one in value.split(","))
        else:
            known[name] = type(told)(value)
    return replace(Settings(), **known)


def _opening(settings: Settings) -> list[str]:
    return [
        "Planted worlds and the wardrobe's classifiers. Runs deal halves, draw training rows and pictures. Settings"
        " were chosen on worlds and runs of seeds 0 to 3.",
        f"k = {settings.k}; {settings.a_failure} pictures a failure, at most {settings.most} of a context, of"
        f" {settings.pool} of each prompt ({settings.pool_plain} of a class's name) that all runs and worlds draw"
        " theirs from. Worlds are drawn by class names, the wardrobe by its tokens."
        f" All {settings.per_class} training images a class of a world, {WIDE} of the"
        f" wardrobe's classifiers; λ of {', '.join(f'{lam:g}' for lam in settings.lambdas)}, chosen on the discover"
        " half. In brackets: 95 % over worlds, or classifiers, where there are five or more.",
    ]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path(".train/planted"), help="where planted classifiers are")
    parser.add_argument("--kept", type=Path, default=Path(".train/mend-proof"), help="pictures, features and results")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS), metavar="PART")
    parser.add_argument("--targets", nargs="+", default=[], metavar="TARGET", help="KIND-SEED or lab:MODEL")
    parser.add_argument("--runs", nargs="+", type=int, default=[], metavar="SEED")
    parser.add_argument("--settings", action="store_true", help="the worlds and runs that settings are chosen on")
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="NAME=VALUE", help="other settings (mend_proof/plan.py)"
    )
    parser.add_argument("--draw", type=float, default=0.0, metavar="MINUTES", help="only draw pictures ahead")
    parser.add_argument("--write", action="store_true", help=f"put the tables into scripts/mend_proof/{RESULTS.name}")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
