"""thresholds.json of a dataset directory, which anybody may have written."""

from __future__ import annotations

from pathlib import Path

from counterfoil.errors import RunFailure
from counterfoil.screen.thresholds import Thresholds
from counterfoil.store.inside import read_inside
from counterfoil.store.layout import THRESHOLDS


def stored_thresholds(directory: Path) -> Thresholds | None:
    """The thresholds that a directory holds; None where it has no file of them.

    RunFailure for a file that cannot be read or is not of the form that is written.
    """
    hint = "It cannot be made again: restore it from a copy, such as the published dataset."
    try:
        return Thresholds.read(read_inside(directory, THRESHOLDS))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunFailure(f"{directory / THRESHOLDS} cannot be read: {error.strerror}", hint) from error
    except ValueError as error:
        raise RunFailure(f"{directory / THRESHOLDS} is damaged: {error}", hint) from error
