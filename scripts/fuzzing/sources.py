"""Kinds of cases about labels that strangers wrote: COCO, YOLO, VOC, tables beside images; earlier
results and gates.

Numbers are those at the ends of every type, columns hold nested values, cells odd words.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fuzzing.answers import change_cells, csv_bytes, odd_parquet
from fuzzing.cases import Bench, Prepared, Step, command
from fuzzing.commands import NAME
from fuzzing.tables import rewrite
from fuzzing.templates import CLASSIFIER, EARLIER, PARQUET, copied
from fuzzing.trees import json_text, mutated, yaml_text
from fuzzing.values import NUMBERS, TEXTS, damaged_bytes, json_fragment, odd_value, yaml_fragment

FOLDER = "source"
_COUNT = 4
_SIDE = 24
_NAMES = ("box", "disk")
_BOX = (2, 3, 10, 8)
_CELLS = ("weather", "source_label", "unit")


def source(bench: Bench) -> Prepared:
    """Write a small folder of images with labels in one of the forms, change them, look at it, and
    build from it."""
    chance = bench.chance
    form = chance.choice([*_FORMS, "table", "coco"])
    folder = bench.folder / FOLDER
    if form != "images in a table":
        _images(folder / ("JPEGImages" if form == "voc" else "images"))
    for name, content in _FORMS[form](bench).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if chance.random() < 0.1:
            how, content = damaged_bytes(content, b"1 2 3\n", chance)
            bench.tell(f"{name}: {how}")
        path.write_bytes(content)
    bench.tell(form)
    steps = [command("init", f"./{FOLDER}", "--out", "recipe.yaml", "--device", "cpu")]
    return Prepared(
        bench.told, [*steps, Step("build", function=_built)] if chance.random() < 0.4 else steps
    )


def _built() -> None:
    """Build from the recipe that `init` wrote, where it wrote one."""
    from counterfoil.building.build_dataset import build

    if Path("recipe.yaml").exists():
        few = ["samples.candidates=2", "generator.batch_size=2"]
        build("./recipe.yaml", "built", overrides=few, device="cpu", workers=1)


def _images(folder: Path) -> None:
    from PIL import Image

    folder.mkdir(parents=True)
    for number in range(_COUNT):
        Image.new("RGB", (_SIDE, _SIDE), (40 * number, 90, 160)).save(folder / f"{number}.png")


def _number(bench: Bench, number: float) -> Any:
    """Return the number, or now and then one of the ends, or no number."""
    draw = bench.chance.random()
    return (
        bench.chance.choice(NUMBERS)
        if draw < 0.06
        else odd_value(bench.chance)
        if draw < 0.08
        else number
    )


def _changed(tree: Any, bench: Bench) -> bytes:
    if bench.chance.random() < 0.5:
        tree, changes = mutated(tree, bench.chance, json_fragment, bench.chance.choice((1, 2)))
        bench.tell(*changes)
    return json_text(tree, False).encode("utf-8", "surrogatepass")


def _coco(bench: Bench) -> dict[str, bytes]:
    annotations = [
        {
            "id": number, "image_id": number, "category_id": _number(bench, number % 2 + 1),
            "iscrowd": _number(bench, 0), "area": _number(bench, 80), "bbox": [_number(bench, side) for side in _BOX],
        }
        for number in range(_COUNT)
    ]  # fmt: skip
    sides = {"width": _number(bench, _SIDE), "height": _number(bench, _SIDE)}
    images = [
        {"id": _number(bench, number), "file_name": f"{number}.png", **sides}
        for number in range(_COUNT)
    ]
    categories = [
        {"id": _number(bench, number + 1), "name": name} for number, name in enumerate(_NAMES)
    ]
    tree = {"images": images, "annotations": annotations, "categories": categories}
    return {"annotations.json": _changed(tree, bench)}


def _yolo(bench: Bench) -> dict[str, bytes]:
    shares = (0.4, 0.4, 0.3, 0.3)
    files = {
        f"labels/{number}.txt": " ".join(
            str(_number(bench, value)) for value in (number % 2, *shares)
        ).encode("utf-8", "surrogatepass")
        for number in range(_COUNT)
    }
    tree: Any = {"train": "images", "nc": _number(bench, 2), "names": dict(enumerate(_NAMES))}
    if bench.chance.random() < 0.5:
        tree, changes = mutated(tree, bench.chance, yaml_fragment, 1)
        bench.tell(*changes)
    return {**files, "data.yaml": yaml_text(tree, bench.chance).encode("utf-8", "surrogatepass")}


def _voc(bench: Bench) -> dict[str, bytes]:
    files = {}
    for number in range(_COUNT):
        corners = dict(zip(("xmin", "ymin", "xmax", "ymax"), (2, 3, 12, 11), strict=True))
        box = "".join(
            f"<{side}>{_number(bench, value)}</{side}>" for side, value in corners.items()
        )
        name = (
            bench.chance.choice(TEXTS)[:2_000]
            if bench.chance.random() < 0.05
            else _NAMES[number % 2]
        )
        size = f"<size><width>{_number(bench, _SIDE)}</width><height>{_SIDE}</height></size>"
        thing = f"<object><name>{name}</name><difficult>{_number(bench, 0)}</difficult><bndbox>{box}</bndbox></object>"
        if bench.chance.random() < 0.05:
            thing = bench.chance.choice(("<a>" * 5_000, "&x;", "<!--", thing * 3_000))
        text = f"<annotation><filename>{number}.png</filename>{size}{thing}</annotation>"
        if bench.chance.random() < 0.05:
            text = (
                f'<!DOCTYPE a [<!ENTITY x "{"y" * 900}"><!ENTITY z'
                f' "{"&x;" * 900}">]>{text.replace(">0<", ">&z;<")}'
            )
        files[f"Annotations/{number}.xml"] = text.encode("utf-8", "surrogatepass")
    return files


def _table(bench: Bench) -> dict[str, bytes]:
    """Write metadata.csv, .jsonl or .parquet beside the images, or one of their form elsewhere."""
    chance = bench.chance
    columns: dict[str, list[Any]] = {
        "file_name": [f"{number}.png" for number in range(_COUNT)],
        "label": [_NAMES[number % 2] for number in range(_COUNT)],
        **{name: [number % 2 for number in range(_COUNT)] for name in chance.sample(_CELLS, 1)},
    }
    how = chance.choice(("csv", "jsonl", "parquet", "parquet"))
    if how == "parquet":
        return {"images/metadata.parquet": odd_parquet(columns, bench)}
    if how == "csv":
        return {"images/metadata.csv": csv_bytes(columns, bench)}
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    change_cells(rows, bench)
    lines = [json_text(dict(zip(columns, row, strict=True)), True) for row in rows]
    return {"images/metadata.jsonl": "\n".join(lines).encode("utf-8", "surrogatepass")}


def _image_table(bench: Bench) -> dict[str, bytes]:
    """Write a Parquet table that holds the images itself, with objects or labels and an unexpected
    column."""
    from PIL import Image

    with io.BytesIO() as file:
        Image.new("RGB", (_SIDE, _SIDE), (200, 90, 40)).save(file, "PNG")
        image = {"bytes": file.getvalue(), "path": None}
    columns: dict[str, list[Any]] = {
        "image": [image] * _COUNT,
        "label": [number % 2 for number in range(_COUNT)],
    }
    if bench.chance.random() < 0.6:
        boxes = [
            {"bbox": [list(map(float, _BOX))], "category": [number % 2]} for number in range(_COUNT)
        ]
        columns["objects"] = boxes
    return {"train.parquet": odd_parquet(columns, bench)}


_FORMS: dict[str, Callable[[Bench], dict[str, bytes]]] = {
    "coco": _coco, "yolo": _yolo, "voc": _voc, "table": _table, "images in a table": _image_table,
}  # fmt: skip

_LINES = ("worse_than(earlier/results.json, any) <= 5", "drop(any) <= 10", "accuracy(base) >= 1")


def earlier(bench: Bench) -> Prepared:
    """Change an earlier evaluation's document, its table or a gate's lines; evaluate by that
    gate."""
    chance = bench.chance
    copied(bench.templates, PARQUET, bench.folder / NAME)
    folder = Path(shutil.copytree(bench.templates[EARLIER], bench.folder / "earlier"))
    lines: list[Any] = [_LINES[0], *chance.sample(_LINES[1:], 1)]
    match chance.choice(("document", "document", "table", "table", "gate")):
        case "document":
            path = folder / "results.json"
            tree, changes = mutated(
                json.loads(path.read_bytes()), chance, json_fragment, chance.choice((1, 1, 2, 3))
            )
            bench.tell("results.json:", *changes)
            path.write_bytes(json_text(tree, False).encode("utf-8", "surrogatepass"))
        case "table":
            bench.tell("predictions.parquet:")
            rewrite(folder / "predictions.parquet", bench)
        case _:
            number = chance.choice((str(chance.choice(NUMBERS)), chance.choice(TEXTS)[:2_000]))
            lines[-1] = chance.choice(
                (f"drop(any) <= {number}", f"drop({number}) <= 3", odd_value(chance))
            )
            lines, changes = (
                mutated(lines, chance, yaml_fragment, 1) if chance.random() < 0.4 else (lines, [])
            )
            bench.tell(f"gate: {str(lines)[:150]}", *changes)
    (bench.folder / "gate.yaml").write_bytes(
        yaml_text(lines, chance).encode("utf-8", "surrogatepass")
    )
    words: Sequence[str] = (
        "evaluate",
        NAME,
        "--models",
        CLASSIFIER,
        "--gate",
        "gate.yaml",
        "--device",
        "cpu",
    )
    return Prepared(bench.told, [command(*words)])
