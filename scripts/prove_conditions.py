"""Prove mining over conditions (several labels a row) where it is known of each row how likely each
answer fails.

    python scripts/prove_conditions.py --write          # the table, into RESULTS.md
    python scripts/prove_conditions.py --settings       # the sets of pictures that the program was
    tried on

A set of pictures has 300 shirts of the lab, four pictures each (a unit), in four places. Rows have
three conditions, independent of each other and of the place: striped, with a flower, red. Answers
are drawn: each is wrong in 10 % of rows, and more often where a failure is planted: in one place,
in rows that have one condition (it is missed) or lack it (a false alarm). So nothing is planted in
any other class. Rows go through what `counterfoil mine` does with them: thresholds, halves,
directions, tests. A few minutes of one core.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# One thread: sums are then the same on every machine of a kind.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import datasets
import numpy as np
from numpy.typing import NDArray
from PIL import Image

import proving
from counterfoil.arrays import Bools, Floats
from counterfoil.data.open_source import open_source
from counterfoil.lab.world import Scene, load_garments, render
from counterfoil.mining.audited import audit_target
from counterfoil.mining.collected import Carried, HypothesisTests
from counterfoil.mining.hypotheses import MiningRun
from counterfoil.mining.methods.directions import DIRECTIONS
from counterfoil.mining.steps import SeenImages, embed_captions, find_hypotheses
from counterfoil.recipe import load_recipe
from counterfoil.recipe.schema_mine import Mine, validate_settings
from directions_proof.intervals import share_of
from proof_files import PACKAGE, code_of, measured
from results_page import table

SETTINGS_SEEDS = range(2)
SEEDS = range(100, 110)
SHIRT = 6
PICTURES = 4
SPLIT = "validation"
CONDITIONS = ("Striped", "Flower", "Red")
CLASSES = ("striped", "no stripes", "flower", "no flower", "red", "not red")
PLACES = {
    "beach": "in the beach",
    "snow": "in the snow",
    "road": "on the road",
    "forest": "in the forest",
}
HAS = 0.4  # how often a row has each condition
WRONG = 0.1
# By name: planted class, place, and how much more often it fails there.
PLANTED: Mapping[str, Sequence[tuple[str, str, float]]] = {
    "missed, 20 points": [("striped", "beach", 0.2)],
    "missed, 40 points": [("flower", "snow", 0.4)],
    "false alarms, 40 points": [("not red", "forest", 0.4)],
    "two, 40 points": [("striped", "road", 0.4), ("no flower", "beach", 0.4)],
    "nothing": [],
}
CAPTIONS = ["a photo of a shirt", *(f"a photo of a shirt {phrase}" for phrase in PLACES.values())]
CAPTIONS += ["a photo of a blue shirt", "a photo of a shirt at night"]
OPENING = [
    f"{len(SEEDS)} sets of {300 * PICTURES:,} pictures, each answered in five ways. *Named*: a"
    " confirmed finding of the"
    " planted class says the planted place. *False*: a confirmed finding whose set does not truly"
    " fail by more than 5"
    " points above the rest. *Elsewhere*: confirmed findings of classes in which nothing is"
    " planted; all of these are"
    " false. *Covered*: the 95 % interval of a tested hypothesis holds the true difference. In"
    " brackets: 95 % over sets"
    " of pictures.",
]


@dataclass(frozen=True)
class Pictures:
    """n rows on the disk as a split of `folder`; present: (n, conditions), places: (n,)."""

    folder: Path
    present: Bools
    places: NDArray[np.str_]

    @classmethod
    def drawn(cls, seed: int, folder: Path) -> Pictures:
        rng = np.random.default_rng(seed)
        scenes = []
        present = []
        for garment in load_garments("audit").of_class(SHIRT).tolist():
            for _ in range(PICTURES):
                striped, flower, red = (rng.random(len(CONDITIONS)) < HAS).tolist()
                background = list(PLACES)[int(rng.integers(len(PLACES)))]
                scene = Scene(
                    "audit", garment, SHIRT, "red" if red else "blue", "striped" if striped else "plain", background,
                    companion="flower" if flower else "none", seed=int(rng.integers(2**53)),
                )  # fmt: skip
                scenes.append(scene)
                present.append((striped, flower, red))
        images = []
        for scene in scenes:
            stream = io.BytesIO()
            Image.fromarray(render(scene)).save(stream, "PNG")
            images.append({"bytes": stream.getvalue(), "path": None})
        columns = {name: [int(row[k]) for row in present] for k, name in enumerate(CONDITIONS)}
        rows = {"image": images, "shirt": [scene.garment for scene in scenes], **columns}
        folder.mkdir(parents=True)
        split = datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image())
        split.to_parquet(str(folder / f"{SPLIT}.parquet"))
        return cls(folder, np.asarray(present), np.asarray([scene.background for scene in scenes]))

    def failing(self, planted: Sequence[tuple[str, str, float]]) -> Floats:
        """Return (n, classes) how likely the answer to a row of the class is wrong."""
        likely = np.full((len(self.places), len(CLASSES)), WRONG)
        for name, background, more in planted:
            likely[self.places == background, CLASSES.index(name)] += more
        return likely


def mined_answers(pictures: Pictures, name: str, seed: int) -> dict[str, Any]:
    """Draw answers, mine them, and return what became of what was planted and of each
    hypothesis."""
    likely = pictures.failing(PLANTED[name])
    labels = 2 * np.arange(len(CONDITIONS)) + ~pictures.present
    chance = np.take_along_axis(likely, labels, axis=1)
    rng = np.random.default_rng([seed, list(PLANTED).index(name)])
    answers = pictures.present ^ (rng.random(chance.shape) < chance)
    file = pictures.folder.parent / "answers.csv"
    lines = [
        f"{SPLIT}_{row:08d},{','.join(f'{0.2 + 0.6 * yes:g}' for yes in answer)}"
        for row, answer in enumerate(answers)
    ]
    file.write_text("\n".join([f"key,{','.join(CONDITIONS)}", *lines]) + "\n")
    tests = _mined(pictures.folder, file)
    outcomes = [_outcome(tests, hypothesis, chance) for hypothesis in tests.tested]
    confirmed = [outcome for outcome in outcomes if outcome["confirmed"]]
    named = {
        (finding["class"], PLACES[background])
        for finding in confirmed
        for background in PLACES
        if PLACES[background] in finding["caption"]
    }
    planted = [(class_name, PLACES[background]) for class_name, background, _ in PLANTED[name]]
    return {
        "planted": len(planted),
        "named": len(named.intersection(planted)),
        "tested": len(outcomes),
        "confirmed": len(confirmed),
        "false": sum(finding["true"] <= Mine().margin for finding in confirmed),
        "elsewhere": sum(finding["class"] not in dict(planted) for finding in confirmed),
        "intervals": sum(outcome["interval"] is not None for outcome in outcomes),
        "covered": sum(
            outcome["interval"][0] <= outcome["true"] <= outcome["interval"][1]
            for outcome in outcomes
            if outcome["interval"]
        ),
    }


def _mined(folder: Path, answers: Path) -> HypothesisTests:
    """Return the tests that `mine` makes of a folder's split, by the method `directions`."""
    captions = folder.parent / "captions.yaml"
    captions.write_text(
        "\n".join(
            [
                "reference: a photo of a shirt",
                "captions:",
                *(f"  - {caption}" for caption in CAPTIONS),
            ]
        )
    )
    classes = ", ".join(
        f"{{id: c{k}, name: {name}, source_label: {k}}}" for k, name in enumerate(CLASSES)
    )
    sets = [
        f"source.dataset={folder}", f"source.classes=[{classes}]", "source.unit_column=shirt", "tokens=null",
        f"source.conditions={{columns: [{', '.join(CONDITIONS)}]}}", f"mine.on=[{SPLIT}]", "mine.others=[]",
        f"mine.target=predictions:{answers}", f"mine.settings={{captions: {captions}}}",
    ]  # fmt: skip
    recipe = load_recipe("wardrobe-mini", sets)
    assert recipe.mine is not None and DIRECTIONS.captions is not None
    settings = validate_settings(DIRECTIONS.settings, recipe.mine.settings, "mine.settings")
    run = MiningRun(recipe, recipe.mine, settings, "wardrobe-mini", sets, folder.parent, workers=1)
    audits, clip = audit_target(recipe, recipe.mine, open_source(recipe.source), run.device)
    gathered, _ = DIRECTIONS.captions(run)
    seen = SeenImages(run, DIRECTIONS, audits, clip, embed_captions(gathered, clip.model))
    return HypothesisTests.of(run, audits, seen.captions, find_hypotheses(seen))


def _outcome(tests: HypothesisTests, carried: Carried, chance: Floats) -> dict[str, Any]:
    """Return a hypothesis with its test beside the true difference of its set on the same rows."""
    hypothesis = carried.hypothesis
    audited = tests.audits[carried.audit]
    confirm = audited.halves.confirm
    features = audited.features[confirm]
    labels = audited.labels[confirm]
    inside = hypothesis.members(features, labels)
    rest = hypothesis.tested_on(features, labels) & ~inside
    inside &= hypothesis.tested_on(features, labels)
    truth = chance[audited.rows[confirm], hypothesis.labels[0] // 2]
    return {
        "class": CLASSES[hypothesis.labels[0]],
        "caption": hypothesis.caption if hypothesis.role == "hard" else "",
        "confirmed": carried.result.confirmed,
        # Without a row of the set, or of the rest, there is no difference, and no interval.
        "true": float(truth[inside].mean() - truth[rest].mean())
        if inside.any() and rest.any()
        else 0.0,
        "interval": carried.result.compared().difference.interval,
    }


def main() -> None:
    parser = proving.parser(
        __doc__, ["conditions"], "other sets of pictures, on which the program was tried"
    )
    parser.add_argument(
        "--kept", type=Path, default=Path(".train/conditions-proof"), help="what was measured"
    )
    options = parser.parse_args()
    measured = tables(options.kept, SETTINGS_SEEDS if options.settings else SEEDS)
    proving.tell("prove_conditions", "Conditions", OPENING, measured, ["conditions"], options.write)


def tables(kept: Path, seeds: range) -> Iterator[proving.Table]:
    """Measure every set of pictures, or read what an earlier run with the same code measured."""
    code = code_of([Path(__file__), PACKAGE / "mining", PACKAGE / "stats.py"])[:16]
    results = []
    for seed in seeds:
        path = kept / f"{seed}-{code}.json"
        with proving.timed(f"pictures {seed}"):
            results.append(measured(path, lambda seed=seed: _of_pictures(seed)))
    titles = [
        "planted",
        "failures",
        "named",
        "tested",
        "confirmed",
        "false",
        "elsewhere",
        "intervals",
        "covered",
    ]
    rows = []
    for name in [*PLANTED, "all"]:
        sets = [[result[part] for part in PLANTED if name in (part, "all")] for result in results]
        counts = {
            key: [sum(outcome[key] for outcome in outcomes) for outcomes in sets]
            for key in results[0]["nothing"]
        }
        cells = {key: f"{sum(of_set)}" for key, of_set in counts.items()}
        for key, of in (("named", "planted"), ("false", "confirmed"), ("covered", "intervals")):
            if sum(counts[of]):
                cells[key] += (
                    f": {share_of(list(zip(counts[key], counts[of], strict=True))).text(percent=True)}"
                )
        rows.append([name, *cells.values()])
    yield proving.Table(
        "conditions",
        table(titles, rows),
        f"{len(seeds)} sets of pictures ({seeds[0]} to {seeds[-1]})",
    )


def _of_pictures(seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        pictures = Pictures.drawn(seed, Path(folder) / "pictures")
        return {name: mined_answers(pictures, name, seed) for name in PLANTED}


if __name__ == "__main__":
    main()
