"""Train and measure the classifiers of planted worlds, one after the other.

    python scripts/train_planted.py KIND-SEED … [--work .train/planted] [--early] [--threads N]

Each takes about 60 seconds on one core after rendering and ends in WORK/KIND-SEED, a folder that
`local-dir:` names. It can be killed and started again: a world whose classifier is there is
skipped. --early keeps the weights of an early stop in WORK/KIND-SEED-early too.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from counterfoil.lab.planted import KINDS, PlantedWorld, named_world
from program import new_parser, training_arguments


def _world(name: str) -> PlantedWorld:
    world = named_world(name)
    if world is None:
        raise argparse.ArgumentTypeError(
            f"no planted world {name!r}: it is KIND-SEED, KIND one of {', '.join(KINDS)}"
        )
    return world


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("worlds", nargs="+", type=_world, metavar="KIND-SEED")
    parser.add_argument("--work", type=Path, default=Path(".train/planted"))
    parser.add_argument("--early", action="store_true")
    arguments = training_arguments(parser)
    from lab_training.classify import train_planted

    train_planted(arguments.worlds, arguments.work, arguments.early)


if __name__ == "__main__":
    main()
