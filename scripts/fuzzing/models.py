"""The kind of cases about a classifier's folder that a person names: another configuration, other
weights."""

from __future__ import annotations

import json
import shutil
from typing import Any

from fuzzing.cases import Bench, Prepared, command
from fuzzing.commands import NAME
from fuzzing.places import opening_pickle
from fuzzing.templates import CLASSIFIER, PARQUET, copied
from fuzzing.trees import json_text, mutated, replace_leaves
from fuzzing.values import NUMBERS, damaged_bytes, hostile_path, json_fragment, odd_value

_SETTINGS = (
    "input_size",
    "mean",
    "std",
    "crop_pct",
    "interpolation",
    "crop_mode",
    "num_classes",
    "test_input_size",
    "pool_size",
)
_ARCHITECTURES = (
    "vit_giant_patch14_224",
    "resnet18",
    "vit_7b_patch16_dinov3",
    "../x",
    "lcnet_035.ra2_in1k",
    "",
    "eva_giant_patch14_560",
)


def model(bench: Bench) -> Prepared:
    """Change the configuration or weights of the lab's classifier, and evaluate it on a dataset as
    it was built."""
    from counterfoil.models.names import LAB_WEIGHTS

    chance = bench.chance
    copied(bench.templates, PARQUET, bench.folder / NAME)
    folder = bench.folder / "model"
    shutil.copytree(LAB_WEIGHTS / CLASSIFIER.removeprefix("lab:"), folder)
    weights = folder / "model.safetensors"
    draw = chance.random()
    if draw < 0.15:
        how, content = damaged_bytes(weights.read_bytes(), b"x" * 1_000, chance)
        bench.tell(f"weights: {how}")
        weights.write_bytes(content)
    elif draw < 0.3:
        weights.unlink()
        name = chance.choice(
            (
                "pytorch_model.bin",
                "model.pth",
                "model.pth.tar",
                "open_clip_pytorch_model.bin",
                "model.safetensors",
            )
        )
        (folder / name).write_bytes(opening_pickle(bench.canaries.paths()[0]))
        bench.tell(f"{name} is a pickle that opens a canary")
    if draw >= 0.15:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_bytes(
            json_text(_config(config, bench), False).encode("utf-8", "surrogatepass")
        )
    return Prepared(
        bench.told, [command("evaluate", NAME, "--models", "local-dir:./model", "--device", "cpu")]
    )


def _config(config: Any, bench: Bench) -> Any:
    chance = bench.chance
    changes: list[str] = []
    draw = chance.random()
    if draw < 0.5:
        places = [
            ("pretrained_cfg", name) for name in chance.sample(_SETTINGS, chance.choice((1, 2)))
        ]
        changes += replace_leaves(config, places, lambda: _setting(bench))
    elif draw < 0.6:
        changes += replace_leaves(
            config, [("architecture",)], lambda: chance.choice(_ARCHITECTURES)
        )
    elif draw < 0.7:
        keys = (
            ("pretrained_cfg", "file"),
            ("pretrained_cfg", "url"),
            ("pretrained_cfg", "hf_hub_id"),
            ("pretrained_cfg", "source"),
        )
        changes += replace_leaves(
            config,
            [chance.choice(keys)],
            lambda: hostile_path(chance, bench.canaries, bench.folder / "model"),
        )
    elif draw < 0.8:
        changes += replace_leaves(
            config, [("model_args", str(odd_value(chance))[:50])], lambda: odd_value(chance)
        )
    if not changes or chance.random() < 0.3:
        config, more = mutated(config, chance, json_fragment, chance.choice((1, 2)))
        changes += more
    bench.tell(*changes)
    return config


def _setting(bench: Bench) -> Any:
    chance = bench.chance
    number = [number for number in NUMBERS if abs(number) < 1e18 or number != number]
    return chance.choice(
        (
            [3, chance.choice(number), chance.choice(number)],
            [chance.choice(number)] * 3,
            [3, 100_000, 100_000],
            [3, 64],
            [1, 64, 64],
            chance.choice(number),
            odd_value(chance),
            "nearest",
            "random",
            "squash",
        )
    )
