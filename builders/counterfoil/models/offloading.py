"""Where a pipeline's weights wait that are not in use: on its device, or in memory by part or by layer.

It changes no byte: the same numbers are computed on the same device. Where that is, `_execution_device` of a pipeline
tells; its `device` tells where weights are.
"""

from __future__ import annotations

from typing import Any

from counterfoil.errors import UserError


def placed(pipeline: Any, device: str, offload: str = "none") -> Any:
    """The pipeline ready to compute on `device`, its weights there or waiting in memory.

    On a CPU they are in memory anyway, so that nothing is done. UserError for a pipeline that does not say in which
    order its parts run.
    """
    if offload == "none" or device.startswith("cpu"):
        return pipeline.to(device)
    return wait_in_memory(pipeline, device, offload)


def wait_in_memory(pipeline: Any, device: str, offload: str) -> Any:
    """The pipeline with its parts (`model`) or layers (`sequential`) brought to `device` when they are called.

    It is never moved as a whole: that would bring all of them at once. Raises as `placed`.
    """
    if offload == "model":
        if pipeline.model_cpu_offload_seq is None:
            raise UserError(
                f"generator.offload: {type(pipeline).__name__} does not say in which order its parts run, so they"
                " cannot wait in memory by part; expected sequential or none"
            )
        pipeline.enable_model_cpu_offload(device=device)
    else:
        pipeline.enable_sequential_cpu_offload(device=device)
    return pipeline
