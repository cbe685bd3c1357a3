"""Draw ahead what many runs share, for so long as there is time: killed, it goes on where it stood."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from mend_proof.contexts import contexts_of, plain_prompt
from mend_proof.pictures import Pictures
from mend_proof.plan import Settings
from mend_proof.targets import Target


def shared_prompts(targets: Iterable[Target], settings: Settings) -> dict[tuple[bool, str], int]:
    """(by tokens, prompt) → how many pictures, of all contexts and names of all classes of some targets."""
    found: dict[tuple[bool, str], int] = {}
    for target in targets:
        tokens = target.world is None
        for label in range(len(target.class_names)):
            found.setdefault((tokens, plain_prompt(target, label)), settings.pool_plain)
            for one in contexts_of(target, label):
                found.setdefault((tokens, one.prompt), settings.pool)
    return found


def draw_ahead(targets: Iterable[Target], settings: Settings, kept: Path, minutes: float) -> tuple[int, int]:
    """(drawn now, prompts left); stops after so many minutes."""
    began = time.monotonic()
    stores = {tokens: Pictures(kept, tokens) for tokens in (False, True)}
    wanted = shared_prompts(targets, settings)
    left = len(wanted)
    for (tokens, prompt), count in wanted.items():
        if time.monotonic() - began > minutes * 60:
            break
        stores[tokens].have([prompt], count)
        left -= 1
    return sum(one.drawn for one in stores.values()), left
