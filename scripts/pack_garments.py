"""Pack the embedded garment subset from Fashion-MNIST's original files (Debian package `dataset-fashion-mnist`).

    python scripts/pack_garments.py [--source FOLDER] [SPLIT …]

Training files feed `pretrain` and `train`; the test files feed `validation`, `heldout` and `audit`.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

import numpy as np

from counterfoil.lab.world import write_garments

# split: (original file, first garment of each class, garments of each class)
SPLITS = {
    "pretrain": ("train", 0, 1800),
    "train": ("train", 1800, 400),
    "validation": ("t10k", 0, 150),
    "heldout": ("t10k", 150, 150),
    "audit": ("t10k", 300, 300),
}


def read_idx(path: Path, header: int) -> np.ndarray:
    """The payload of an IDX file as uint8, after `header` bytes."""
    return np.frombuffer(gzip.decompress(path.read_bytes()), dtype=np.uint8, offset=header)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("splits", nargs="*", help="the splits to pack; all of them unless named")
    arguments = parser.parse_args()
    source, unknown = arguments.source, set(arguments.splits) - set(SPLITS)
    if unknown:
        parser.error(f"no split {', '.join(sorted(unknown))}; there are {', '.join(SPLITS)}")
    for split in arguments.splits or SPLITS:
        file, first, count = SPLITS[split]
        images = read_idx(source / f"{file}-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28)
        labels = read_idx(source / f"{file}-labels-idx1-ubyte.gz", 8)
        chosen = np.concatenate([np.flatnonzero(labels == c)[first : first + count] for c in range(10)])
        size = write_garments(split, images[chosen], labels[chosen], file, chosen)
        print(f"{split}: {len(chosen)} garments, {size / 2**20:.2f} MiB")


if __name__ == "__main__":
    main()
