"""Sana: the states of Gemma, padded to a fixed length, and latents of a 32nd of a side."""

from dataclasses import replace

from counterfoil.models.generators.pixart import PIXART

SANA = replace(PIXART, name="Sana", pipelines=("SanaPipeline",), multiple=32)
