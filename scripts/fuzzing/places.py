"""The kind of cases about what stands where a file should: FIFOs, links, folders, devices, empty
and endless files."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from fuzzing.cases import Bench, Prepared
from fuzzing.commands import on_the_dataset
from fuzzing.templates import BUILT
from fuzzing.values import TRAPS, make_socket, set_traps

_REPLACED = (
    "fifo",
    "fifo",
    "link to a canary",
    "link to a canary",
    "link beside",
    "loop",
    "link to /dev/zero",
    "folder",
    "empty",
    "endless",
    "socket",
    "gone",
    "unreadable",
)
_HOW = (
    *_REPLACED,
    "linked folder",
    "linked folder",
    "linked folder outside",
    "one more",
    "one more",
    "odd name",
    "odd name",
    "deep",
    "model",
    "model",
    "private",
    "private",
)
_ODD_NAMES = (
    b"a\nb",
    b"\xff\xfe",
    b"-rf",
    "日本語".encode(),
    b"x" * 255,
    b" ",
    b"[bold]",
    b".hidden",
    b"a\\b",
    b"\x1b[2J",
    b"CON",
    b"%s",
)
# More than a case may take of memory, and no more than is hashed in a second or two, which sealed
# ones are.
_ENDLESS = 5 << 28
_PRIVATE = (
    "lock",
    "lock.pid",
    "replacement",
    "evaluation",
    "predictions",
    "calibrate.html",
    "review.html",
)


def place(bench: Bench) -> Prepared:
    """Replace one or two files or folders of a dataset, or put something beside them."""
    chance = bench.chance
    directory = bench.copy(chance.choice(BUILT))
    for _ in range(chance.choice((1, 1, 2))):
        change(bench, directory, chance.choice(_HOW))
    return on_the_dataset(bench, 0.5)


def change(bench: Bench, directory: Path, how: str) -> None:
    """Do what `how` says to one file or folder of the dataset."""
    chance = bench.chance
    canary = bench.canaries.paths()[0]
    files = sorted(
        path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()
    )
    by_folder = sorted({path.parent for path in files})
    folder = chance.choice(by_folder)
    path = chance.choice([file for file in files if file.parent == folder])
    shown = path.relative_to(directory).as_posix()
    bench.tell(f"{shown}: {how}")
    if how in _REPLACED:
        _replace(bench, path, how, canary)
        return
    below = [parent for parent in by_folder if parent != directory]
    match how:
        case "linked folder":
            moving = chance.choice(below)
            moved = bench.folder / f"moved{len(bench.told)}"
            moving.rename(moved)
            moving.symlink_to(chance.choice((moved, os.path.relpath(moved, moving.parent))))
        case "linked folder outside":
            removed = chance.choice(below)
            shutil.rmtree(removed)
            removed.symlink_to(bench.canaries.folder)
        case "one more":
            more = folder / f"one-more{len(bench.told)}"
            more.symlink_to(canary) if chance.random() < 0.5 else os.mkfifo(more)
        case "odd name":
            name = chance.choice(_ODD_NAMES)
            suffix = chance.choice((b"", b".json", b".parquet")) if len(name) < 250 else b""
            (folder / os.fsdecode(name + suffix)).touch()
        case "deep":
            _make_deep(folder, 450)
        case "model":
            bring_a_model(bench, directory)
        case "private":
            private = directory / ".counterfoil"
            private.mkdir(exist_ok=True)
            traps = set_traps(bench.folder / f"traps{len(bench.told)}", bench.canaries)
            target = private / chance.choice(_PRIVATE)
            if not os.path.lexists(target):
                trapped = chance.random() < 0.7
                target.symlink_to(traps / chance.choice(TRAPS) if trapped else canary)
            bench.tell(f"{target.name} → {target.readlink() if target.is_symlink() else ''}")


def _replace(bench: Bench, path: Path, how: str, canary: Path) -> None:
    content = path.read_bytes()
    if how == "unreadable":
        path.chmod(0)
        return
    path.unlink()
    match how:
        case "fifo":
            os.mkfifo(path)
        case "link to a canary":
            relative = os.path.relpath(canary, path.parent)
            path.symlink_to(canary if bench.chance.random() < 0.5 else relative)
        case "link beside":
            beside = bench.folder / f"beside{len(bench.told)}"
            beside.write_bytes(content)
            path.symlink_to(beside)
        case "loop":
            path.symlink_to(path.name)
        case "link to /dev/zero":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
        case "empty":
            path.touch()
        case "endless":
            with path.open("wb") as file:
                file.write(content[:1_000])
                file.truncate(_ENDLESS)
        case "socket":
            make_socket(path.with_name("s"))
            path.with_name("s").rename(path)


def _make_deep(folder: Path, depth: int) -> None:
    """Make folders in folders, as deep as their removal can follow."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        for _ in range(depth):
            # An earlier change may have made the first ones.
            with suppress(FileExistsError):
                os.mkdir("deep", dir_fd=descriptor)
            below = os.open("deep", os.O_RDONLY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
    finally:
        os.close(descriptor)


def bring_a_model(bench: Bench, directory: Path) -> None:
    """Put a model into the dataset, whose weights are a pickle that opens a canary, and name it in
    the dataset's recipe."""
    chance = bench.chance
    folder = directory / chance.choice(("data/evil", "evil", "figures/evil", ".evil"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(
        '{"architecture": "lcnet_035", "num_classes": 10, "pretrained_cfg": {}}'
    )
    (folder / chance.choice(("pytorch_model.bin", "model.pth", "model.safetensors"))).write_bytes(
        opening_pickle(bench.canaries.paths()[0])
    )
    recipe = directory / "recipe.yaml"
    if recipe.is_file():
        name = f"local-dir:./{folder.relative_to(directory).as_posix()}"
        outside = f"local-dir:{bench.canaries.folder / 'model'}"
        away = chance.choice((name, name, name, outside, str(folder)))
        text = recipe.read_text().replace("- lab:lcnet_035", f"- {away}")
        recipe.write_text(text)
        bench.tell(f"evaluate.models: {away}")


def opening_pickle(path: Path) -> bytes:
    """Return a pickle that opens a file when it is loaded: code, as far as any reader of it can
    see."""
    return b"cbuiltins\nopen\n(V" + str(path).encode() + b"\ntR."
