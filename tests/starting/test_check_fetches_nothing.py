"""`check` asks the Hub what a dataset declares, and fetches no dataset to read its labels."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import datasets
from PIL import Image

import warm
from loopback_hub import LoopbackHub, client, client_environment

RECIPE = """
extends: wardrobe-mini
source: {dataset: someone/mugs, classes: null, train_split: train, validation_split: train}
tokens: null
screen: {judge: null}
evaluate: {models: []}
"""


def parquet() -> bytes:
    """Labels that are texts, so that nothing but the rows tells which there are."""
    stream, image = io.BytesIO(), io.BytesIO()
    Image.new("RGB", (8, 8), (9, 9, 9)).save(image, "PNG")
    columns = {"image": [{"bytes": image.getvalue(), "path": None}] * 2, "label": ["mug", "star"]}
    kinds = datasets.Features({"image": datasets.Image(), "label": datasets.Value("string")})
    datasets.Dataset.from_dict(columns, features=kinds).to_parquet(stream)
    return stream.getvalue()


def test_labels_that_only_rows_tell_are_a_lack(loopback: LoopbackHub, tmp_path: Path) -> None:
    hub = client(loopback)
    hub.create_repo("someone/mugs", repo_type="dataset")
    hub.upload_file(
        path_or_fileobj=parquet(),
        path_in_repo="data/train-00000-of-00001.parquet",
        repo_id="someone/mugs",
        repo_type="dataset",
    )
    (tmp_path / "own.yaml").write_text(RECIPE)

    def python(code: str) -> subprocess.CompletedProcess[str]:
        environment = client_environment(loopback, tmp_path / "home") | {"PYTHONPATH": ":".join(sys.path)}
        words = [sys.executable, "-c", code]
        return warm.run(words, environment, cwd=tmp_path)

    check = "from counterfoil.cli.main import main; import sys; sys.argv = ['counterfoil', 'check', 'own.yaml']; main()"
    refused = python(check)
    assert refused.returncode == 2, refused.stderr
    assert "someone/mugs" in refused.stderr and "not on this machine" in refused.stderr
    assert not list((tmp_path / "home").rglob("*.parquet")) and not list((tmp_path / "home").rglob("*.arrow"))
    resolve = "import counterfoil as c; print(len(c.resolve_classes(c.load_recipe('own.yaml')).classes))"
    assert python(resolve).stdout.strip() == "2"
    assert python(check).returncode == 0
