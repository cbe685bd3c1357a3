"""What an error says of a device: that its memory is full, or that it failed or is gone."""

from __future__ import annotations

from counterfoil.models.error_text import one_line
from counterfoil.models.loading_errors import causes, is_of_memory

# torch wraps what CUDA and its libraries answer in a RuntimeError whose kind does not say what is lost. After most of
# them a process cannot use the device again: https://docs.nvidia.com/cuda/cuda-runtime-api, “cudaError_t”.
_FAILED = (
    "cuda error",
    "cuda driver error",
    "cublas_status_",
    "cudnn_status_",
    "cusolver_status_",
    "found no nvidia driver",
    "no cuda gpus are available",
    "cuda-capable device",
    "invalid device ordinal",
    "torch not compiled with cuda enabled",
)


def memory_error(error: BaseException) -> str | None:
    """What is said of too little memory, of the machine or of a GPU, by the error or what is behind it; None if not."""
    for each in causes(error):
        if isinstance(each, MemoryError) or (isinstance(each, RuntimeError) and is_of_memory(each)):
            return one_line(each)
    return None


def device_error(error: BaseException) -> str | None:
    """What CUDA says of a device that failed or is not there, by the error or what is behind it; None if nothing."""
    for each in causes(error):
        # AssertionError: a torch without CUDA.
        if isinstance(each, RuntimeError | AssertionError) and any(words in str(each).lower() for words in _FAILED):
            return one_line(each)
    return None
