"""Import this package and draw the scenery of the lab's world, once for all processes that are
forked afterwards.

Publishing reads the Hub's variables where it is imported, and Python runs the modules of commands
as programs: neither is here.
"""

from __future__ import annotations

import importlib
import pkgutil

import counterfoil
from counterfoil.lab import scenery, scenes, vocabulary, world

_NOT_HERE = (
    "counterfoil.publishing",
    "counterfoil.cli.main",
    "counterfoil.cli.entry",
    "counterfoil.__main__",
)

for _module in pkgutil.walk_packages(counterfoil.__path__, "counterfoil."):
    if not _module.name.startswith(_NOT_HERE):
        importlib.import_module(_module.name)
for _background in vocabulary.BACKGROUNDS:
    scenery.backgrounds(_background)
for _split in ("pretrain", "train", "validation", "heldout", "audit"):
    world.load_garments(_split)
for _split in scenes.WARDROBE_ROWS:
    scenes.wardrobe_garments(_split)
for _draw in (scenery.people, scenery.flowers, scenery.suns, scenery.low_suns, scenery.night_sky):
    _draw()
