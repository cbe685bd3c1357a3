"""A detector's graph that gives the same outputs for every image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def save_fixed_graph(
    folder: Path,
    outputs: Mapping[str, np.ndarray],
    names: Any = None,
    shape: Sequence[Any] = (1, 3, 64, 64),
    task: str = "detect",
) -> Path:
    """Save a graph that gives these outputs for every image. names, task: Ultralytics' metadata."""
    folder.mkdir(exist_ok=True)
    nodes = [helper.make_node("Identity", ["images"], ["unused"])]
    nodes += [helper.make_node("Identity", [f"fixed_{name}"], [name]) for name in outputs]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, shape)],
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), None)
            for name, values in outputs.items()
        ],
        [numpy_helper.from_array(values, f"fixed_{name}") for name, values in outputs.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if names is not None:
        helper.set_model_props(
            model,
            {
                "names": repr(names),
                "stride": "32",
                "task": task,
            },
        )
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"
