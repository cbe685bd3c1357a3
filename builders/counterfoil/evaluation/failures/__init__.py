"""The failure browser of an evaluation: which images models get wrong, their pictures in sheets, and the page."""

from counterfoil.evaluation.failures.write_failures import write_failures

__all__ = ["write_failures"]
