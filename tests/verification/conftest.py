"""Real tiny datasets: Parquet, tar files, and class tokens with measured thresholds; rejected images are kept."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from doctored import KINDS
from safetensors.torch import save_file

from counterfoil.models.diffusion import load_pipeline
from counterfoil.store.reading import read_rows
from tiny_builds import tiny


@pytest.fixture(scope="session")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By kind. Read only."""
    folder = tmp_path_factory.mktemp("verification")
    tiny(folder / "accepted")
    scores = sorted(r["object_score"] for r in read_rows(folder / "accepted", ["object_score"], what="candidates"))
    half = (f"screen.object_threshold={scores[len(scores) // 2]!r}", "screen.keep_rejected=true")
    tiny(folder / "parquet", *half, "screen.store_embeddings=false")
    tiny(folder / "webdataset", *half, "output.format=webdataset", "output.image.format=jpg")
    pipeline = load_pipeline("lab:sd", dtype="float32")
    vocabulary = pipeline.text_encoder.get_input_embeddings().weight
    (folder / "vectors").mkdir()
    for class_id, row in (("00", 5), ("05", 7), ("08", 11)):
        save_file(
            {f"<class-{class_id}>": vocabulary[[row]].detach().clone()}, folder / f"vectors/{class_id}.safetensors"
        )
    measured = ("screen.object_threshold={percentile: 5}", "screen.keep_rejected=true", "output.rows_per_shard=12")
    tiny(folder / "tokens", f"tokens.path={folder / 'vectors'}", *measured)
    return {kind: folder / kind for kind in KINDS}


@pytest.fixture(params=("parquet", "webdataset"))
def dataset(request: pytest.FixtureRequest, datasets: dict[str, Path], tmp_path: Path) -> Path:
    """A copy in each format that a test may damage."""
    return Path(shutil.copytree(datasets[request.param], tmp_path / "dataset"))


@pytest.fixture
def parquet(datasets: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of the Parquet one that a test may damage."""
    return Path(shutil.copytree(datasets["parquet"], tmp_path / "dataset"))
