"""What a GPU could do at most: dense bf16 products on its tensor cores, sums in float32, by its maker's datasheet."""

from __future__ import annotations

import re

# Name as torch tells it → (TFLOPS, source). Datasheets give twice as much "with sparsity"; dense is half of it.
PEAKS: tuple[tuple[str, float, str], ...] = (
    (r"H200 NVL", 835.5, "NVIDIA H200 datasheet: 1,671 with sparsity"),
    (r"H200", 989.5, "NVIDIA H200 datasheet: 1,979 with sparsity"),
    (r"H100 PCIe", 756.5, "NVIDIA H100 PCIe datasheet: 1,513 with sparsity"),
    (r"H100 NVL", 835.5, "NVIDIA H100 datasheet: 1,671 with sparsity"),
    (r"H100( SXM\S*)? 80GB HBM3", 989.5, "NVIDIA H100 datasheet, SXM: 1,979 with sparsity"),
    (r"GH200", 989.5, "NVIDIA GH200 datasheet: 1,979 with sparsity"),
    (r"A100", 312.0, "NVIDIA A100 datasheet: 312"),
    (r"L40S", 362.0, "NVIDIA L40S datasheet: 362.05"),
    (r"L4", 121.0, "NVIDIA L4 datasheet: 242 with sparsity"),
    (r"A40", 149.7, "NVIDIA A40 datasheet: 149.7"),
    (r"A10", 125.0, "NVIDIA A10 datasheet: 125"),
    (r"GeForce RTX 4090", 165.2, "NVIDIA Ada architecture whitepaper, appendix: 165.2"),
    (r"GeForce RTX 3090", 71.0, "NVIDIA GA102 architecture whitepaper: 71"),
)


def dense_bf16_peak(device: str) -> tuple[float, str] | None:
    """TFLOPS and their source for the name of a GPU; None for one that the table does not have, and on a CPU."""
    for name, teraflops, source in PEAKS:
        # The whole name, but for memory and socket: a 4090 D or a laptop's is another chip.
        if re.fullmatch(rf"(NVIDIA )?({name})(-(SXM4|PCIE)-\d+GB| \d+GB PCIe)?", device):
            return teraflops, source
    return None
