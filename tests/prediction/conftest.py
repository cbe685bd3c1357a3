"""Fixtures of the predictions' tests: real timm models that read colours."""

from __future__ import annotations

import pytest

from colour_world import save_colour_models


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return save_colour_models(tmp_path_factory.mktemp("models"))
