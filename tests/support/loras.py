"""LoRA weights as peft makes them and diffusers saves them, with random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from peft.utils import get_peft_model_state_dict

from counterfoil.models.generators import family_of


def part_of(pipeline: Any) -> str:
    family = family_of(type(pipeline).__name__)
    assert family is not None and family.lora is not None
    return family.lora


def saved_lora(
    pipeline: Any, folder: Path, targets: Sequence[str], *, rank: int = 2, alpha: int = 2
) -> Path:
    """Save weights for every layer whose name ends so and return their file; the pipeline is as it
    was afterwards."""
    part = part_of(pipeline)
    model = getattr(pipeline, part)
    torch.manual_seed(rank)
    config = LoraConfig(
        r=rank, lora_alpha=alpha, target_modules=list(targets), init_lora_weights=False
    )
    model.add_adapter(config, "made")
    state: dict[str, Any] = {
        f"{part}_lora_layers": get_peft_model_state_dict(model, adapter_name="made"),
        f"{part}_lora_adapter_metadata": model.peft_config["made"].to_dict(),
    }
    type(pipeline).save_lora_weights(folder, **state)
    pipeline.unload_lora_weights()
    return folder / "pytorch_lora_weights.safetensors"
