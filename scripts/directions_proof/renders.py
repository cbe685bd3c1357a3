"""What a caption's words alone do to a classifier: the same scenes with and without what it names,
truly rendered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.arrays import Bools, Ints
from counterfoil.lab.world import Scene, render
from counterfoil.mining.hypotheses import Role
from directions_proof.tuning import load
from directions_proof.worlds import AuditedWorld
from lab_training.classify import answers
from proof_files import Facts, Values

SCENES = 300
_SPLIT = "proof"


class Renderer:
    """A world's classifier, and scenes of its classes that differ in named attributes alone."""

    def __init__(self, audited: AuditedWorld) -> None:
        self.world = audited.world
        self.model = load(audited.folder, len(audited.classes)).eval()
        self.plain: dict[int, tuple[list[Scene], Bools]] = {}

    def difference(
        self, label: int, rows: Ints, claims: Values, role: Role
    ) -> dict[str, float] | None:
        """Return how much more often pictures of a class fail with what is claimed (`hard`), or
        without it (`far_from`).

        rows: of the class, in `proof`; the first so many are rendered. Scenes where the claims hold
        anyway are left out. None if nothing is claimed, or a subtype: another subtype is no other
        attribute of the same scene.
        """
        if not claims or "class" in claims:
            return None
        scenes, failed = self._plain(label, rows)
        differ = [
            any(scene.attributes()[name] != value for name, value in claims.items())
            for scene in scenes
        ]
        looks: Facts = dict(claims)
        changed = [
            replace(scene, **looks) for scene, other in zip(scenes, differ, strict=True) if other
        ]
        if not changed:
            return None
        more = self._failed(label, changed).astype(float) - failed[np.asarray(differ)]
        more = more if role == "hard" else -more
        return {
            "value": float(more.mean()),
            "error": float(more.std() / np.sqrt(len(more))),
            "rows": len(more),
        }

    def _plain(self, label: int, rows: Ints) -> tuple[list[Scene], Bools]:
        if label not in self.plain:
            scenes = [self.world.scene(_SPLIT, row) for row in rows[:SCENES].tolist()]
            self.plain[label] = scenes, self._failed(label, scenes)
        return self.plain[label]

    def _failed(self, label: int, scenes: list[Scene]) -> NDArray[Any]:
        return answers(self.model, np.stack([render(scene) for scene in scenes])) != label
