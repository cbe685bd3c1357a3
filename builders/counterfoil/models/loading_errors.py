"""Explain errors of fetching, reading and computing: a missing repository, a full disk, a lost GPU.

An error with a known cause must never be reported as a bug of the program. So every load runs
inside `loading`, or its errors pass through `known_cause`.
"""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Callable, Iterator
from typing import Any

from counterfoil.errors import CounterfoilError, RunFailure
from counterfoil.models.messages import failure, message, refusal

_LONGEST = 300


def error_line(error: BaseException) -> str:
    """Return the text of an error in one line, shortened, followed by the type of the error."""
    words = " ".join(str(error).split())
    kind = type(error).__name__
    return f"{words[:_LONGEST]} ({kind})" if words else kind


_DEEPEST = 12
_OF_THE_MACHINE = {
    errno.ENOSPC: "Make room on the disk, then run the same command again.",
    errno.EDQUOT: "Make room within the disk quota, then run the same command again.",
    errno.EACCES: "Give yourself permission for that path, or choose another.",
    errno.EPERM: "Give yourself permission for that path, or choose another.",
    errno.EROFS: "That file system is read-only: choose another path.",
}
# Messages about too little memory, in errors that are not torch.OutOfMemoryError. They come from
# the CPU, from loading a library, from CUDA and from CUDA's libraries.
_NO_MEMORY = (
    "can't allocate memory",
    "can't start new thread",
    "failed to map segment",
    "not enough memory",
    "cannot allocate memory",
    "cuda out of memory",
    "cuda error: out of memory",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
)


def while_loading(name: str, load: Callable[[], Any]) -> Any:
    with explain_loading(name):
        return load()


@contextlib.contextmanager
def explain_loading(name: str) -> Iterator[None]:
    """Turn errors of fetching and reading a model into a UserError or RunFailure that explains the
    cause.

    Causes are the network, the disk, memory and the file format.
    """
    import safetensors

    try:
        yield
    except CounterfoilError:
        raise
    except Exception as error:
        where = f"model {name!r}"
        known = known_cause(where, error)
        if known is not None:
            raise known from error
        if isinstance(error, safetensors.SafetensorError | EOFError):
            raise failure("unreadable-model.damaged", where, error) from error
        # If weights and configuration do not belong together, libraries may raise any error.
        raise failure("failed-model.load", where, error_line(error)) from error


@contextlib.contextmanager
def explain_computing(
    who: str,
    doing: str,
    device: str,
    less_memory: str | None = None,
) -> Iterator[None]:
    """Turn any error of a loaded model inside the block into a RunFailure.

    who: the model's name in the message. doing: the task in the message. less_memory: the hint if
    memory is exhausted.
    """
    import torch

    try:
        yield
    except CounterfoilError:
        raise
    except torch.OutOfMemoryError as error:
        problem = message("out-of-memory.device", who, device, doing=doing)
        raise RunFailure(problem, less_memory) from error
    except Exception as error:
        # If tokenizer, template and weights do not belong together, libraries may raise any error.
        raise failure("failed-model.computing", who, error_line(error), doing=doing) from error


def reading_errors() -> tuple[type[Exception], ...]:
    """Return the types of errors that mean an unavailable input dataset. A run must not continue
    after other errors."""
    import httpx2
    import pyarrow
    from huggingface_hub import errors as hub

    of_the_hub = (hub.HfHubHTTPError, hub.HFValidationError, hub.OfflineModeIsEnabled)
    return (CounterfoilError, OSError, httpx2.HTTPError, pyarrow.ArrowException, *of_the_hub)


def skipped_reason(what: str, error: Exception) -> CounterfoilError:
    """Return an error that says why something optional is skipped.

    A MemoryError is raised again, because no run can continue after it.
    """
    if isinstance(error, MemoryError):
        raise error
    return known_cause(what, error) or RunFailure(f"{what} cannot be read: {error_line(error)}")


def known_cause(what: str, error: BaseException) -> CounterfoilError | None:
    """Explain the first known cause of a library's error, or return None if no cause is known.

    what: the thing that was being read, for the message.
    """
    for cause in error_causes(error):
        known = error_meaning(what, cause)
        if known is not None:
            return known
    return None


def error_meaning(what: str, error: BaseException) -> CounterfoilError | None:
    if _is_of_memory(error):  # first, because the libraries below may need more
        return failure("out-of-memory.machine", what, _memory_limit())
    import httpx2
    from huggingface_hub import errors as hub

    match error:
        case CounterfoilError():
            return error
        case hub.HFValidationError():
            return refusal("not-on-hub.name", what, error_line(error))
        case hub.GatedRepoError():
            return refusal("access-denied.gated", what)
        case hub.RepositoryNotFoundError() | hub.RevisionNotFoundError():
            return refusal("not-on-hub", what)
        case hub.LocalEntryNotFoundError() | hub.OfflineModeIsEnabled():
            return failure("unavailable.cache", what)
        case hub.HfHubHTTPError():
            status = getattr(getattr(error, "response", None), "status_code", None)
            if status in (401, 403):
                return refusal("access-denied.hub", what, status)
            answer = "gave an invalid answer" if status is None else f"answered {status}"
            return failure("unavailable.answer", what, answer)
        case httpx2.TransportError() | ConnectionError() | TimeoutError():
            return failure("unavailable.cache", what)
        case OSError() if error.errno in _OF_THE_MACHINE:
            where = f"{what}: {error.filename}" if error.filename else what
            problem = message("disk-refused", where, error)
            return RunFailure(problem, _OF_THE_MACHINE[error.errno])
    return None


def _memory_limit() -> str:
    """Name the limit of this process's address space, if it has one."""
    with contextlib.suppress(ImportError):  # on Windows
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        if most != resource.RLIM_INFINITY:
            return (
                f"; this process has a limit of {most / 1e9:.1f} GB (ulimit -v), which can be"
                " raised"
            )
    return ""


def _is_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    if not isinstance(error, RuntimeError | ImportError | OSError):
        return False
    # not imported here: if torch is not loaded, it raised no error
    torch = sys.modules.get("torch")
    of_a_gpu = torch is not None and isinstance(error, torch.OutOfMemoryError)
    return of_a_gpu or any(words in str(error).lower() for words in _NO_MEMORY)


def error_causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(_DEEPEST):
        if cause is None:
            return
        yield cause
        # As Python prints them: the cause, or else the error that was being handled.
        context = None if cause.__suppress_context__ else cause.__context__
        cause = cause.__cause__ or context


# torch raises RuntimeError for errors of CUDA and its libraries. After most such errors, the
# process cannot use the device again: https://docs.nvidia.com/cuda/cuda-runtime-api, “cudaError_t”.
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
    """Search an error and its causes for too little memory, of the machine or of a GPU.

    Return the text of the first such error in one line, or None.
    """
    for cause in error_causes(error):
        if _is_of_memory(cause):
            return error_line(cause) + _memory_limit()
    return None


def device_error(error: BaseException) -> str | None:
    """Search an error and its causes for a device that CUDA reports as lost or absent.

    Return the text of the first such error in one line, or None.
    """
    for cause in error_causes(error):
        # A torch without CUDA raises AssertionError.
        if isinstance(cause, RuntimeError | AssertionError) and any(
            words in str(cause).lower() for words in _FAILED
        ):
            return error_line(cause)
    return None
