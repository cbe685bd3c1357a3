"""`counterfoil compare`: compare two files of answers to the same images."""

from __future__ import annotations

from counterfoil.cli.options import Given, with_options
from counterfoil.cli.terminal import fit_text, print_json, print_line
from counterfoil.comparing.options import CompareOptions


@with_options("counterfoil compare new.csv old.csv --unit patient", CompareOptions)
def compare(given: Given) -> None:
    """Compare two files of answers to the same images: the difference with an interval and an exact
    test, and how many images would decide it.

    Any program may have made the files: tables of Inspect AI and of lm-evaluation-harness work as
    they are.
    """
    options = given.made(CompareOptions)
    from counterfoil.comparing.compare_files import compare
    from counterfoil.documents import plain_value

    comparison = compare(**vars(options))
    if given.json:
        print_json(plain_value(comparison))
        return
    for sentence in comparison.sentences:
        print_line(fit_text(sentence))
