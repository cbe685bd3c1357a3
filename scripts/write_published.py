"""Write `recipes/published/timm.parquet` and the note beside it: accuracies that timm publishes in
its repository.

    python scripts/write_published.py CHECKOUT

CHECKOUT is a clone of github.com/huggingface/pytorch-image-models, bare or not; the tables are read
from its HEAD. They are in no release of timm. A row is a model at an image size; columns are top-1
accuracies in percent, as printed there.
"""

from __future__ import annotations

import csv
import io
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from program import new_parser

FOLDER = Path(__file__).resolve().parent.parent / "recipes" / "published"
# Column here -> the part of the file's name there.
TABLES = {
    "imagenet": "imagenet",
    "v2": "imagenetv2-matched-frequency",
    "sketch": "sketch",
    "r": "imagenet-r",
    "r_clean": "imagenet-r-clean",
    "a": "imagenet-a",
    "a_clean": "imagenet-a-clean",
    "real": "imagenet-real",
}
NOTE = """\
timm.parquet: top-1 accuracies, in percent, that timm (PyTorch Image Models) publishes in its repository.

Source: https://github.com/huggingface/pytorch-image-models, folder results/
Commit: {commit}
Licence: Apache-2.0, copyright 2019 Ross Wightman; the text is in LICENSE of Counterfoil.
Changed: eight tables (results-*.csv) are joined by model and image size, and other columns are left out.
Columns: imagenet (ImageNet-1k validation), v2 (ImageNetV2, matched frequency), sketch (ImageNet-Sketch), real (ImageNet
with ReaL labels), r (ImageNet-R) and a (ImageNet-A), both over the outputs of their 200 classes; r_clean and a_clean
(ImageNet-1k validation images of these 200 classes).
Written by scripts/write_published.py.
"""


def git(checkout: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", checkout, *words], check=True, capture_output=True, text=True
    ).stdout


def joined(checkout: Path) -> pa.Table:
    """Return a row a model and image size, best on ImageNet first."""
    accuracies: dict[tuple[str, int], dict[str, float]] = {}
    for column, name in TABLES.items():
        for row in csv.DictReader(
            io.StringIO(git(checkout, "show", f"HEAD:results/results-{name}.csv"))
        ):
            accuracies.setdefault((row["model"], int(row["img_size"])), {})[column] = float(
                row["top1"]
            )
    rows = sorted(accuracies.items(), key=lambda pair: (-pair[1].get("imagenet", 0.0), pair[0]))
    columns = {
        "model": pa.array([model for (model, _), _ in rows], pa.string()),
        "img_size": pa.array([size for (_, size), _ in rows], pa.int32()),
        **{
            column: pa.array([values.get(column) for _, values in rows], pa.float32())
            for column in TABLES
        },
    }
    return pa.table(columns)


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("checkout", type=Path)
    checkout = parser.parse_args().checkout
    commit = git(checkout, "rev-parse", "HEAD").strip()
    source = "https://github.com/huggingface/pytorch-image-models"
    FOLDER.mkdir(exist_ok=True)
    table = joined(checkout).replace_schema_metadata(
        {"source": source, "commit": commit, "license": "Apache-2.0"}
    )
    pq.write_table(table, FOLDER / "timm.parquet", compression="zstd")
    (FOLDER / "timm.txt").write_text(NOTE.format(commit=commit), encoding="utf-8")
    print(f"{table.num_rows:,} rows, {(FOLDER / 'timm.parquet').stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
