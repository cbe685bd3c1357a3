"""Detectors of transformers with random weights, each of a few thousand numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

NAMES = ("mug", "hat", "shoe")
_LABELS: dict[str, Any] = {
    "id2label": dict(enumerate(NAMES)),
    "label2id": {name: number for number, name in enumerate(NAMES)},
}
_RT: dict[str, Any] = {
    "encoder_hidden_dim": 16, "encoder_ffn_dim": 16, "encoder_attention_heads": 2, "hidden_expansion": 0.5,
    "d_model": 16, "decoder_in_channels": [16] * 3, "decoder_ffn_dim": 16, "decoder_attention_heads": 2,
    "decoder_layers": 2, "num_queries": 6,
}  # fmt: skip
_STAGES = ["stage2", "stage3", "stage4"]


def _yolos() -> tuple[Any, Any]:
    config = transformers.YolosConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, image_size=[64, 96],
        patch_size=16, num_detection_tokens=7, **_LABELS,
    )  # fmt: skip
    processor = transformers.YolosImageProcessor(size={"shortest_edge": 64, "longest_edge": 96})
    return transformers.YolosForObjectDetection(config), processor


def _detr() -> tuple[Any, Any]:
    backbone: Any = {
        "model_type": "timm_backbone",
        "backbone": "resnet10t",
        "out_indices": [1, 2, 3, 4],
    }
    config = transformers.DetrConfig(
        backbone_config=backbone, d_model=32, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=32,
        decoder_ffn_dim=32, encoder_attention_heads=2, decoder_attention_heads=2, num_queries=6, **_LABELS,
    )  # fmt: skip
    processor = transformers.DetrImageProcessor(size={"shortest_edge": 64, "longest_edge": 96})
    return transformers.DetrForObjectDetection(config), processor


def _rt_detr() -> tuple[Any, Any]:
    backbone: Any = {
        "model_type": "rt_detr_resnet", "embedding_size": 8, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1],
        "layer_type": "basic", "out_features": _STAGES,
    }  # fmt: skip
    config = transformers.RTDetrConfig(
        backbone_config=backbone, encoder_in_channels=[8, 16, 16], **_RT, **_LABELS
    )
    return transformers.RTDetrForObjectDetection(config), _squares()


def _d_fine() -> tuple[Any, Any]:
    backbone: Any = {
        "model_type": "hgnet_v2", "stem_channels": [3, 8, 8], "embedding_size": 8, "hidden_sizes": [8, 16, 16, 16],
        "stage_in_channels": [8, 8, 16, 16], "stage_mid_channels": [8] * 4, "stage_out_channels": [8, 16, 16, 16],
        "stage_num_blocks": [1] * 4, "stage_numb_of_layers": [1] * 4, "depths": [1] * 4, "out_features": _STAGES,
    }  # fmt: skip
    config = transformers.DFineConfig(
        backbone_config=backbone, encoder_in_channels=[16] * 3, **_RT, **_LABELS
    )
    return transformers.DFineForObjectDetection(config), _squares()


def _squares() -> Any:
    return transformers.RTDetrImageProcessor(size={"height": 64, "width": 64})


FAMILIES: dict[str, Callable[[], tuple[Any, Any]]] = {
    "yolos": _yolos,
    "detr": _detr,
    "rt_detr": _rt_detr,
    "d_fine": _d_fine,
}


def save_detector(family: str, folder: Path) -> Path:
    """Save a detector of a family as transformers does; its weights follow from the family
    alone."""
    torch.manual_seed(len(family))
    model, processor = FAMILIES[family]()
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
