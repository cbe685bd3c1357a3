"""Write the tables of README and documentation that a command or a measured file makes. None of
them is typed.

    python scripts/write_tables.py                  # those that files make, in a second
    python scripts/write_tables.py --run            # also those that commands make, in minutes
    python scripts/write_tables.py mine contexts    # these

A page has a comment `<!-- write_tables: NAME -->` above each; the block below it, up to an empty
line, is replaced. `tests/scripts/test_write_tables.py` compares the pages with what this script
makes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path

from program import new_parser

ROOT = Path(__file__).parents[1]
LAB = ROOT / "builders" / "counterfoil" / "lab"
PROOFS = ROOT / "scripts"
MARK = re.compile(r"^( *)<!-- write_tables: (\w+) -->$", re.MULTILINE)


def markdown(heads: Sequence[str], rows: Sequence[Sequence[object]], words: int = 1) -> list[str]:
    """Return a table whose first `words` columns are words, the others numbers."""
    rules = [":--"] * words + ["--:"] * (len(heads) - words)
    lines = [
        f"| {' | '.join(map(str, cells))} |".replace("|  |", "| |") for cells in (heads, *rows)
    ]
    return [lines[0], f"|{'|'.join(rules)}|", *lines[1:]]


def cells_below(page: Path, heading: str) -> list[list[str]]:
    """Return the rows of the first table of a page whose head begins so, without its head."""
    lines = page.read_text(encoding="utf-8").partition(f"\n{heading}")[2].splitlines()[2:]
    rows = takewhile(bool, lines)
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def numbers_of(name: str) -> dict:  # type: ignore[type-arg]
    return json.loads((LAB / name / "metrics.json").read_text(encoding="utf-8"))


# ---- From files


def photographs() -> list[str]:
    """Return README's two networks, from the proof's accuracies at severity 4."""
    page = PROOFS / "photographs_proof" / "RESULTS.md"
    at = {}
    for name, *severities in cells_below(page, "| corruption | 1 | 2 | 3 | 4 | 5 |"):
        cell = severities[0 if name == "none" else 3]
        at[name] = [float(part) for part in cell.strip("*").split(",")]
    shown = {
        "Noise": "gaussian_noise",
        "Motion blur": "motion_blur",
        "JPEG": "jpeg_compression",
        "Fog": "fog",
    }
    lines = []
    for index, name in enumerate(("ResNet-20", "the same, adversarially trained")):
        base = at["none"][index]
        drops = [f"{base - at[corruption][index]:.1f}" for corruption in shown.values()]
        lines.append([name, f"{base:.1f} %", *drops])
    return markdown(["Points lost on 600 photographs, severity 4", "Unchanged", *shown], lines)


def gates() -> list[str]:
    """Return how often a gate passes that should, from the simulation's cells."""
    rows = cells_below(
        PROOFS / "RESULTS.md", "| lines | points within the limit | images per class |"
    )
    shares = {(lines, points, images): whole for lines, points, images, _, whole in rows}
    table = []
    for name in dict.fromkeys(lines for lines, *_ in rows):
        gate = name.replace("24 drops, worse_than", "12 drops and 12 comparisons with a model")
        for points, shown in (("5", gate), ("10", "")):
            cells = [shares[name, points, images] for images in ("20", "50", "100", "200")]
            table.append([shown, f"{points} points", *cells])
    heads = ["Gate", "True values within the limits by", "20 images per class", "50", "100", "200"]
    return markdown(heads, table, 2)


def flapping() -> list[str]:
    """Return how often gates of one threshold and of three answers contradict themselves."""
    rows = cells_below(PROOFS / "RESULTS.md", "| points above | images |")
    table = []
    for points, images, failing, flapping, *answers, contradicting in rows:
        answered = " · ".join(answers)
        above = "1 point" if points == "1" else f"{points} points"
        table.append((above, images, failing, flapping, answered, contradicting))
    titles = [
        "True accuracy above the limit by",
        "Images",
        "One threshold: fail",
        "contradicts",
        "Three answers: pass · undecided · fail",
        "contradicts",
    ]
    return markdown(titles, table)


def published() -> list[str]:
    """Return the lines of timm's models on four test sets."""
    from counterfoil.evaluation.tasks.classes.measures.published import COUNTERPARTS, published_line

    names = {"v2": "ImageNetV2", "sketch": "ImageNet-Sketch", "r": "ImageNet-R", "a": "ImageNet-A"}
    rows = []
    for line in map(published_line, COUNTERPARTS):
        numbers = (line.slope, line.r_squared, line.probit_slope, line.probit_r_squared)
        values = [f"{value:.3f}".removeprefix("0") for value in numbers]
        against = "ImageNet" if line.clean == "imagenet" else "ImageNet, the same 200 classes"
        rows.append([names[line.shifted], against, f"{line.models:,}", *values])
    return markdown(
        ["Test set", "Against", "Models", "Slope", "R²", "Probit slope", "Probit R²"], rows, 2
    )


def tokens() -> list[str]:
    """Return base accuracies of the lab's classes by name, by token and on true renders."""
    measured = numbers_of("tokens")
    ways = ("by_name", "by_token", "true_renders")
    by_class = measured["base_accuracy_by_class"]
    mean = measured["base_accuracy_mean"]
    by_what = {name: by_class[name] for name in ("coat", "shirt", "bag", "sneaker")}
    by_what |= {"all ten classes": mean, "error of the drops, points": measured["drop_error_mean"]}
    rows = []
    for what, values in by_what.items():
        rows.append([what, *(f"{values[way]:.1f}" if way in values else "" for way in ways)])
    return markdown(["", "By name", "By token", "True renders"], rows)


LAB_MODELS = """\
Oracle: background, light, colour, style | [oracle: background, light, colour, style] | ≥ 0.97
Oracle: class | [oracle: class] | ≥ 0.88
Oracle: pattern, weather, companion | [oracle: pattern, weather, companion] |
`lab:clip`, zero-shot shift among 23 (one shift in an image) | [clip: zero_shot_shift] | ≥ 0.9
`lab:clip`, zero-shot class | [clip: zero_shot_class] | ≥ 0.8
`lab:sd`, class agreement, raw | [sd: class_agreement] |
`lab:sd`, class agreement, as a share of the oracle's on true renders | [sd: class_agreement_of_oracle] | ≥ 0.9
`lab:sd`, shift agreement: mean of 23, least | [sd: shift_agreement, shift_agreement_least] | ≥ 0.85, ≥ 0.6
`lab:captioner`, right word if there is one: background, light, colour, style | [right: background, light, colour, style] | ≥ 0.9
The same: pattern, weather, companion, class | [right: pattern, weather, companion, class] |
The same, on images by `lab:sd`: background, light, colour, class | [drawn: background, light, colour, class] |
`lab:captioner`, true caption above one with one attribute changed, least of all but class | [above: least] | ≥ 0.95
The same, with another class | [above: class] | ≥ 0.95
Nearest training image of a generated one, RMS levels of 255: median, least | [near .2f: median, least] |
The same for held-out true renders | [near_true .2f: median, least] |
Eight classifiers on `lab:wardrobe` validation, least to most | [accuracies: least] to [accuracies: most] | 0.15 apart
`lab:rtdetr_boxes` on `lab:wardrobe-boxes` validation: AP, AP50 | [boxes: validation_ap, validation_ap50] | AP50 ≥ 0.6
`lab:upernet_masks` on `lab:wardrobe-masks` validation: mIoU, pixel accuracy | [masks: validation_miou, validation_pixel_accuracy] | mIoU ≥ 0.6
Mean of the eight on the base, prompted by `lab:tokens` | [base: by_token] | [base: true_renders], on true renders
The same, prompted by class name | [base: by_name] |
Error of the drop of `wardrobe-mini`, points, by token and by name | [drop .1f: by_token, by_name] |
"""  # noqa: E501


def lab_models() -> list[str]:
    """Return how good the lab's models are, beside the aims that were set before they were
    trained."""
    sd, captioner = (numbers_of(f"weights/{name}") for name in ("sd", "captioner"))
    common = captioner["every_value_common"]
    above = common["true_above_changed"]
    measured = numbers_of("tokens")
    folders = [path.parent for path in (LAB / "weights").glob("*/metrics.json")]
    named = (
        numbers_of(f"weights/{folder.name}").get("wardrobe_validation_accuracy")
        for folder in folders
    )
    accuracies = [value for value in named if value is not None]
    numbers = {
        "oracle": numbers_of("weights/oracle")["heldout_accuracy"],
        "clip": numbers_of("weights/clip"),
        "sd": sd,
        "right": common["told_right"],
        "drawn": captioner["drawn_by_lab_sd"]["told_as_prompted"],
        "above": {**above, "least": min(above[name] for name in above if name != "class")},
        "near": sd["nearest_training_image"],
        "near_true": sd["nearest_training_image_of_heldout_renders"],
        "accuracies": {"least": min(accuracies), "most": max(accuracies)},
        "boxes": numbers_of("weights/rtdetr_boxes"),
        "masks": numbers_of("weights/upernet_masks"),
        "base": {way: mean / 100 for way, mean in measured["base_accuracy_mean"].items()},
        "drop": measured["drop_error_mean"],
    }

    def shown(hole: re.Match[str]) -> str:
        values = [numbers[hole[1]][name] for name in hole[3].split(", ")]
        return ", ".join(format(value, hole[2] or ".3f") for value in values)

    text = re.sub(r"\[(\w+)(?: (\S+))?: ([^]]+)\]", shown, LAB_MODELS)
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
    return markdown(["What", "Measured", "Aim"], rows)


def generator() -> list[str]:
    """Return the lab's generator, prompt by prompt."""
    rows = []
    for name, measured in sorted(numbers_of("weights/sd")["by_shift"].items()):
        keys = ("class", "oracle_class", "class_of_oracle", "shift")
        cells = [f"{measured[key]:.2f}" if key in measured else "–" for key in keys]
        rows.append([f"`{name}`", *cells])
    heads = ["Prompt", "Class agreement", "Oracle on true renders", "Ratio", "Shift agreement"]
    return markdown(heads, rows)


# ---- From commands


def command(folder: Path, *words: str) -> str:
    """Run a command of this checkout in a folder; return what it prints."""
    program = "from counterfoil.cli.entry import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "builders"), "COLUMNS": "160"},
    )
    if done.returncode:
        raise SystemExit(f"counterfoil {' '.join(words)}\n{done.stderr}")
    return done.stdout


def printed(text: str, without: Sequence[str] = ()) -> list[list[str]]:
    """Return the cells of the one-line rows of the first table that a command printed, its head
    first."""
    lines = text.splitlines()
    rule = next(at for at, line in enumerate(lines) if line.strip().startswith("──"))
    below = takewhile(str.strip, lines[rule + 1 :])
    rows = [re.split(r"\s{2,}", line.strip()) for line in (lines[rule - 1], *below)]
    kept = [at for at, head in enumerate(rows[0]) if head not in without]
    return [[row[at] for at in kept] for row in rows]


def findings(folder: Path, recipe: str, *words: str) -> list[str]:
    """Return the findings of `mine` as its terminal shows them, without two columns, and the count
    of hypotheses."""
    text = command(folder, "mine", recipe, "--target", "lab:resnet10t", *words, "--out", "mined")
    rows = printed(text, ("more (points)", "p"))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = []
    for name, *cells in rows:
        numbers = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        lines.append(f" {'  '.join([name.ljust(widths[0]), *numbers])}")
    [tried] = re.findall(r"^(\d+ of \d+ hypotheses confirmed.*?images)", text, re.MULTILINE)
    return ["```text", *(line.rstrip() for line in lines), tried, "```"]


def mine(folder: Path) -> list[str]:
    return findings(folder, "wardrobe-star", "--on", "audit")


def contexts(folder: Path) -> list[str]:
    return findings(folder, "wardrobe-contexts")


def wardrobe_mini(folder: Path) -> list[str]:
    """Return the bundled demo: yields, drops and slopes of its shifts."""
    document = json.loads(command(folder, "demo", "--out", "demo", "--json"))
    measured = {
        (row["measure"], row.get("group")): row for row in document["rows"] if not row.get("model")
    }
    rows: list[list[object]] = []
    for group in document["groups"]:
        accepted = f"{group['accepted'] / group['candidates']:.1%}".replace("%", " %")
        counts = [group["candidates"], group["accepted"], accepted, group["classes"]]
        impact, slope = (measured.get((name, group["name"])) for name in ("impact", "slope"))
        numbers = ["–"] * 3
        if impact and slope:
            drop = [f"{100 * impact[end]:.1f}" for end in ("value", "low", "high")]
            line = [f"{slope[end]:.2f}" for end in ("value", "low", "high")]
            numbers = [drop[0], f"{drop[1]} to {drop[2]}", f"{line[0]} ({line[1]} to {line[2]})"]
        rows.append([f"`{group['name']}`", *counts, *numbers])
    heads = [
        "Shift",
        "Candidates",
        "Accepted",
        "Yield",
        "Classes scored",
        "Drop, points",
        "95 % interval",
        "Slope (95 %)",
    ]
    return markdown(heads, rows)


def own_photos(folder: Path) -> list[str]:
    """Return the terminal's table of a small model on 20 images of each of ten classes, of two of
    the shifts."""
    shutil.copytree(LAB / "weights" / "resnet14t", folder / "my-model")
    words = ("build", "wardrobe-corrupt", "--out", "photos", "--workers", "1")
    command(folder, *words, "--set", "samples.candidates=20")
    text = command(folder, "evaluate", "photos", "--models", "local-dir:my-model", "--no-reference")
    lines = text.splitlines()
    [head] = [at for at, line in enumerate(lines) if line.strip().startswith("shift ")]
    kept = [lines[head]]
    shown = False
    for line in takewhile(str.strip, lines[head + 2 :]):
        if line[1] != " ":
            shown = line.split()[0] in ("base", "fog", "occlusion")
        if shown:
            kept.append(line)
    return ["```text", *(line.rstrip() for line in kept), "```"]


FROM_FILES: dict[str, Callable[[], list[str]]] = {
    maker.__name__: maker
    for maker in (photographs, gates, flapping, published, tokens, lab_models, generator)
}
FROM_COMMANDS: dict[str, Callable[[Path], list[str]]] = {
    maker.__name__: maker for maker in (mine, contexts, wardrobe_mini, own_photos)
}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def made_anew(name: str) -> list[str]:
    """Return the lines of a table, made anew."""
    if name in FROM_FILES:
        return FROM_FILES[name]()
    with tempfile.TemporaryDirectory() as folder:
        return FROM_COMMANDS[name](Path(folder))


def tables() -> dict[str, tuple[Path, list[str]]]:
    """Return the marked tables of all pages: name → page and lines, without indent."""
    measured = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in MARK.finditer(text):
            indent = match[1]
            lines = text[match.end() + 1 :].lstrip("\n").splitlines()
            block = takewhile(bool, lines)
            measured[match[2]] = page, [line.removeprefix(indent) for line in block]
    return measured


def write(name: str, lines: Sequence[str]) -> None:
    """Put a table in place of the one below its mark."""
    page, old = tables()[name]
    text = page.read_text(encoding="utf-8")
    [mark] = [match for match in MARK.finditer(text) if match[2] == name]
    before = text[: mark.end()]
    after = text[mark.end() :]
    block, new = ("\n".join(mark[1] + line for line in each) for each in (old, lines))
    page.write_text(before + after.replace(block, new, 1), encoding="utf-8")


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument(
        "names", nargs="*", choices=[*FROM_FILES, *FROM_COMMANDS, []], metavar="NAME"
    )
    parser.add_argument("--run", action="store_true", help="also those that commands make")
    given = parser.parse_args()
    for name in given.names or [*FROM_FILES, *(FROM_COMMANDS if given.run else ())]:
        write(name, made_anew(name))
        print(name, tables()[name][0].relative_to(ROOT))


if __name__ == "__main__":
    main()
