"""The commands that open a dataset directory, as strangers' datasets are opened."""

from __future__ import annotations

from collections.abc import Sequence

from fuzzing.cases import NAME, Bench, Prepared, Step, command
from fuzzing.templates import CLASSIFIER, sealed

_CUT = "screen: {shift_threshold: 0.3}\n"
# How often each is run; building is dear.
_OFTEN = {
    "verify": 8,
    "evaluate": 4,
    "calibrate": 4,
    "apply": 3,
    "build": 2,
    "repair": 1,
    "show": 1,
    "check": 1,
    "publish": 4,
}


def dataset_step(bench: Bench, among: Sequence[str]) -> Step:
    """Return one of these commands on the dataset directory of a case."""
    chance = bench.chance
    json = ("--json",) if chance.random() < 0.2 else ()
    name = chance.choices(among, [_OFTEN[command] for command in among])[0]
    match name:
        case "evaluate":
            # Mostly one that the person names; else those of the dataset's own recipe.
            models = ("--models", CLASSIFIER) if chance.random() < 0.7 else ()
            card = ("--into-card",) if chance.random() < 0.25 else ()
            return command("evaluate", NAME, *models, *card, "--device", "cpu", *json)
        case "apply":
            bench.write("cut.yaml", _CUT)
            out = ("--out", "recut") if chance.random() < 0.3 else ("--in-place", "--yes")
            return command("calibrate", NAME, "--apply", "cut.yaml", "--device", "cpu", *out, *json)
        case "build" | "repair":
            out = NAME if name == "repair" else "again"
            return command(
                "build", "--from", NAME, "--out", out, "--device", "cpu", "--workers", "1", *json
            )
        case "publish":
            return command("publish", NAME, "-y", *json)
    return command(name, NAME, *json)


def on_the_dataset(bench: Bench, seal: float = 0.6, *, other_recipe: bool = False) -> Prepared:
    """Return a command on the changed dataset, which is sealed again with the chance `seal`.

    With `other_recipe` a sealed one is not built: it may plan a million images, which a build would
    render.
    """
    among = list(_OFTEN)
    if bench.chance.random() < seal:
        sealed(bench.folder / NAME)
        bench.tell("sealed")
        if other_recipe:
            among = [command for command in among if command not in ("build", "repair")]
    return bench.prepared(dataset_step(bench, among))
