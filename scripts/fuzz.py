"""Feed the commands what strangers could bring, and count what comes of it: nothing may crash,
hang, or read outside.

    python scripts/fuzz.py --cases 10000 --write        # print the counts; put them into
    scripts/fuzzing/RESULTS.md python scripts/fuzz.py --cases 500 --kinds recipe table
    python scripts/fuzz.py --only table:17              # one case again, with everything it said;
    its files are kept

Cases are changed recipes, damaged bytes, and changed files of datasets that are built once a run
(`fuzzing/plan.py` lists the kinds). Each is a process of its own, forked from one that has imported
everything, with a limit of time and of memory, and watched for what it opens. A case is its kind,
its number and the seed, which give the same files again.

Exits 1 where any case crashed, hung, took more memory than allowed, read outside, or raised what is
no message.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

# Before anything is imported that reads them: one thread each, no network, no token of a person.
os.environ |= {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_ENDPOINT": "http://127.0.0.1:9",
    "HF_HUB_DISABLE_XET": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "MPLBACKEND": "agg",
    "NO_PROXY": "*",
}
for _name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "COUNTERFOIL_DEBUG"):
    os.environ.pop(_name, None)

from fuzzing import templates  # noqa: E402
from fuzzing.cases import Case  # noqa: E402
from fuzzing.judging import Court, Verdict, clear  # noqa: E402
from fuzzing.limits import Limits, die_with_parent  # noqa: E402
from fuzzing.plan import KINDS, dealt  # noqa: E402
from fuzzing.report import RESULTS, bad_line, by_cause, table, write  # noqa: E402
from fuzzing.watch import roots_of_the_program  # noqa: E402
from program import new_parser  # noqa: E402

_SECONDS_BETWEEN_LINES = 20.0


def main() -> int:
    arguments = _arguments()
    limits = Limits(seconds=arguments.seconds, mebibytes=arguments.memory)
    with _work(arguments.work, keep=arguments.only is not None) as work:
        if arguments.only is not None:
            return _again(arguments.only, arguments.seed, work, limits)
        cases = dealt(arguments.cases, arguments.seed, arguments.kinds)
        began = time.monotonic()
        verdicts = _judged(cases, work, arguments.jobs, limits)
        seconds = time.monotonic() - began
    print("\n".join(["", *table(verdicts), ""]))
    causes = by_cause(verdicts)
    for outcome, cause, alike in causes:
        print(f"{len(alike):,} × {outcome}: {cause}\n    {bad_line(alike[0])}")
    print(f"{len(cases):,} cases in {seconds:.0f} s with seed {arguments.seed}.")
    if arguments.write:
        kinds = f" --kinds {' '.join(arguments.kinds)}" if arguments.kinds else ""
        command = f"python scripts/fuzz.py --cases {arguments.cases} --seed {arguments.seed}{kinds}"
        write(verdicts, command, limits)
    return 1 if causes else 0


def _arguments() -> argparse.Namespace:
    parser = new_parser(__doc__)
    add = parser.add_argument
    add("--cases", type=int, default=1_000)
    add("--seed", type=int, default=0)
    kinds = ", ".join(KINDS)
    add("--kinds", nargs="+", choices=list(KINDS), default=[], metavar="KIND", help=kinds)
    add("--jobs", type=int, default=2, help="cases at a time")
    add("--only", type=_case, metavar="KIND:NUMBER", help="run one case and tell all about it")
    counts = f"put the counts into scripts/fuzzing/{RESULTS.name}"
    add("--write", action="store_true", help=counts)
    seconds = "a step that takes longer hangs"
    add("--seconds", type=float, default=Limits.seconds, help=seconds)
    memory = "more than a case begins with"
    add("--memory", type=int, default=Limits.mebibytes, metavar="MIB", help=memory)
    work = "a folder for built datasets, which are used again (default: a temporary one)"
    add("--work", type=Path, help=work)
    return parser.parse_args()


def _case(text: str) -> tuple[str, int]:
    kind, _, number = text.partition(":")
    if kind not in KINDS or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"found {text!r}, expected KIND:NUMBER, as in table:17")
    return kind, int(number)


@contextlib.contextmanager
def _work(named: Path | None, keep: bool) -> Iterator[Path]:
    """Give a folder for the run, in memory if possible: cases write and flush thousands of small
    files."""
    if named is not None:
        named.mkdir(parents=True, exist_ok=True)
        yield named.resolve()
        return
    memory = Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=parent))
    try:
        yield folder
    finally:
        if not keep:
            clear(folder)


def _judged(cases: Sequence[Case], work: Path, jobs: int, limits: Limits) -> list[Verdict]:
    """Judge light cases first, in processes that are quick to fork; then the others."""
    light = [case for case in cases if KINDS[case.kind].light]
    heavy = [case for case in cases if not KINDS[case.kind].light]
    verdicts: list[Verdict] = []
    if light:
        _import_light(work)
        verdicts += _run(light, work, {}, jobs, limits)
    if heavy:
        verdicts += _run(heavy, work, _ready_for_datasets(work), jobs, limits)
    return verdicts


def _run(
    cases: Sequence[Case], work: Path, built: Mapping[str, Path], jobs: int, limits: Limits
) -> list[Verdict]:
    verdicts: list[Verdict] = []
    printed = time.monotonic()
    jobs = max(1, min(jobs, len(cases)))
    fork = multiprocessing.get_context("fork")
    given = (work, dict(built), limits)
    with ProcessPoolExecutor(jobs, fork, initializer=_begin, initargs=given) as pool:
        for verdict in pool.map(_judge, cases):
            verdicts.append(verdict)
            if verdict.bad:
                print(bad_line(verdict), flush=True)
            if time.monotonic() - printed > _SECONDS_BETWEEN_LINES:
                printed = time.monotonic()
                print(f"{len(verdicts):,} of {len(cases):,}", file=sys.stderr, flush=True)
    return verdicts


_court: Court


def _begin(work: Path, built: Mapping[str, Path], limits: Limits) -> None:
    global _court
    die_with_parent()
    _court = _court_in(work, built, limits, keep=False)


def _judge(case: Case) -> Verdict:
    return _court.judge(case)


def _court_in(work: Path, built: Mapping[str, Path], limits: Limits, keep: bool) -> Court:
    caches = _caches(work)
    roots = [*roots_of_the_program(), str(caches)]
    prepare = {name: kind.prepare for name, kind in KINDS.items()}
    return Court(work / f"job-{os.getpid()}", prepare, built, caches, roots, limits, keep)


def _caches(work: Path) -> Path:
    """Return the folder for libraries' caches, which must not be the person's home."""
    folder = work / "caches"
    folder.mkdir(exist_ok=True)
    os.environ |= {"HF_HOME": str(folder / "hf"), "MPLCONFIGDIR": str(folder / "matplotlib")}
    return folder


def _import_light(work: Path) -> None:
    """Import what `show` and `check` import, so that no case has to."""
    _caches(work)  # before libraries read where theirs are
    # `check` asks it what the call of a pipeline takes; what its libraries read while they load is
    # no case's doing.
    import diffusers.pipelines.auto_pipeline  # noqa: F401
    import rich.box
    import rich.console
    import rich.filesize
    import rich.table  # noqa: F401
    import torch

    import counterfoil.cli.main
    import counterfoil.plan.layout
    import counterfoil.recipe  # noqa: F401
    from fuzzing.recipes import bundled

    torch.set_num_threads(1)
    bundled()


def _ready_for_datasets(work: Path) -> dict[str, Path]:
    """Import the heavy libraries, build the datasets in a process of its own, and import what that
    had to."""
    _import_light(work)
    templates.preload()
    folder = work / f"datasets-{templates.digest_of_the_package()[:12]}"
    done = folder / "modules"
    if not done.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        print("building the datasets", file=sys.stderr, flush=True)
        process = multiprocessing.get_context("fork").Process(target=_build, args=(folder, done))
        process.start()
        process.join()
        if not done.is_file():
            raise SystemExit("the datasets could not be built")
    templates.import_as_far_as_possible(done.read_text().split())
    return {name: folder / name for name in templates.ALL}


def _build(folder: Path, done: Path) -> None:
    templates.build_templates(folder)
    done.write_text("\n".join(templates.modules_here()))


def _again(name: tuple[str, int], seed: int, work: Path, limits: Limits) -> int:
    """Run one case again and print all its output."""
    case = Case(*name, seed)
    _import_light(work)
    built = {} if KINDS[case.kind].light else _ready_for_datasets(work)
    court = _court_in(work, built, limits, keep=True)
    verdict = court.judge(case)
    print(f"{case} (seed {seed}): {verdict.outcome}")
    for line in verdict.told:
        print(f"  {line}")
    for printed in ("stdout", "stderr", "stacks"):
        content = (court.folder / "output" / printed).read_text(errors="replace")
        if content.strip():
            print(f"--- {printed}\n{content[-6_000:].rstrip()}")
    print("---")
    print(f"{verdict.step}: {verdict.line or verdict.outcome}")
    print(
        f"{verdict.seconds:.1f} s, {verdict.processor:.1f} s of a processor, {verdict.grown} MiB;"
        f" {verdict.cause}"
    )
    print(f"Its files are in {court.folder / 'case'}")
    return int(verdict.bad)


if __name__ == "__main__":
    sys.exit(main())
