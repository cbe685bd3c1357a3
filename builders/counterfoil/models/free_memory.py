"""How much memory there is: of the machine, of the container that this process may live in, or of a GPU."""

from __future__ import annotations

import contextlib
from pathlib import Path

# Limit and use of a container's memory, in version 2 of control groups and in version 1.
_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def free_bytes(device: str = "cpu") -> int:
    """Bytes that can be taken on a device. In a container the machine may have more than the container may use."""
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    import psutil

    free = psutil.virtual_memory().available
    for limit, used in _CGROUPS:
        # No such files, or the word "max": no limit. What the kernel keeps of files counts as used and is given back,
        # so a quarter of the limit is always thought free.
        with contextlib.suppress(OSError, ValueError):
            most = int(Path(limit).read_text(encoding="ascii"))
            free = min(free, max(most - int(Path(used).read_text(encoding="ascii")), most // 4))
    return free
