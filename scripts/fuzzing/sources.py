"""Kinds of cases about labels that strangers wrote: COCO, YOLO, VOC, tables beside images; earlier
results and gates.

Numbers are those at the ends of every type, columns hold nested values, cells odd words.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuzzing.answers import Columns, change_cells, csv_bytes, odd_parquet, rows_of
from fuzzing.cases import NAME, Bench, Prepared, Step, command
from fuzzing.tables import rewrite
from fuzzing.templates import CLASSIFIER, EARLIER, PARQUET
from fuzzing.trees import json_text, mutated, yaml_text
from fuzzing.values import NUMBERS, TEXTS, as_bytes, json_fragment, odd_value, yaml_fragment

FOLDER = "source"
_COUNT = 4
_SIDE = 24
_NAMES = ("box", "disk")
_BOX = (2, 3, 10, 8)
_CORNERS = {"xmin": 2, "ymin": 3, "xmax": 12, "ymax": 11}
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
            content = bench.damage(content, b"1 2 3\n", f"{name}: ")
        path.write_bytes(content)
    bench.tell(form)
    steps = [command("init", f"./{FOLDER}", "--out", "recipe.yaml", "--device", "cpu")]
    if chance.random() < 0.4:
        steps.append(Step("build", function=_built))
    return bench.prepared(*steps)


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
    if draw < 0.06:
        return bench.chance.choice(NUMBERS)
    return odd_value(bench.chance) if draw < 0.08 else number


def _changed(tree: Any, bench: Bench) -> bytes:
    if bench.chance.random() < 0.5:
        tree = bench.mutate(tree, json_fragment, 1, 2)
    return as_bytes(json_text(tree))


def _coco(bench: Bench) -> dict[str, bytes]:
    annotations = [
        {
            "id": number,
            "image_id": number,
            "category_id": _number(bench, number % 2 + 1),
            "iscrowd": _number(bench, 0),
            "area": _number(bench, 80),
            "bbox": [_number(bench, side) for side in _BOX],
        }
        for number in range(_COUNT)
    ]
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
    files = {}
    for number in range(_COUNT):
        words = [str(_number(bench, value)) for value in (number % 2, *shares)]
        files[f"labels/{number}.txt"] = as_bytes(" ".join(words))
    tree: Any = {"train": "images", "nc": _number(bench, 2), "names": dict(enumerate(_NAMES))}
    if bench.chance.random() < 0.5:
        tree, changes = mutated(tree, bench.chance, yaml_fragment, 1)
        bench.tell(*changes)
    return {**files, "data.yaml": as_bytes(yaml_text(tree, bench.chance))}


def _voc(bench: Bench) -> dict[str, bytes]:
    files = {}
    for number in range(_COUNT):
        box = "".join(
            f"<{side}>{_number(bench, value)}</{side}>" for side, value in _CORNERS.items()
        )
        name = _NAMES[number % 2]
        if bench.chance.random() < 0.05:
            name = bench.chance.choice(TEXTS)[:2_000]
        size = f"<size><width>{_number(bench, _SIDE)}</width><height>{_SIDE}</height></size>"
        thing = f"<object><name>{name}</name><difficult>{_number(bench, 0)}</difficult><bndbox>{box}</bndbox></object>"
        if bench.chance.random() < 0.05:
            thing = bench.chance.choice(("<a>" * 5_000, "&x;", "<!--", thing * 3_000))
        text = f"<annotation><filename>{number}.png</filename>{size}{thing}</annotation>"
        if bench.chance.random() < 0.05:
            entities = f'<!ENTITY x "{"y" * 900}"><!ENTITY z "{"&x;" * 900}">'
            text = f"<!DOCTYPE a [{entities}]>{text.replace('>0<', '>&z;<')}"
        files[f"Annotations/{number}.xml"] = as_bytes(text)
    return files


def _table(bench: Bench) -> dict[str, bytes]:
    """Write metadata.csv, .jsonl or .parquet beside the images, or one of their form elsewhere."""
    chance = bench.chance
    columns: Columns = {
        "file_name": [f"{number}.png" for number in range(_COUNT)],
        "label": [_NAMES[number % 2] for number in range(_COUNT)],
    }
    [cell] = chance.sample(_CELLS, 1)
    columns[cell] = [number % 2 for number in range(_COUNT)]
    how = chance.choice(("csv", "jsonl", "parquet", "parquet"))
    if how == "parquet":
        return {"images/metadata.parquet": odd_parquet(columns, bench)}
    if how == "csv":
        return {"images/metadata.csv": csv_bytes(columns, bench)}
    rows = rows_of(columns)
    change_cells(rows, bench)
    lines = [json_text(dict(zip(columns, row, strict=True)), canonical=True) for row in rows]
    return {"images/metadata.jsonl": as_bytes("\n".join(lines))}


def _image_table(bench: Bench) -> dict[str, bytes]:
    """Write a Parquet table that holds the images itself, with objects or labels and an unexpected
    column."""
    from PIL import Image

    with io.BytesIO() as file:
        Image.new("RGB", (_SIDE, _SIDE), (200, 90, 40)).save(file, "PNG")
        image = {"bytes": file.getvalue(), "path": None}
    columns: Columns = {
        "image": [image] * _COUNT,
        "label": [number % 2 for number in range(_COUNT)],
    }
    if bench.chance.random() < 0.6:
        box = [list(map(float, _BOX))]
        columns["objects"] = [{"bbox": box, "category": [n % 2]} for n in range(_COUNT)]
    return {"train.parquet": odd_parquet(columns, bench)}


_FORMS: dict[str, Callable[[Bench], dict[str, bytes]]] = {
    "coco": _coco,
    "yolo": _yolo,
    "voc": _voc,
    "table": _table,
    "images in a table": _image_table,
}

_LINES = ("worse_than(earlier/results.json, any) <= 5", "drop(any) <= 10", "accuracy(base) >= 1")


def earlier(bench: Bench) -> Prepared:
    """Change an earlier evaluation's document, its table or a gate's lines; evaluate by that
    gate."""
    chance = bench.chance
    bench.copy(PARQUET)
    folder = Path(shutil.copytree(bench.templates[EARLIER], bench.folder / "earlier"))
    lines: list[Any] = [_LINES[0], *chance.sample(_LINES[1:], 1)]
    match chance.choice(("document", "document", "table", "table", "gate")):
        case "document":
            path = folder / "results.json"
            bench.tell("results.json:")
            tree = bench.mutate(json.loads(path.read_bytes()), json_fragment, 1, 1, 2, 3)
            path.write_bytes(as_bytes(json_text(tree)))
        case "table":
            bench.tell("predictions.parquet:")
            rewrite(folder / "predictions.parquet", bench)
        case _:
            number = chance.choice((str(chance.choice(NUMBERS)), chance.choice(TEXTS)[:2_000]))
            odd = odd_value(chance)
            lines[-1] = chance.choice((f"drop(any) <= {number}", f"drop({number}) <= 3", odd))
            changes: list[str] = []
            if chance.random() < 0.4:
                lines, changes = mutated(lines, chance, yaml_fragment, 1)
            bench.tell(f"gate: {str(lines)[:150]}", *changes)
    bench.write("gate.yaml", yaml_text(lines, chance))
    words = ("evaluate", NAME, "--models", CLASSIFIER, "--gate", "gate.yaml", "--device", "cpu")
    return bench.prepared(command(*words))
