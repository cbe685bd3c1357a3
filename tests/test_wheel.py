"""The wheel is whole: installed away from the checkout, it shows a recipe and builds a dataset of
two cells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from email.parser import BytesParser
from pathlib import Path

import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[1]

# One class, the base and one shift, everything accepted: the smallest build that goes all the way.
TWO_CELLS = {
    "source.classes": '[{id: "08", name: bag, source_label: 8}]',
    "prompts.shifts": "null",
    "prompts.shifts.in_the_snow": '{prompt: "a photo of a {class} in the snow", caption: a photo in'
    " the snow}",
    "generator.steps": "2",
    "generator.batch_size": "1",
    "screen.object_threshold": "-1",
    "screen.shift_threshold": "-1",
    "samples.candidates": "1",
}


def run(*words: str | Path, cwd: Path) -> str:
    """Return standard output of a command that knows nothing of this checkout; fail with all its
    output."""
    strangers = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=strangers | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        folder,
        ROOT,
        cwd=folder,
    )
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the programs' folder of an environment that holds the wheel, and sees this one's other
    packages."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    programs = folder / "bin"
    install = ("install", "--no-deps", "--no-index", "--disable-pip-version-check", wheel)
    run(sys.executable, "-m", "pip", "--python", programs / "python", *install, cwd=folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    # A .pth file adds these folders, but reads none of their own .pth files: the editable checkout
    # stays hidden.
    others = [entry for entry in sys.path if Path(entry).name in {"site-packages", "dist-packages"}]
    (packages / "other-packages.pth").write_text("\n".join(others) + "\n")
    return programs


def test_the_wheel_holds_what_runs_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        described = BytesParser().parsebytes(archive.read(metadata))
    tops = {name.split("/")[0] for name in names}
    assert tops == {"counterfoil", metadata.split("/")[0]}
    for folder, inside in (("recipes", "_recipes"), ("cards", "_cards")):
        shipped = {
            name.split("/", 2)[2] for name in names if name.startswith(f"counterfoil/{inside}/")
        }
        paths = (path for path in (ROOT / folder).rglob("*") if path.is_file())
        assert shipped == {path.relative_to(ROOT / folder).as_posix() for path in paths}
    weights = [name for name in names if name.startswith("counterfoil/lab/weights/")]
    assert {name.split("/")[3] for name in weights} >= {"sd", "clip", "resnet10t"}
    tokens = {name.split("/", 3)[3] for name in names if name.startswith("counterfoil/lab/tokens/")}
    assert tokens == {path.name for path in (ROOT / "builders/counterfoil/lab/tokens").iterdir()}
    kinds = {
        ".py",
        ".json",
        ".safetensors",
        ".webp",
        ".yaml",
        ".j2",
        ".js",
        ".typed",
        ".txt",
        ".md",
        ".parquet",
        "",
    }
    assert {Path(name).suffix for name in names if name.startswith("counterfoil/")} <= kinds
    licences = {name.split("licenses/")[1] for name in names if "licenses/" in name}
    assert licences == {"LICENSE", "builders/counterfoil/lab/LICENSE-fashion-mnist"}
    assert set(described.get_all("License-File", [])) == licences


def test_show_prints_a_bundled_recipe_from_another_folder(
    environment: Path, tmp_path: Path
) -> None:
    where = run(
        environment / "python",
        "-c",
        "import counterfoil; print(counterfoil.__file__)",
        cwd=tmp_path,
    )
    assert Path(where.strip()).is_relative_to(environment.parent), where
    shown = run(environment / "counterfoil", "show", "wardrobe-mini", cwd=tmp_path)
    assert "name: wardrobe-mini" in shown


@pytest.mark.whole
def test_a_build_of_two_cells_makes_a_dataset(environment: Path, tmp_path: Path) -> None:
    overrides = [word for key, value in TWO_CELLS.items() for word in ("--set", f"{key}={value}")]
    words = (
        "build",
        "wardrobe-mini",
        *overrides,
        "--out",
        "two-cells",
        "--workers",
        "1",
        "--device",
        "cpu",
        "--json",
    )
    result = json.loads(run(environment / "counterfoil", *words, cwd=tmp_path))
    assert (result["candidates"], result["accepted"]) == (2, 2)

    dataset = tmp_path / "two-cells"
    listed = {file["path"] for file in json.loads((dataset / "manifest.json").read_text())["files"]}
    assert {"README.md", "recipe.yaml", "lock.json"} <= listed
    assert (dataset / "README.md").read_text().startswith("---\n")
    tables = [pq.read_table(dataset / path) for path in sorted(listed) if path.startswith("data/")]
    assert [table.column("shift").to_pylist() for table in tables] == [["base"], ["in_the_snow"]]
    assert tables[0].column("prompt").to_pylist() == ["a photo of a <bag-08>"]
    assert {"tokens/08.safetensors", "tokens/manifest.json"} <= listed
