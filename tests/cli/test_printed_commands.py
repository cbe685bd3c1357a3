"""The shell blocks of README and documentation: what can run here runs as it is printed, and the
rest is a command.

A page's lines run in its order, in a folder that holds what the page takes for granted. Only the
bundled recipes are smaller than those that ship: two classes, few images, few steps. A line of a
new block runs too, unless `NOT_HERE` says why it cannot.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import shlex
import shutil
import signal
import sys
import threading
import urllib.request
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from PIL import Image
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

import counterfoil
from colour_kinds import NAMES, save_colour_transformer
from counterfoil.cli.main import app, main
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.evaluation.gate import UNDECIDED
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.world import render
from counterfoil.recipe import layering
from counterfoil.store.decoding import rgb_image
from lab_training.corpora import unbiased_scene
from support.boxes import coco_folder
from support.colour_detector import ColourDetector
from support.fixed_graph import save_fixed_graph
from support.images import encoded
from support.labelled_patches import colour_classifier, patches_folder
from support.masks import ColourSegmenter, mask_folder

ROOT = Path(__file__).parents[2]
PAGES = {
    path.relative_to(ROOT).as_posix(): path
    for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))
}
HOW_TO = "docs/how-to/"
EXPLANATION = "docs/explanation/"

# What a page's folder holds beforehand; `name=other` is a copy of `other` in `stock`.
BEFORE = {
    "README.md": "photos my-model my-vit",
    f"{EXPLANATION}how-it-works.md": "wardrobe-mini",
    f"{HOW_TO}compare-models.md": "wardrobe-mini my-model new-model=other-model mended/model=other-model",
    f"{HOW_TO}compare-answers.md": "new.csv old.csv predictions.parquet",
    f"{HOW_TO}corruptions.md": "photos photos-star=wardrobe-mini my-model",
    f"{HOW_TO}detectors.md": "streets detector.onnx=detector/model.onnx",
    f"{HOW_TO}draw-scenes.md": "photos photos-star=wardrobe-mini wardrobe-mini my-model",
    f"{HOW_TO}drawn-elsewhere.md": "photos drawn my-model",
    f"{HOW_TO}evaluate.md": "photos weather wardrobe-mini my-model",
    f"{HOW_TO}look-at-failures.md": "wardrobe-mini",
    f"{HOW_TO}mend.md": "photos my-model",
    f"{HOW_TO}mine.md": "photos recipe.yaml my-model answers.csv",
    f"{HOW_TO}own-generator.md": "photos drawn.yaml",
    f"{HOW_TO}own-photos.md": "photos my-model",
    f"{HOW_TO}publish.md": "wardrobe-mini",
    f"{HOW_TO}real-images.md": "photos pool=photos retrieve.yaml",
    f"{HOW_TO}screen.md": "photos-star=wardrobe-mini",
    f"{HOW_TO}segmentation.md": "roads",
    f"{HOW_TO}several-labels.md": "faces",
}
# Files that hold a block of the page: the one with these words.
BLOCKS = {
    f"{HOW_TO}corruptions.md": {
        "recipe.yaml": "name: photos-corrupt",
        "match.yaml": "name: photos-matched",
    },
    f"{HOW_TO}draw-scenes.md": {"cut.yaml": "in_the_snow: {threshold"},
    f"{HOW_TO}drawn-elsewhere.md": {"elsewhere.yaml": "name: drawn-elsewhere"},
    f"{HOW_TO}own-generator.md": {"my-flux.yaml": "name: my-flux"},
    f"{HOW_TO}several-labels.md": {"faces.yaml": "name: faces-corrupt"},
}
# Lines that hold these words do not run here, and why.
NOT_HERE = {
    "pip install": "installs packages",
    "bash scripts/": "makes an environment and installs packages",
    "python scripts/prove_": "loads every library for seconds; tests/scripts imports it",
    "build dry.yaml": "draws 28 images of 64 pixels; test_first_hour.py builds such a recipe",
    "bash .gpu/run.sh": "needs what another script packed",
    "source ": "is of an environment",
    "-m venv": "makes an environment",
    "pip wheel": "fetches what builds a wheel",
    "USER/": "needs a repository on the Hub",
    "-judged": "needs the weights of two judges",
    "chat:": "needs a chat model on a server",
    "onnx:new-model": "stands for a network that the reader exported",
    "build drawn.yaml --out photos-star": "needs a GPU and the weights of Stable Diffusion 2",
    "stable-diffusion-v1-5/": "needs a GPU and the weights of Stable Diffusion 1.5",
    " RECIPE ": "stands for a recipe and machines of the reader's",
    "evaluate DIR": "stands for a dataset and a GPU of the reader's",
    "transformers:./my-detector": "stands for detectors of the reader's own",
    "transformers:./my-segmenter": "stands for a segmenter of the reader's own",
    "ray start": "starts a cluster",
    "sbatch": "needs Slurm",
    "imagenet-c-5k": "needs ImageNet's images, which are gated",
    "--class-order": "stands for models of the reader's own classes",
    "python:mypackage": "stands for code of the reader's own",
    "--report-to": "sends to trackers, which are extras",
}
# Pages whose lines run elsewhere.
ELSEWHERE = {
    "docs/index.md": "own-photos.md has its lines",
    f"{HOW_TO}continuous-integration.md": "test_continuous_integration.py runs them in processes",
}
# Pages that take more than a few seconds.
WHOLE = {
    f"{HOW_TO}compare-models.md",
    f"{HOW_TO}draw-scenes.md",
    f"{HOW_TO}edit-photos.md",
    f"{HOW_TO}mend.md",
    f"{HOW_TO}mine.md",
    f"{HOW_TO}preprocessing.md",
    f"{HOW_TO}real-images.md",
    f"{HOW_TO}segmentation.md",
}

FACES = ("smiling", "glasses", "hat")
# Laid over the bundled recipes, and so over those that extend them.
CLASSES: list[dict[str, Any]] = [
    {"id": "05", "name": "sandal", "source_label": 5},
    {"id": "07", "name": "sneaker", "source_label": 7},
]
FEW: dict[str, Any] = {
    "source": {"classes": CLASSES},
    "samples": {"candidates": 4},
    "evaluate": {"models": ["lab:resnet10t"], "min_images_per_class": 1},
}
SMALLER: dict[str, dict[str, Any]] = {
    "wardrobe-mini": FEW
    | {
        # Nothing is learned: distances are those to 300 images, not to 1,600.
        "source": {"classes": CLASSES, "train_split": "validation"},
        "generator": {"steps": 1, "batch_size": 4, "size": 32},
        "prompts": {"shifts": {"in_the_grass": None, "red": None, "pencil_sketch": None}},
        "screen": {"object_threshold": -1, "shift_threshold": -1, "judge": None},
    },
    # What is mined has to fail as it does at full size, or nothing is confirmed and no recipe is
    # written.
    "wardrobe-star": FEW | {"generator": {"steps": 4, "batch_size": 4}, "mine": {"train_rows": 100}},
    "wardrobe-contexts": {"samples": {"candidates": 4}, "mine": {"settings": {"at_most_images": 4}}},
    "wardrobe-bugs": {
        "screen": {"object_threshold": 0.2},
        "mine": {
            "fdr": 0.9,
            "margin": 0,
            "settings": {
                "baseline": 12, "fewest_failures": 1, "clusters": 1, "captions": 2, "described": 2, "batch": 4,
                "pairs": 8, "estimate_pairs": 8, "adversarial": 4,
            },
        },
    },
    "wardrobe-corrupt": FEW,
    # what classifiers learn from is not edited
    "wardrobe-edited": {"source": {"train_split": "train"}},
    "wardrobe-severity": {
        "extends": "wardrobe-mini",
        "samples": {"candidates": 2},
        "prompts": {"shifts": {"at_night": {"severity": {"levels": [0.5, 1]}}}},
    },
    "wardrobe-masks": {"samples": {"candidates": 4}},
    "wardrobe-retrieved": {"generator": {"split": "validation", "size": None}},
}  # fmt: skip


def blocks(page: str) -> list[tuple[str, str]]:
    """Return the language and text of each fenced block."""
    text = PAGES[page].read_text(encoding="utf-8")
    return re.findall(r"^ *```([^\n]*)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)


def lines(page: str) -> list[str]:
    """Return what a reader types of a page's shell blocks, without the output that a session
    shows."""
    commands: list[str] = []
    for language, block in blocks(page):
        typed = [line.strip() for line in re.sub(r"\\\n\s*", "", block).splitlines()]
        if language == "console":
            commands += [line.removeprefix("$ ") for line in typed if line.startswith("$ ")]
        elif language == "bash":
            commands += [line for line in typed if line and not line.startswith("#")]
        elif language == "yaml" and "\njobs:" in block:
            # `test_continuous_integration.py` runs the steps of several lines.
            for job in yaml.safe_load(block)["jobs"].values():
                typed = [step.get("run", "\n") for step in job["steps"]]
                commands += [line for line in typed if "\n" not in line]
    return commands


def runs_here(line: str) -> bool:
    return not any(words in line for words in NOT_HERE)


@pytest.mark.parametrize("page", PAGES)
def test_no_shell_block_is_overlooked(page: str) -> None:
    text = PAGES[page].read_text(encoding="utf-8")
    assert {language for language, _ in blocks(page)} <= {
        "console",
        "bash",
        "python",
        "yaml",
        "toml",
        "json",
        "text",
    }
    assert "~~~" not in text and len(re.findall(r"^ *```", text, re.MULTILINE)) == 2 * len(
        blocks(page)
    )
    sessions = "".join(block for language, block in blocks(page) if language == "console")
    assert re.findall(r"^ *\$ .*", text, re.MULTILINE) == re.findall(
        r"^ *\$ .*", sessions, re.MULTILINE
    )


def test_what_is_said_of_pages_and_lines_is_of_some() -> None:
    every = [line for page in PAGES for line in lines(page)]
    assert not [
        words for words in (*NOT_HERE, *BY_HAND) if not any(words in line for line in every)
    ]
    assert set(filter(runs_here, lines("docs/index.md"))) <= {*lines(f"{HOW_TO}own-photos.md")}
    assert {*BEFORE, *BLOCKS, *WHOLE, *ELSEWHERE} <= {
        page for page in PAGES if any(map(runs_here, lines(page)))
    }


@pytest.mark.parametrize(
    "line",
    sorted(
        {line for page in PAGES for line in lines(page) if page in WHOLE or not runs_here(line)}
    ),
)
def test_a_line_that_does_not_run_here_is_a_command(line: str) -> None:
    """Its name, options and values pass the parser of the command line; a script that it names
    exists."""
    scripts = re.findall(r"\b(?:bash|python) (scripts/\S+)", line)
    assert all((ROOT / script).is_file() for script in scripts)
    for written in re.findall(
        r"\bcounterfoil [^'>]*", line.replace("$((SLURM_ARRAY_TASK_ID + 1))", "1")
    ):
        _, name, *arguments = shlex.split(written, comments=True)
        group = get_command(app)
        assert isinstance(group, TyperGroup)
        command = group.commands.get(name)
        assert command is not None, f"no command {name!r}"
        try:
            command.make_context(name, arguments).close()
        except TyperException as error:
            raise AssertionError(f"{line}: {error}") from error


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Write what pages take for granted, by name (read only), and make the bundled recipes smaller
    meanwhile."""
    folder = tmp_path_factory.mktemp("printed")
    bundled = layering.bundled_folder()
    shutil.copytree(bundled, folder / "recipes")
    for name, layer in SMALLER.items():
        recipe = {"extends": str(bundled / f"{name}.yaml")} | layer
        (folder / "recipes" / f"{name}.yaml").write_text(yaml.safe_dump(recipe))
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layering, "bundled_folder", lambda: folder / "recipes")
        # one core: a build starts no process
        patch.setattr(os, "sched_getaffinity", lambda process: {0})
        _models(folder)
        _photos(folder)
        _drawn(folder / "drawn")
        coco_folder(folder / "streets")
        mask_folder(folder / "roads", 12, "validation")
        boxes = np.random.default_rng(0).uniform(10, 54, (1, 7, 84)).astype(np.float32)
        boxes[:, 4:] /= 64
        save_fixed_graph(
            folder / "detector", {"output0": boxes}, dict(enumerate(("cat", "dog", "bus")))
        )
        patches_folder(folder / "faces" / "validation", names=FACES)
        with contextlib.chdir(folder):
            _recipes()
            run("counterfoil build wardrobe-mini --out wardrobe-mini")
            run("counterfoil evaluate source:validation --recipe recipe.yaml --write-keys keys.csv")
            answer_elsewhere()
            _answer_files()
        yield folder


def _answer_files() -> None:
    """Write what `compare` reads: two files of answers, and a table of both models."""
    rng = np.random.default_rng(0)
    right = rng.random((2, 60)) < 0.8
    table = {"image": [*range(60)], "patient": [image // 2 for image in range(60)]}
    for name, answers in zip(("new", "old"), right.tolist(), strict=True):
        pa.csv.write_csv(pa.table(table | {"correct": answers}), f"{name}.csv")
    both = {"right.lab:resnet14t": right[0], "right.lab:resnet10t": right[1]}
    pq.write_table(pa.table({"key": table["image"]} | both), "predictions.parquet")


def _models(folder: Path) -> None:
    weights = Path(counterfoil.__file__).parent / "lab/weights"
    shutil.copytree(weights / "resnet10t", folder / "my-model")
    shutil.copytree(weights / "resnet14t", folder / "other-model")
    save_colour_transformer(folder / "my-vit", names=(*NAMES, *(cls["name"] for cls in CLASSES)))


def _photos(folder: Path) -> None:
    """Write photographs in a folder for each split and class, and in one table with a column of the
    weather."""
    table: dict[str, list[Any]] = {"image": [], "label": [], "weather": []}
    for split in ("train", "validation"):
        for number in range(12):
            label = number % 2
            image = encoded(
                render(wardrobe_scene(split, 10 * number + CLASSES[label]["source_label"]))
            )
            path = folder / "photos" / split / CLASSES[label]["name"] / f"{number:03d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(image)
            for name, value in zip(
                table, ({"bytes": image}, label, ("clear", "fog")[number // 2 % 2]), strict=True
            ):
                table[name].append(value)
    names = datasets.ClassLabel(names=[cls["name"] for cls in CLASSES])
    features = datasets.Features(
        image=datasets.Image(), label=names, weather=datasets.Value("string")
    )
    (folder / "weather").mkdir()
    datasets.Dataset.from_dict(table, features).to_parquet(str(folder / "weather" / "all.parquet"))


def _drawn(folder: Path) -> None:
    """Write images of a renderer with a table of them; a scene and its shifts have one seed."""
    lines = ["image,label,shift,prompt,seed\n"]
    for shift in ("base", "in_the_snow", "at_night"):
        for seed in range(8):
            for cls in CLASSES:
                path = folder / shift / f"{cls['name']}_{seed}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                scene = unbiased_scene(10 * seed + cls["source_label"])
                path.write_bytes(encoded(render(scene.shifted(shift))))
                prompt = f"a {cls['name']}, {shift}"
                lines.append(
                    f'{path.relative_to(folder)},{cls["name"]},{shift},"{prompt}",{seed}\n'
                )
    (folder / "drawn.csv").write_text("".join(lines))


def _recipes() -> None:
    run("counterfoil init ./photos --device cpu")
    source = {"dataset": "./photos", "classes": [cls["name"] for cls in CLASSES]}
    learned = {"extends": "wardrobe-mini", "tokens": {"path": None, "learn": {"steps": 2}}}
    retrieved = {
        "extends": "wardrobe-retrieved",
        "generator": {"dataset": "./pool", "split": "train"},
    }
    for name, layer in {"drawn": learned, "retrieve": retrieved}.items():
        few = {"name": name, "source": source, "samples": {"candidates": 2}}
        Path(f"{name}.yaml").write_text(yaml.safe_dump(layer | few))


def answer_elsewhere() -> None:
    """Write answers.csv to keys.csv as another program does: every fifth answer is a sneaker."""
    with Path("keys.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    answers = [
        f"{row['key']},{row['label'] if at % 5 else 'sneaker'}\n" for at, row in enumerate(rows)
    ]
    Path("answers.csv").write_text("".join(["key,label\n", *answers]))


def score_elsewhere() -> None:
    """Write answers.csv to the images of faces-corrupt as another program does: a column of scores
    for each label."""
    lines = [f"key,{','.join(FACES)}"]
    for key, content in open_dataset("faces-corrupt").images():
        pixels = np.asarray(rgb_image(content or b""), np.float32).transpose(2, 0, 1) / 255
        lines.append(f"{key},{','.join(map(str, colour_classifier(pixels[None])[0]))}")
    Path("answers.csv").write_text("\n".join(lines) + "\n")


def detect_elsewhere() -> None:
    """Write answers.parquet to the images of streets-corrupt as another program does, with
    Ultralytics' corners."""
    detector = ColourDetector()
    rows = []
    for key, content in open_dataset("streets-corrupt").images():
        (answer,) = detector([Image.open(io.BytesIO(content or b""))])
        for box, score, label in zip(
            answer["boxes"], answer["scores"], answer["labels"], strict=True
        ):
            corners = dict(zip(("x1", "y1", "x2", "y2"), box.tolist(), strict=True))
            rows.append(
                {
                    "key": key,
                    "name": detector.label_names[label],
                    "confidence": float(score),
                    **corners,
                }
            )
    datasets.Dataset.from_list(rows).to_parquet("answers.parquet")


def segment_elsewhere() -> None:
    """Write a mask to each image of roads-corrupt as another program does."""
    Path("answers").mkdir()
    for key, content in open_dataset("roads-corrupt").images():
        (answer,) = ColourSegmenter()([rgb_image(content or b"")])
        Image.fromarray(answer.astype(np.uint8)).save(f"answers/{key}.png")


def select_everything() -> None:
    """Write what two people download from the page of a review after selecting all images."""
    page = next(Path("photos-cut").glob("**/review.html")).read_text()
    data = json.loads(
        page.partition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    )
    grids = [{name: grid[name] for name in ("task", "label", "shown")} for grid in data["grids"]]
    answers = {name: data[name] for name in ("form", "version", "content", "sheet")}
    answers["grids"] = [grid | {"selected": grid["shown"]} for grid in grids]
    for number, name in enumerate(("anna", "ben")):
        Path(f"{name}.json").write_text(
            json.dumps(answers | {"token": f"{number:016x}", "rater": name})
        )


def name_no_steps() -> None:
    """Remove from drawn.yaml the few steps of learning, which a recipe of learned tokens does not
    name."""
    recipe = yaml.safe_load(Path("drawn.yaml").read_text())
    Path("drawn.yaml").write_text(yaml.safe_dump(recipe | {"tokens": None}))


# What happens after a line that holds these words.
BY_HAND = {
    "--write-keys keys.csv": answer_elsewhere,
    "build streets.yaml": detect_elsewhere,
    "build faces.yaml": score_elsewhere,
    "build roads.yaml": segment_elsewhere,
    "review photos-cut --open": select_everything,
    "tokens drawn.yaml": name_no_steps,
}


def visited(address: str) -> bool:
    """Visit a served page as a browser does, then send Ctrl-C."""

    def look() -> None:
        try:
            urllib.request.urlopen(address).close()
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    if address.startswith("http"):
        threading.Thread(target=look).start()
    return True


def run(line: str) -> None:
    """Run a line; its exit code is 0, or that of a gate that so few images leave undecided."""
    words = shlex.split(line, comments=True)
    into = None
    if ">" in words[-2:-1]:
        *words, _, into = words
    out = io.StringIO()
    err = io.StringIO()
    code: Any = 0
    assert words[0] == "counterfoil", line
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(sys, "argv", words)
        try:
            main()
        except SystemExit as end:
            code = end.code
    assert code in (0, None, *([UNDECIDED] if "--gate" in words else [])), (
        f"{line}\n{out.getvalue()}{err.getvalue()}"
    )
    if into is not None:
        Path(into).write_text(out.getvalue())


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.whole] if page in WHOLE else [])
        for page in PAGES
        if page not in ELSEWHERE and any(map(runs_here, lines(page)))
    ],
)
def test_the_commands_of_a_page_run_as_they_are_printed(
    page: str, stock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run the commands of a page. Lines of pages that run only before a release are parsed by
    `test_a_line_that_does_not_run_here_is_a_command`; `test_first_hour.py` runs the steps of
    draw-scenes.md."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BROWSER", "true")
    monkeypatch.setattr(webbrowser, "open", visited)
    for entry in BEFORE.get(page, "").split():
        name, _, other = entry.partition("=")
        copy = tmp_path / name
        source = stock / (other or name)
        copy.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, copy)
        else:
            shutil.copy(source, copy)
    for name, words in BLOCKS.get(page, {}).items():
        (tmp_path / name).write_text(next(text for _, text in blocks(page) if words in text))
    for line in filter(runs_here, lines(page)):
        run(line)
        for words, step in BY_HAND.items():
            if words in line:
                step()
