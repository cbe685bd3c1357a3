"""Whether a dataset is whole: every file, receipt, row and image; and whether its images come out again."""

from counterfoil.dataset.verification.problems import Problem, Rerendered, Verification
from counterfoil.dataset.verification.verify_dataset import verify

__all__ = ["Problem", "Rerendered", "Verification", "verify"]
