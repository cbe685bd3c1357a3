"""The texts of proposed recipes: comments and constant values, with `$field` for what was found.

A comment goes on where the next line begins with `#   `; it is wrapped when it is written. The lines
of a field are indented like the field, and a line whose fields are empty is left out.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from string import Template
from typing import Any

from counterfoil.recipe.strict_yaml import dump_yaml

_WIDTH = 116

_HEAD = """\
# A recipe for your own images, proposed by `counterfoil init`. Change any line.
# To see what it will build and what is missing, run: counterfoil check FILE
recipe: 1
$name
# Licence of the built dataset, as the Hub spells it. It depends on your images' licence and the
#   generator's.
license: other
$description

"""
DRAWN = (
    _HEAD
    + """\
source:
  $source
  # Split to learn class tokens from, if you want them (tokens: {learn: {}}).
  $train_split
  # Split that sets the object thresholds: how well CLIP must recognize a class before an image is
  #   kept. $one_split
  $validation_split
  # All classes of the data. Prompts use these names. To use another name for a label, write
  #   {name: coffee mug, source_label: 1}.
  classes:
    $classes

# $reason
generator:
  $generator

# A base prompt, and shifts from Vendrow et al. 2023, Table 1. Prompts say "the", which fits every class
# ("a" and "an" do not). Add shifts of your own. CLIP compares images with `caption`: the shift alone.
prompts:
  base:
    prompt: a photo of the {class}
  shifts:
    in_the_grass:
      kind: background
      prompt: a photo of the {class} in the grass
      caption: a photo in the grass
    in_the_snow:
      kind: background
      prompt: a photo of the {class} in the snow
      caption: a photo in the snow
    in_the_fog:
      kind: weather
      prompt: a photo of the {class} in the fog
      caption: a photo in the fog
    at_night:
      kind: light
      prompt: a photo of the {class} at night
      caption: a photo at night
    red:
      kind: colour
      prompt: a photo of a red {class}
      caption: a photo of something red
    pencil_sketch:
      kind: style
      style: true
      prompt: a black and white pencil sketch of the {class}
      caption: a pencil sketch

screen:
  $screen
  object_caption: a photo of the {class}
  style_object_caption: the {class}
  # Rejects an image if its CLIP score for its class is below percentile $percentile of the scores of
  #   that class's images in the validation split.
  object_threshold:
    percentile: $percentile
  # No number fits every CLIP and every shift, so you choose this threshold after the build, by
  #   looking at images. Until then no image of a shift is kept. `counterfoil calibrate` starts at
  #   percentile 25 of a shift's own scores (the lowest 25 % are rejected) and renders nothing again.
  #   A number here, such as 0.2, applies at once to all shifts.
  shift_threshold:
    percentile: 25
  # Measures how much is visible in every image (contrast, black, white). {visible: {contrast: 20}}
  #   would reject images that are nearly one colour.
  keep: [{visible: {}}, thresholds]
  # A second judge estimates how many labels may be wrong. It rejects no image. Name another CLIP
  #   (judge: open_clip:NAME/WEIGHTS) or a classifier of these classes. People can judge too:
  #   counterfoil review.
  judge: null
  # Stores rejected images, so that calibrate can show them and a lower threshold brings them back.
  keep_rejected: true

samples:
  # Images to render for each class, under the base and under each shift. Two are enough for a trial.
  candidates: 20
  seed: 0
  noise: paired

output:
  $image
  rows_per_shard: 100

evaluate:
  # $your_models Their classes must be these. open_clip:ViT-B-32/laion2b_s34b_b79k is zero-shot.
  models: []
"""
)
CORRUPTED = (
    _HEAD
    + """\
source:
  $source
  # Split to train classifiers on.
  $train_split
  # Split that this dataset takes its images from.
  $validation_split
  # All classes of the data, by their names there.
  classes:
    $classes

# $reason
# Your model should not have been trained on these images, or its accuracy will be too high.
#   $one_split $reduced
generator:
  $generator

# Corruptions as defined by Hendrycks and Dietterich 2019, at a severity from 1 (slight) to 5 (severe).
#   The base is the unchanged image. Also available: $others.
prompts:
  shifts:
    $shifts

samples:
  # Images per class, the same ones under every shift. A smaller class gives all it has. Building and
  #   evaluating take $time.
  $candidates
  seed: 0

output:
  # $encoded
  $image
  rows_per_shard: 500

evaluate:
  # $your_models
  models: []
"""
)
PLACED = (
    _HEAD
    + """\
# $about_names
source:
  $source

# Each shift is a known change that leaves every $marked where it is, so $marks hold for every image.
# Your $noun should not have been trained on these images. $reduced
generator:
  $generator

# Corruptions at a severity from 1 (slight) to 5 (severe). The base is the unchanged image.
prompts:
  shifts:
    $shifts

samples:
  # Images, the same ones under every shift.
  $candidates
  seed: 0

output:
  $image
  rows_per_shard: 200

evaluate:
  # Name your own ${noun}s here, or with `counterfoil evaluate --models`: $models.
  models: []
"""
)
YOUR_MODELS = (
    "Name your own models here, or with `counterfoil evaluate --models`: local-dir:./my-model (a"
    " folder that timm saved, with outputs named after your classes), transformers:./my-model,"
    " predictions:answers.csv."
)


def values(values: Mapping[str, Any]) -> str:
    """Return the lines of a mapping in YAML."""
    return dump_yaml(dict(values)).rstrip()


def filled(text: str, fields: Mapping[str, object]) -> str:
    """Return a text of this module with its fields."""
    lines = []
    for line in re.sub(r"\n *#   ", " ", text).split("\n"):
        words = line.lstrip()
        indent = line.removesuffix(words)
        of_line = Template(words).substitute(fields)
        if of_line.startswith("#"):
            of_line = " ".join(of_line.split())
            of_line = textwrap.fill(
                of_line, _WIDTH - len(indent), subsequent_indent="# ", break_long_words=False
            )
        if of_line.strip("#") or not words:
            lines.append(textwrap.indent(of_line, indent))
    return "\n".join(lines)
