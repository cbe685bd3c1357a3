"""FLUX.2 edits an image by a prompt, or draws without an image.

A call scales a given image of more than 1,024² pixels down to that area. Images of up to 1,024
pixels a side are given as large as they are drawn.
"""

from __future__ import annotations

from dataclasses import replace

from counterfoil.models.generators.family import Family

FLUX_2 = Family(
    name="FLUX.2",
    pipelines=("Flux2Pipeline", "Flux2KleinPipeline"),
    prompts="plain",
    # Weights take guidance as an input, or are guided away from an empty prompt of the call's own.
    takes_negative=False,
    multiple=16,
    least=64,
    output="np",
    edits="pipeline",
)

# It keeps the keys and values of the given image from the first step on, and takes no guidance.
FLUX_2_KLEIN_KV = replace(
    FLUX_2, name="FLUX.2 klein KV", pipelines=("Flux2KleinKVPipeline",), scale=None
)
