"""Choosing shift thresholds by looking: scores and images of a built dataset on one page, and its cut."""

from counterfoil.calibration.calibrate_dataset import Calibration, calibrate

__all__ = ["Calibration", "calibrate"]
