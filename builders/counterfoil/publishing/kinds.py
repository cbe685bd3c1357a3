"""What is published, a dataset or a model: the type of its repository, and which paths there publishing owns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from counterfoil.publishing.contents import is_of_a_dataset
from counterfoil.publishing.model_folder import is_of_a_model


@dataclass(frozen=True)
class RepositoryKind:
    """`owns` says of a path whether publishing replaces and deletes it; anything else in a repository stays."""

    repo_type: Literal["dataset", "model"]
    owns: Callable[[str], bool]


DATASET = RepositoryKind("dataset", is_of_a_dataset)
MODEL = RepositoryKind("model", is_of_a_model)
