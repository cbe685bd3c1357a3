"""Check every file, receipt, row and image of a dataset, and re-render samples to compare."""

from counterfoil.dataset.verification.problems import Problem, Rerendered, Verification
from counterfoil.dataset.verification.verify_dataset import verify

__all__ = ["Problem", "Rerendered", "Verification", "verify"]
