"""A first recipe as a file for people: the words of a person around values that the YAML dumper wrote.

Nothing of a stranger's dataset is written but through the dumper; comments hold numbers and words of ours alone.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from counterfoil.recipe.strict_yaml import dump_yaml
from counterfoil.starting.class_names import class_entries
from counterfoil.starting.found_data import PERCENTILE, FoundData
from counterfoil.starting.proposed_models import ProposedModels
from counterfoil.starting.proposed_shifts import BASE, OBJECT_CAPTION, SHIFTS, STYLE_OBJECT_CAPTION

CANDIDATES = 20
# Where calibrate begins: the pictures that show their shift least go.
SHIFT_PERCENTILE = 25
_WIDTH = 116


@dataclass(frozen=True, slots=True)
class Naming:
    """What the dataset is to be called, and how the recipe names its source."""

    name: str
    source: str


def opening(name: str, description: str) -> list[str]:
    """The lines that every first recipe begins with."""
    return [
        said("A recipe for your own images, as `counterfoil init` proposes it. Every line is yours to change."),
        said("What it will make, and what it lacks: counterfoil check FILE"),
        values({"recipe": 1, "name": name}),
        said("Of the dataset that is built, as the Hub spells it: your images' licence decides, and a generator's."),
        values({"license": "other"}),
        values({"description": description}),
        "",
    ]


def sources(
    found: FoundData,
    naming: Naming,
    train: str,
    validation: str,
    classes: str = "All classes of the data, by their names there.",
) -> list[str]:
    """The lines of the section `source`, with what its splits and classes are for."""
    reference = found.reference
    source = {
        "dataset": naming.source,
        "config": reference.config,
        "revision": reference.revision,
        "image_column": reference.image_column,
        "label_column": reference.label_column,
    }
    names, labels = [each.name for each in found.classes], [each.source_label for each in found.classes]
    return [
        values({key: value for key, value in source.items() if value is not None}, 2),
        said(train, 2),
        values({"train_split": found.train_split}, 2),
        said(validation, 2),
        values({"validation_split": found.validation_split}, 2),
        said(classes, 2),
        "  classes:",
        *(
            textwrap.indent(dump_yaml([each], entries_on_lines=not isinstance(each, str)).rstrip(), "    ")
            for each in class_entries(names, labels, found.labels)
        ),
    ]


def recipe_text(found: FoundData, models: ProposedModels, naming: Naming) -> str:
    """The YAML text, whose values are those of `found` and `models`."""
    return "\n".join(_parts(found, models, naming)).rstrip() + "\n"


def _parts(found: FoundData, models: ProposedModels, naming: Naming) -> list[str]:
    n = len(found.classes)
    one_split = found.train_split == found.validation_split
    percentile = {"percentile": PERCENTILE}
    return [
        *opening(
            naming.name, f"{n:,} classes drawn under a base prompt and {len(SHIFTS)} shifts, and screened by CLIP."
        ),
        "source:",
        *sources(
            found,
            naming,
            "Split that class tokens are learned from, should you want some (tokens: {learn: {}}).",
            "Split whose images say how well CLIP should know a class before a picture is kept."
            + (" Here both are one split: percentiles are of training images." if one_split else ""),
            "All classes of the data by their names there, which prompts say. Drawn by other words, with its own label:"
            " {name: coffee mug, source_label: 1}.",
        ),
        "",
        said(models.told),
        "generator:",
        values(models.generator, 2),
        "",
        said(
            '"the" fits every class, where "a" or "an" would not. A base, and shifts of Vendrow et al. 2023, Table 1:'
        ),
        said("write your own beside them. `caption` is what CLIP is asked about the shift alone."),
        "prompts:",
        values({"base": BASE}, 2),
        "  shifts:",
        *(values({name: shift}, 4) for name, shift in SHIFTS.items()),
        "",
        "screen:",
        values(models.screen, 2),
        values({"object_caption": OBJECT_CAPTION, "style_object_caption": STYLE_OBJECT_CAPTION}, 2),
        said(
            f"A picture is kept where CLIP finds its class at least as well as in all but {PERCENTILE} of 100 images of"
            " that class in the validation split.",
            2,
        ),
        values({"object_threshold": percentile}, 2),
        said(
            "No number fits every CLIP and every shift, so this one is chosen after the build, by looking: until then"
            f" pictures of shifts wait, and none is kept unseen. `counterfoil calibrate` begins at percentile"
            f" {SHIFT_PERCENTILE} of a shift's own pictures (the {SHIFT_PERCENTILE} of 100 that show it least go) and"
            " cuts without drawing anything again. A number here, such as 0.2, is taken at once and for all shifts.",
            2,
        ),
        values({"shift_threshold": {"percentile": SHIFT_PERCENTILE}}, 2),
        said(
            "How much there is to see is measured of every picture (contrast, black, white); {visible: {contrast: 20}}"
            " would reject what is nearly one colour.",
            2,
        ),
        "  keep: [{visible: {}}, thresholds]",
        said(
            "A second judge of labels decides nothing, and tells how many of them may be false: a CLIP of another"
            " training (judge: open_clip:NAME/WEIGHTS), or a classifier of these classes. So do people:"
            " counterfoil review.",
            2,
        ),
        "  judge: null",
        said("Rejected pictures stay, so that calibrate can show them and a lower threshold brings them back.", 2),
        values({"keep_rejected": True}, 2),
        "",
        "samples:",
        said("Pictures drawn of each class under the base and under each shift. Two are enough to try it.", 2),
        values({"candidates": CANDIDATES, "seed": 0, "noise": "paired"}, 2),
        "",
        "output:",
        values({"image": models.image, "rows_per_shard": 100}, 2),
        "",
        "evaluate:",
        said(
            "Name your own models here, or to `counterfoil evaluate --models`: local-dir:./my-model (a folder that timm"
            " saved, whose outputs have the names of your classes), transformers:./my-model, predictions:answers.csv."
            " Classes must be these. open_clip:ViT-B-32/laion2b_s34b_b79k answers by the classes' names.",
            2,
        ),
        values({"models": []}, 2),
    ]


def values(values: Mapping[str, Any], indent: int = 0) -> str:
    return textwrap.indent(dump_yaml(dict(values)).rstrip(), " " * indent)


def said(text: str, indent: int = 0) -> str:
    prefix = " " * indent + "# "
    return "\n".join(
        textwrap.wrap(text, _WIDTH, initial_indent=prefix, subsequent_indent=prefix, break_long_words=False)
    )
