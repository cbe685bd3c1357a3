"""Run one graph of ONNX Runtime in a process of its own, with limits on memory and time.

`onnx_graphs.py` runs this file as a script and says there what a message is. The first request has
the graph's file, and each later request has arrays. The script imports nothing of Counterfoil,
because the import takes longer than a small graph.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

_HEAD = 8  # bytes that give the length of a message's JSON
_KILL_ON_PARENT_DEATH = 1  # PR_SET_PDEATHSIG of linux/prctl.h
_STACK = 1 << 24  # bytes that a thread of ONNX Runtime may take for itself
_LONGEST_PROBLEM = 1_000
_LONGEST_METADATA = 500_000


def serve_graph() -> None:
    parent = int(sys.argv[1])
    _die_with(parent)
    answers = os.fdopen(os.dup(1), "wb")
    # Libraries may print to file 1, which would break the answers.
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    opening = _json(requests)
    content = requests.read(opening["bytes"])
    _limit_time(opening["seconds"])
    session: Any = None
    spare = 0
    answer: dict[str, Any]
    try:
        import onnxruntime

        spare = _own_memory() + opening["threads"] * _STACK
        _limit_memory(spare + opening["memory"])
        session = _session(onnxruntime, content, opening)
        del content
        answer = {
            "inputs": _described(session.get_inputs()),
            "outputs": _described(session.get_outputs()),
        }
        answer["metadata"] = _metadata(session)
        arrays = []
    except Exception as error:  # a graph may raise anything
        answer = _problem(error)
        arrays = []
    _send(answers, answer, arrays)
    if session is None:
        return
    while (request := _json(requests)) is not None:
        _limit_time(request["seconds"])
        try:
            _limit_memory(spare + request["memory"])
            given = {name: _array(requests, type, shape) for name, type, shape in request["arrays"]}
            arrays = session.run(request["outputs"], given)
            _refuse_odd(request["outputs"], arrays, request["most_bytes"])
            answer = {"arrays": [["", array.dtype.str, list(array.shape)] for array in arrays]}
        except Exception as error:
            answer = _problem(error)
            arrays = []
        _send(answers, answer, arrays)


def _die_with(parent: int) -> None:
    """Let the kernel end this process with its parent. Where it cannot, the time limit and the
    closed pipe do."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_KILL_ON_PARENT_DEATH, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit(1)
    # If memory runs out, this process is ended before any other.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _session(onnxruntime: Any, content: bytes, opening: dict[str, Any]) -> Any:
    provider = opening["provider"]
    if provider not in onnxruntime.get_available_providers():
        raise ValueError(f"the ONNX Runtime here has no {provider}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = opening["threads"]
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory() as nothing:
        # By default, external weights would be read from the working folder, and no hash would
        # include them.
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", nothing
        )
        session = onnxruntime.InferenceSession(content, options, providers=[provider])
    # ONNX Runtime goes on with the CPU if it cannot use a device.
    if provider not in session.get_providers():
        raise ValueError(f"ONNX Runtime cannot use {provider}")
    return session


def _own_memory() -> int:
    """Return the bytes of memory that this process has without a graph; 0 where that is unknown."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmData:"):
                return int(line.split()[1]) << 10
    return 0


def _limit_memory(most: int) -> None:
    # Some systems cannot limit the memory of a process. Libraries of files and of GPUs do not count
    # as data.
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (most if hard < 0 else min(most, hard), hard))


def _limit_time(seconds: int) -> None:
    """Let the kernel end this process after `seconds`, if its parent has not; 0 for no limit."""
    if hasattr(signal, "alarm"):
        signal.alarm(seconds)


def _described(entries: Any) -> list[tuple[str, str, list[Any]]]:
    return [(entry.name, entry.type, list(entry.shape)) for entry in entries]


def _metadata(session: Any) -> dict[str, str]:
    """Return the texts that the exporter stored in the graph, but not long ones."""
    texts = session.get_modelmeta().custom_metadata_map
    return {
        name: text
        for name, text in texts.items()
        if len(name) + len(text) <= _LONGEST_METADATA // len(texts)
    }


def _refuse_odd(names: list[str], arrays: list[Any], most_bytes: int) -> None:
    import numpy as np

    for name, array in zip(names, arrays, strict=True):
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
            raise ValueError(f"its output {name} is no tensor of numbers")
    size = sum(array.nbytes for array in arrays)
    if size > most_bytes:
        raise ValueError(f"its outputs have {size:,} bytes, expected at most {most_bytes:,}")


def _problem(error: Exception) -> dict[str, Any]:
    text = " ".join(str(error).split())
    # ONNX Runtime has no type for too little memory.
    memory = (
        isinstance(error, MemoryError) or "bad_alloc" in text or "Failed to allocate memory" in text
    )
    shown = f"{text[:_LONGEST_PROBLEM]} ({type(error).__name__})"
    return {"problem": shown, "memory": memory, "missing": isinstance(error, ImportError)}


def _json(stream: BinaryIO) -> Any:
    """Read the JSON of a message, or None at the stream's end."""
    head = stream.read(_HEAD)
    return json.loads(stream.read(int.from_bytes(head, "little"))) if len(head) == _HEAD else None


def _array(stream: BinaryIO, type: str, shape: list[int]) -> Any:
    import numpy as np

    array = np.empty(shape, type)
    stream.readinto(array.reshape(-1).view(np.uint8).data)  # pyrefly: ignore[missing-attribute]
    return array


def _send(stream: BinaryIO, answer: dict[str, Any], arrays: list[Any]) -> None:
    import numpy as np

    _limit_time(0)
    text = json.dumps(answer).encode()
    stream.write(len(text).to_bytes(_HEAD, "little") + text)
    for array in arrays:
        stream.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    stream.flush()


if __name__ == "__main__":
    serve_graph()
