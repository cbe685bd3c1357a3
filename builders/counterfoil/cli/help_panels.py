"""Headings of `--help`: of each command the options that people use first, at most five, and the rest under headings.

An option that no heading lists stands at the top, where a test counts them.
"""

from __future__ import annotations

from typing import Any

_MODELS, _OUTPUT, _HUB, _MACHINES, _DATA = "Models", "Output", "Hub", "Many machines", "The data"

# Command → heading → options by their first name; `--json` is output everywhere, and these are of many machines.
_EVERYWHERE = {
    _OUTPUT: ("--json",),
    _MACHINES: ("--workers", "--shards", "--engine", "--address", "--collect", "--batch-size"),
}
_PANELS: dict[str, dict[str, tuple[str, ...]]] = {
    "init": {
        _DATA: ("--config", "--image-column", "--label-column", "--train-split", "--validation-split"),
        _MODELS: ("--device",),
        _OUTPUT: ("--name",),
    },
    "calibrate": {
        _DATA: ("--source",),
        _MODELS: ("--device",),
        _OUTPUT: ("--yes",),
    },
    "review": {_DATA: ("--shift", "--seed", "--source", "--controls")},
    "evaluate": {
        _DATA: ("--recipe", "--groups", "--base", "--beside", "--write-keys"),
        "Comparisons": ("--compare", "--distances", "--against", "--reference"),
        _OUTPUT: ("--min-images", "--seed"),
        _HUB: ("--repo",),
    },
    "mine": {
        _MODELS: ("--confirm", "--device", "--set"),
        "More to learn from": ("--pool", "--pool-rows", "--pool-labels", "--weights"),
        "In the folder of an earlier run": ("--try", "--class", "--again"),
    },
    "mend": {
        _DATA: ("--audited", "--test", "--own"),
        "How heads are fitted": ("--lambda", "--fit", "--per-class", "--seed", "--effects"),
        _MODELS: ("--device", "--set"),
        _OUTPUT: ("--save",),
    },
    "publish": {_HUB: ("--revision", "--create-pr", "--files-per-commit")},
}


def arranged(name: str, command: Any) -> Any:
    """The command, with its options under their headings."""
    headings = [*_PANELS.get(name, {}).items(), *_EVERYWHERE.items()]
    for parameter in command.params:
        given = next((heading for heading, flags in headings if not {*parameter.opts}.isdisjoint(flags)), None)
        if given is not None:
            parameter.rich_help_panel = given
    return command
