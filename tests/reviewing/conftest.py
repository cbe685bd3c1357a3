"""A small dataset of colours and its page, and answers as the page would write them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from colour_world import build_colours
from counterfoil.reviewing.review_dataset import ReviewPage, review
from support.files import copy_of

TIDY = "publish.repo=someone/colours"


@pytest.fixture(scope="session")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of three classes, a base and two shifts, 36 images each, all accepted. Read
    only."""
    return build_colours(tmp_path_factory.mktemp("review") / "colours", TIDY)


@pytest.fixture(scope="session")
def made(colours: Path, tmp_path_factory: pytest.TempPathFactory) -> ReviewPage:
    """Return the page of the whole dataset. Read only."""
    return review(colours, tmp_path_factory.mktemp("page") / "review.html")


@pytest.fixture
def copied(colours: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that copies the dataset for one test alone."""
    return lambda name="colours": copy_of(colours, tmp_path / name)
