"""Other processors, emulated on this one by the switches of each library, in a process's
environment.

python -m support.processors SSE pytest tests/lab     # run a command as on a processor with no more
than SSE
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

# What a library may use of this processor, from all that torch asks for down to what every x86-64
# has. The names are numpy's, torch's, oneDNN's, MKL's, OpenBLAS's and glibc's own; another kind of
# processor knows none of them.
LEVELS = {
    "AVX2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F",
    },
    "SSE": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "MKL_CBWR": "COMPATIBLE",
        "OPENBLAS_CORETYPE": "Nehalem",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA",
    },
}
# Groups of instructions that numpy leaves out at a level, by its own names for them, new and old.
_BEYOND_AVX2 = ("X86_V4", "AVX512")
_BEYOND_SSE = (*_BEYOND_AVX2, "X86_V3", "AVX2", "FMA3")


def emulated(level: str) -> dict[str, str]:
    """Return the environment of a process that computes as a processor of this level does."""
    beyond = _BEYOND_AVX2 if level == "AVX2" else _BEYOND_SSE
    configuration: Any = np.show_config(mode="dicts")
    features = configuration["SIMD Extensions"].get("found", [])
    without = " ".join(name for name in features if name.startswith(beyond))
    environment = os.environ | LEVELS[level] | {"NPY_DISABLE_CPU_FEATURES": without}
    if configuration["Build Dependencies"]["blas"]["version"].startswith("0.3.34"):
        # It crashes where AMD's AVX-512 processors pass for others (OpenMathLib/OpenBLAS, issue
        # 6021).
        environment.pop("OPENBLAS_CORETYPE")
    return environment


if __name__ == "__main__":
    os.execvpe(sys.argv[2], sys.argv[2:], emulated(sys.argv[1]))
