"""Write the pictures of photographs in the documentation: what a build makes of those in
docs/images/photographs.

    python scripts/write_pictures.py

`photographs.webp` is the contact sheet of a dataset's card. `corruptions.webp` and
`severities.webp` show images of another dataset, 224 pixels wide there: one photograph under each
corruption at severity 3, and under three of them at every severity.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import yaml
from PIL import Image

from counterfoil.building.build_dataset import build
from counterfoil.corrupting.corruptions import CORRUPTIONS
from counterfoil.dataset.card.contact_sheets import OVERVIEW, Sheet, line_height
from counterfoil.recipe.prompts import DEFAULT_SEVERITY
from counterfoil.report.pictures import encode_webp
from counterfoil.store.decoding import rgb_image
from counterfoil.store.layout import FIGURES
from counterfoil.store.reading import read_rows
from program import new_parser

IMAGES = Path(__file__).parents[1] / "docs" / "images"
ON_THE_CARD = ("fog", "motion_blur", "darker", "gaussian_noise", "jpeg_compression")
BY_SEVERITY = ("fog", "gaussian_noise", "motion_blur")
SEVERITIES = (1, 2, 3, 4, 5)
SIDE = 224
# pixels, and of WebP
_SHOWN = 160
_GAP = 4
_TEXT = 17
_QUALITY = 80
# characters that are as wide as a picture
_LONGEST_TITLE = 17


def built(out: Path, shifts: dict[str, Any]) -> Path:
    """Build the dataset of all photographs under these shifts and return its directory."""
    recipe = {
        "recipe": 1,
        "name": out.name,
        "source": {
            "dataset": str(IMAGES / "photographs"),
            "train_split": "train",
            "validation_split": "train",
        },
        "generator": {"kind": "corrupt", "split": "train", "size": SIDE},
        "prompts": {"shifts": shifts},
        "samples": {"candidates": 1},
    }
    file = out.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    build(file, out, device="cpu", workers=1)
    return out


def title_lines(title: str) -> list[str]:
    """Return a title in one line, or in two where it is wider than its picture."""
    if len(title) <= _LONGEST_TITLE:
        return [title]
    before, after = title.rsplit("_", 1)
    return [f"{before}_", after]


def grid(rows: list[list[tuple[str, Image.Image]]]) -> bytes:
    """Draw rows of titled pictures as WebP."""
    titles = [title_lines(title) for pictures in rows for title, _ in pictures]
    text_height = max(map(len, titles)) * line_height(_TEXT)
    height = _SHOWN + text_height + 2 * _GAP
    sheet = Sheet.blank(len(rows[0]) * (_SHOWN + _GAP) - _GAP, len(rows) * height)
    for row, pictures in enumerate(rows):
        for column, (title, picture) in enumerate(pictures):
            x = column * (_SHOWN + _GAP)
            y = row * height
            sheet.picture(picture, x, y, _SHOWN)
            middle = x + _SHOWN // 2
            sheet.text(title_lines(title), middle, y + _SHOWN + _GAP, _TEXT, anchor="ma")
    return encode_webp(sheet.image, _QUALITY, method=6)


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--out", type=Path, default=IMAGES, help="where the pictures go")
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        small = built(
            Path(folder, "photographs"), {name: {"corruption": name} for name in ON_THE_CARD}
        )
        (out / "photographs.webp").write_bytes((small / FIGURES / OVERVIEW).read_bytes())
        shifts = {
            name: {
                "corruption": name,
                "severity": {"levels": [severity / 5 for severity in SEVERITIES]},
            }
            if name in BY_SEVERITY
            else {"corruption": name}
            for name in CORRUPTIONS
        }
        every = {
            (row["shift"], row["class_id"]): rgb_image(row["image"]["bytes"])
            for row in read_rows(built(Path(folder, "corruptions"), shifts))
        }

    def shown(name: str, severity: int) -> Image.Image:
        return every[
            f"{name}_{severity}" if name in BY_SEVERITY and severity < SEVERITIES[-1] else name,
            "cat",
        ]

    named = [(name, shown(name, DEFAULT_SEVERITY)) for name in CORRUPTIONS]
    (out / "corruptions.webp").write_bytes(
        grid([named[start : start + 5] for start in range(0, len(named), 5)])
    )
    levels = [
        [
            ("base", every["base", "cat"]),
            *((f"{name}, {severity}", shown(name, severity)) for severity in SEVERITIES),
        ]
        for name in BY_SEVERITY
    ]
    (out / "severities.webp").write_bytes(grid(levels))


if __name__ == "__main__":
    main()
