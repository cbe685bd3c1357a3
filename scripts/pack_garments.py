"""Pack the embedded garment subset from Fashion-MNIST's original files (Debian package
`dataset-fashion-mnist`).

    python scripts/pack_garments.py [--source FOLDER] [SPLIT …]

Training files feed `pretrain` and `train`; the test files feed `validation`, `heldout` and `audit`.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
from PIL import Image

from counterfoil.lab.world import FOLDER, GARMENT_SIDE
from program import new_parser

# split: (original file, first garment of each class, garments of each class)
SPLITS = {
    "pretrain": ("train", 0, 1800),
    "train": ("train", 1800, 400),
    "validation": ("t10k", 0, 150),
    "heldout": ("t10k", 150, 150),
    "audit": ("t10k", 300, 300),
}
COLUMNS = 120  # of a mosaic


def read_idx(path: Path, header: int) -> np.ndarray:
    """Return the payload of an IDX file as uint8, after `header` bytes."""
    return np.frombuffer(gzip.decompress(path.read_bytes()), dtype=np.uint8, offset=header)


def write_garments(
    split: str, images: np.ndarray, labels: np.ndarray, file: str, positions: np.ndarray
) -> int:
    """Write a split's mosaic and index; return the bytes of the mosaic."""
    rows = -(-len(images) // COLUMNS)
    side = GARMENT_SIDE
    tiles = np.zeros((rows * COLUMNS, side, side), dtype=np.uint8)
    tiles[: len(images)] = images
    mosaic = (
        tiles.reshape(rows, COLUMNS, side, side).swapaxes(1, 2).reshape(rows * side, COLUMNS * side)
    )
    path = FOLDER / f"{split}.webp"
    Image.fromarray(mosaic).save(path, lossless=True, quality=100, method=6)
    index = {
        "columns": COLUMNS,
        "file": file,
        "labels": labels.tolist(),
        "positions": positions.tolist(),
    }
    (FOLDER / f"{split}.json").write_text(json.dumps(index, separators=(",", ":")) + "\n")
    return path.stat().st_size


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--source", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("splits", nargs="*", help="the splits to pack; all of them unless named")
    arguments = parser.parse_args()
    source = arguments.source
    unknown = set(arguments.splits) - set(SPLITS)
    if unknown:
        parser.error(f"no split {', '.join(sorted(unknown))}; there are {', '.join(SPLITS)}")
    for split in arguments.splits or SPLITS:
        file, first, count = SPLITS[split]
        images = read_idx(source / f"{file}-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28)
        labels = read_idx(source / f"{file}-labels-idx1-ubyte.gz", 8)
        chosen = np.concatenate(
            [np.flatnonzero(labels == c)[first : first + count] for c in range(10)]
        )
        size = write_garments(split, images[chosen], labels[chosen], file, chosen)
        print(f"{split}: {len(chosen)} garments, {size / 2**20:.2f} MiB")


if __name__ == "__main__":
    main()
