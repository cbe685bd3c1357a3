"""The lab's decoder draws what a vector of the lab's CLIP says, without a word of prompt, and its figures say so."""

from __future__ import annotations

import itertools
import json

import numpy as np
import torch

from counterfoil.generate import Renderer
from counterfoil.generate.image_embeddings import ImageEmbeddings
from counterfoil.lab.oracle import Oracle
from counterfoil.lab.vocabulary import ATTRIBUTES
from counterfoil.models import LAB_WEIGHTS
from counterfoil.models.adapters import load_adapter
from counterfoil.models.clip import load_clip
from counterfoil.models.diffusion import load_pipeline
from counterfoil.plan import make_plan
from counterfoil.recipe import load_recipe

PLACES = {"beach": "on the beach", "snow": "in the snow"}


def test_colour_and_place_of_a_captions_vector_are_seen_in_its_picture() -> None:
    torch.set_num_threads(1)
    told = list(itertools.product(("red", "blue", "green"), PLACES))
    captions = [f"a photo of a {colour} bag {PLACES[place]}" for colour, place in told]
    classes = ", ".join(f"{{id: '{number}', name: bag, source_label: {number}}}" for number in range(len(told)))
    recipe = load_recipe(
        "wardrobe-mini",
        [
            f"source.classes=[{classes}]",
            "tokens=null",
            "prompts={base: {prompt: null, embedding: {file: v.safetensors}}, shifts: {}}",
            "generator={model: lab:sd, steps: 12, guidance: 3.0, batch_size: 6, dtype: float32}",
            "samples.candidates=1",
        ],
    )
    vectors = dict(zip([cls.id for cls in recipe.classes], load_clip("lab:clip").embed_texts(captions), strict=True))
    pipeline = load_pipeline("lab:sd", dtype="float32")
    embeddings = ImageEmbeddings({"base": vectors}, {"base": "{class_id}"}, 128)
    renderer = Renderer(pipeline, recipe, embeddings, load_adapter(pipeline, "lab:decoder"))
    plan = make_plan(recipe)
    drawn = renderer.render([sample for shard in plan.shards for sample in shard.samples(plan)])
    seen = Oracle().judge(np.stack([image for image in drawn if image is not None]))
    for place, attribute in enumerate(("colour", "background")):
        wanted = np.array([ATTRIBUTES[attribute].index(each[place]) for each in told])
        assert (seen[attribute] == wanted).sum() >= 5, attribute


def test_its_figures_stand_well_above_chance() -> None:
    figures = json.loads((LAB_WEIGHTS / "decoder" / "metrics.json").read_text())["heldout_agreement"]
    for attribute, chance in figures["chance"].items():
        for way in ("of_picture_vectors", "of_caption_vectors"):
            assert figures[way][attribute] > 3 * chance, (way, attribute)
