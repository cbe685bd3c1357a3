"""Make the command lines of scripts."""

from __future__ import annotations

import argparse
import os


def new_parser(about: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help has the script's docstring, line for line."""
    form = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(description=about, formatter_class=form)


def training_arguments(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Return what the command line of a training says, and compute with its number of threads."""
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    parser.add_argument("--threads", type=int, default=threads)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    import torch

    torch.set_num_threads(arguments.threads)
    return arguments
