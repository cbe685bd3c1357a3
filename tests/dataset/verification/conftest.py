"""Real tiny datasets: Parquet, tar files, and class tokens with measured thresholds; rejected
images are kept."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from safetensors.torch import save_file

from counterfoil.models.diffusion import load_pipeline
from shared_datasets import Once
from tiny_builds import tiny


@pytest.fixture(scope="session")
def datasets(
    once_a_run: Once,
    undisturbed: Path,
    screened: Path,
    half_threshold: float,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    """Return datasets by kind, copied for each process: commands lock what they verify. Read
    only."""
    half = (f"screen.object_threshold={half_threshold!r}", "screen.keep_rejected=true")
    tars = once_a_run(
        "tars", lambda out: tiny(out, *half, "output.format=webdataset", "output.image.format=jpg")
    )
    of_kind = {"accepted": undisturbed, "parquet": screened, "webdataset": tars}
    of_kind["tokens"] = once_a_run("with_vectors", _with_tokens)
    folder = tmp_path_factory.mktemp("verification")
    return {kind: Path(shutil.copytree(path, folder / kind)) for kind, path in of_kind.items()}


def _with_tokens(out: Path) -> None:
    pipeline = load_pipeline("lab:sd", dtype="float32")
    vocabulary = pipeline.text_encoder.get_input_embeddings().weight
    vectors = out.with_name("vectors")
    vectors.mkdir()
    for class_id, row in (("00", 5), ("05", 7), ("08", 11)):
        save_file(
            {f"<class-{class_id}>": vocabulary[[row]].detach().clone()},
            vectors / f"{class_id}.safetensors",
        )
    measured = (
        "screen.object_threshold={percentile: 5}",
        "screen.keep_rejected=true",
        "output.rows_per_shard=12",
    )
    tiny(out, f"tokens.path={vectors}", *measured)


@pytest.fixture(params=("parquet", "webdataset"))
def dataset(request: pytest.FixtureRequest, datasets: dict[str, Path], tmp_path: Path) -> Path:
    """Return a copy in each format that a test may damage."""
    return Path(shutil.copytree(datasets[request.param], tmp_path / "dataset"))


@pytest.fixture
def tars(datasets: dict[str, Path], tmp_path: Path) -> Path:
    """Return a copy of the one of tar files that a test may damage."""
    return Path(shutil.copytree(datasets["webdataset"], tmp_path / "dataset"))


@pytest.fixture
def with_tokens(datasets: dict[str, Path], tmp_path: Path) -> Path:
    """Return a copy of the one with class tokens that a test may damage."""
    return Path(shutil.copytree(datasets["tokens"], tmp_path / "dataset"))


@pytest.fixture
def parquet(datasets: dict[str, Path], tmp_path: Path) -> Path:
    """Return a copy of the Parquet one that a test may damage."""
    return Path(shutil.copytree(datasets["parquet"], tmp_path / "dataset"))
