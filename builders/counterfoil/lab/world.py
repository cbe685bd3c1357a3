"""Render the wardrobe world: 64×64 scenes of one garment, in which the scene alone decides every
pixel.

Random details come from the scene's seed in a fixed order, so that changing one attribute keeps
garment, place, size and background variant. The garments are a subset of Fashion-MNIST in disjoint
splits: `heldout` and `audit` are in no model's training, and nothing else uses `audit`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image
from scipy import ndimage

from counterfoil.lab import scenery
from counterfoil.lab.portable import cosine, portable_blur, power, sine
from counterfoil.lab.scenery import COLUMN_OF_PIXEL, ROW_OF_PIXEL, SIDE
from counterfoil.lab.vocabulary import ATTRIBUTES, CLASSES, SHIFTS_BY_NAME

GARMENT_SIDE = 28
FOLDER = Path(__file__).parent / "garments"


@dataclass(frozen=True, slots=True, eq=False)
class Garments:
    """Photographs of one split: `images` uint8 [n, 28, 28], `labels` int64 [n], `ids` strings such
    as `train-00017`."""

    images: np.ndarray
    labels: np.ndarray
    ids: tuple[str, ...]

    def of_class(self, label: int) -> np.ndarray:
        return np.flatnonzero(self.labels == label)


@cache
def load_garments(split: str) -> Garments:
    index = json.loads((FOLDER / f"{split}.json").read_text())
    with Image.open(FOLDER / f"{split}.webp") as mosaic:
        pixels = np.asarray(mosaic.convert("L"))
    columns = index["columns"]
    count = len(index["labels"])
    side = GARMENT_SIDE
    rows = pixels.shape[0] // side
    tiles = pixels.reshape(rows, side, columns, side).swapaxes(1, 2).reshape(-1, side, side)
    labels = np.asarray(index["labels"], dtype=np.int64)
    ids = tuple(f"{index['file']}-{number:05d}" for number in index["positions"])
    return Garments(np.ascontiguousarray(tiles[:count]), labels, ids)


_TINTS: dict[str, tuple[float, float, float]] = {
    "red": (0.84, 0.13, 0.15),
    "orange": (0.98, 0.53, 0.08),
    "yellow": (0.99, 0.87, 0.14),
    "green": (0.13, 0.60, 0.24),
    "blue": (0.14, 0.32, 0.86),
    "pink": (0.97, 0.55, 0.73),
    "white": (0.97, 0.97, 0.97),
    "black": (0.15, 0.15, 0.17),
}
_INK_ON_LIGHT = scenery.rgb(0.16, 0.14, 0.30)
_INK_ON_DARK = scenery.rgb(0.97, 0.96, 0.92)
_LIGHT_TINTS = frozenset({"white", "yellow", "pink", "orange"})


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that decides one picture: the garment (row of a split), its true attributes, and a
    seed."""

    split: str
    garment: int
    label: int
    colour: str = "red"
    pattern: str = "plain"
    background: str = "wall"
    weather: str = "clear"
    light: str = "day"
    companion: str = "none"
    style: str = "photo"
    seed: int = 0

    def attributes(self) -> dict[str, str]:
        """Return the value of each attribute, class included."""
        others = {name: getattr(self, name) for name in ATTRIBUTES if name != "class"}
        return {"class": CLASSES[self.label], **others}

    def shifted(self, shift: str) -> Scene:
        """Return the scene under one of Vendrow's shifts, which changes one attribute; `base`
        changes none."""
        if shift == "base":
            return self
        change = SHIFTS_BY_NAME[shift]
        return replace(self, **{change.attribute: change.value})


@dataclass(frozen=True, slots=True)
class _Chances:
    size: float
    x: float
    y: float
    flip_garment: bool
    flip_scene: bool
    side_left: bool
    variants: np.ndarray
    phase: np.ndarray

    def pick(self, library: np.ndarray, use: int) -> np.ndarray:
        """Return the variant of a library that the scene has for one of six uses."""
        chosen = library[self.variants[use]]
        return chosen[:, ::-1] if self.flip_scene else chosen


def cut_out(photograph: np.ndarray, side: int, flip: bool) -> tuple[np.ndarray, np.ndarray]:
    """Cut a garment out of its photograph and resize it: return brightness and coverage, [side,
    side] in 0…1."""
    grey = photograph.astype(np.float32)
    covered = np.where(grey > 10, 255, 0).astype(np.uint8)
    # Closing fills pinholes of dark cloth in the mask.
    covered = np.maximum(covered, ndimage.grey_closing(covered, 3, mode="constant"))
    top = max(float(grey.max()), 1.0)
    # Outside the garment brightness continues at its mean, so that resizing leaves no dark rim.
    inside = grey[covered > 0]
    filled = np.where(covered > 0, grey, inside.mean() if inside.size else 128.0) / top * 255
    small = Image.fromarray(filled.astype(np.uint8)).resize((side, side), Image.Resampling.BICUBIC)
    mask = Image.fromarray(covered).resize((side, side), Image.Resampling.BICUBIC)
    if flip:
        small, mask = (p.transpose(Image.Transpose.FLIP_LEFT_RIGHT) for p in (small, mask))
    coverage = np.clip((np.asarray(mask, np.float32) / 255 - 0.25) * 2, 0, 1)
    return np.asarray(small, np.float32) / 255, coverage


def _place(
    photograph: np.ndarray, chances: _Chances, companion: str
) -> tuple[np.ndarray, np.ndarray]:
    """Put the garment on the canvas: return its brightness and its coverage, both [64, 64]."""
    side = round(chances.size if companion == "none" else chances.size * 0.84)
    small, mask = cut_out(photograph, side, chances.flip_garment)
    room = (SIDE - side) / 2
    shift_x = 0.0 if companion == "none" else (-6.0 if chances.side_left else 6.0)
    left = round(room + shift_x + chances.x * room * (0.7 if companion == "none" else 0.2))
    upper = round(room + chances.y * room * 0.7)
    brightness = np.zeros((SIDE, SIDE), np.float32)
    coverage = np.zeros((SIDE, SIDE), np.float32)
    x0 = max(left, 0)
    y0 = max(upper, 0)
    x1 = min(left + side, SIDE)
    y1 = min(upper + side, SIDE)
    window = (slice(y0 - upper, y1 - upper), slice(x0 - left, x1 - left))
    brightness[y0:y1, x0:x1] = small[window]
    coverage[y0:y1, x0:x1] = mask[window]
    return brightness, coverage


def dress(colour: str, pattern: str, brightness: np.ndarray, phase: np.ndarray) -> np.ndarray:
    """Return tinted, patterned cloth [height, width, 3] of a brightness [height, width], at most 64
    a side."""
    height, width = brightness.shape
    tint = np.asarray(_TINTS[colour], np.float32)
    # The share of the second ink, [64, 64] in 0…1.
    mask = None
    rows = ROW_OF_PIXEL + phase[0] * 8
    columns = COLUMN_OF_PIXEL + phase[1] * 8
    if pattern == "striped":
        mask = np.clip(2.5 * sine(rows * 2 * np.pi / 8) + 0.5, 0, 1)
    elif pattern == "dotted":
        odd = np.floor(rows / 8) % 2
        y = rows % 8 - 4
        x = (columns + odd * 4) % 8 - 4
        mask = np.clip(2.9 - np.sqrt(x * x + y * y), 0, 1)
    elif pattern == "checked":
        mask = ((np.floor(rows / 5) + np.floor(columns / 5)) % 2).astype(np.float32)
    if mask is None:
        cloth = np.broadcast_to(tint, (height, width, 3))
    else:
        ink = _INK_ON_LIGHT if colour in _LIGHT_TINTS else _INK_ON_DARK
        cloth = tint + (ink - tint) * (0.92 * mask[:height, :width, None])
    folds = power(brightness, 0.8)
    shade = (0.45 + 0.62 * folds)[..., None]
    sheen = (0.10 if colour == "black" else 0.05) * np.clip(folds - 0.6, 0, 1)[..., None]
    return np.clip(cloth * shade + sheen, 0, 1)


def put_on(image: np.ndarray, cloth: np.ndarray, coverage: np.ndarray) -> np.ndarray:
    """Draw cloth with a dark rim over a picture, both [height, width, 3]."""
    alpha = coverage[..., None]
    rim = np.clip(1 - np.abs(coverage - 0.5) * 2, 0, 1)[..., None]
    return (image * (1 - alpha) + cloth * alpha) * (1 - 0.35 * rim)


def _backdrop(scene: Scene, target: Scene, strength: float, chances: _Chances) -> np.ndarray:
    """Return the background: in a share `strength` of the picture the target's, elsewhere the
    scene's."""
    image = chances.pick(scenery.backgrounds(target.background), 0)
    if target.background != scene.background:
        reached = chances.pick(scenery.reaches(), 0)[..., None] < strength
        before = chances.pick(scenery.backgrounds(scene.background), 0)
        image = np.where(reached, image, before)
    falling = strength * (target.background == "snow") + (1 - strength) * (
        scene.background == "snow"
    )
    if falling:
        flake = chances.pick(scenery.flakes(falling), 1)
        image = image + (1 - image) * flake * 0.9
    return image


def _light_up(scene: Scene, image: np.ndarray, front: np.ndarray, chances: _Chances) -> np.ndarray:
    """Apply the light to an image; `front` [64, 64, 1] is the coverage of garment and companion."""
    behind = 1 - front
    if scene.light == "sunlight":
        sun = chances.pick(scenery.suns(), 2)
        image = np.clip((image - 0.5) * 1.16 + 0.58, 0, 1) * scenery.rgb(1.04, 1.0, 0.86)
        return image + (scenery.rgb(1.0, 0.97, 0.72) - image) * sun * (behind * 0.55 + 0.45)
    if scene.light == "dusk":
        t = (ROW_OF_PIXEL / (SIDE - 1))[..., None]
        tint = scenery.rgb(0.62, 0.42, 0.70) * (1 - t) + scenery.rgb(1.0, 0.60, 0.40) * t
        image = image * tint
        glow = chances.pick(scenery.low_suns(), 2)
        return image + (scenery.rgb(1.0, 0.62, 0.22) - image) * glow * (behind * 0.75 + 0.2)
    if scene.light == "night":
        dark = image * scenery.rgb(0.26, 0.30, 0.52) + scenery.rgb(0.0, 0.0, 0.04)
        lit = image * scenery.rgb(0.52, 0.55, 0.78)
        image = dark * behind + lit * front
        lamps = chances.pick(scenery.night_sky(), 2) * behind
        return image + (scenery.rgb(1.0, 0.98, 0.84) - image) * lamps
    if scene.light == "studio":
        spot = chances.pick(scenery.spotlights(), 2)
        grey = image.mean(-1, keepdims=True)
        backdrop = (0.5 * image + 0.5 * grey) * (0.14 + 0.66 * spot) + 0.22 * spot
        garment = image * (0.62 + 0.5 * spot)
        return backdrop * behind + garment * front
    return image


def _weather(
    scene: Scene, strength: float, image: np.ndarray, front: np.ndarray, chances: _Chances
) -> np.ndarray:
    """Apply the weather to a lit image; less strength gives fewer streaks of rain, or thinner
    fog."""
    if scene.weather == "rain":
        grey = image.mean(-1, keepdims=True)
        image = _mix(image, (0.6 * image + 0.4 * grey) * scenery.rgb(0.66, 0.72, 0.82), strength)
        streaks = chances.pick(scenery.rain_streaks(strength), 3)
        return image + (scenery.rgb(0.86, 0.91, 0.97) - image) * streaks * 0.8
    if scene.weather == "fog":
        thick = (
            0.70 - 0.28 * front + 0.06 * sine(ROW_OF_PIXEL / 9 + chances.phase[0] * 6)[..., None]
        )
        return image + (scenery.rgb(0.83, 0.85, 0.87) - image) * (thick * strength)
    return image


def _steepness(field: np.ndarray) -> np.ndarray:
    down, across = np.gradient(field)
    return np.sqrt(down * down + across * across)


def _styled(scene: Scene, image: np.ndarray, front: np.ndarray, chances: _Chances) -> np.ndarray:
    variant = chances.variants[4]
    if scene.style == "oil":
        index = scenery.brush_strokes()[variant % 24]
        strokes = image.reshape(-1, 3)[index].reshape(SIDE, SIDE, 3)
        grey = strokes.mean(-1, keepdims=True)
        vivid = grey + (strokes - grey) * 1.35
        relief = (index % 7).reshape(SIDE, SIDE, 1).astype(np.float32) / 7 - 0.43
        return np.clip(vivid * scenery.rgb(1.02, 0.97, 0.86) + 0.11 * relief, 0, 1)
    if scene.style == "sketch":
        grey = 0.3 * image[..., 0] + 0.59 * image[..., 1] + 0.11 * image[..., 2]
        blurred = portable_blur(grey, 0.8, "symmetric")
        edge = _steepness(blurred)
        rim = portable_blur(front[..., 0], 0.7, "symmetric")
        outline = _steepness(rim)
        mid, dark = (layer[variant % 24] for layer in scenery.hatching())
        paper = 0.97 - 0.03 * cosine(ROW_OF_PIXEL * 0.9) * cosine(COLUMN_OF_PIXEL * 1.1)
        body = front[..., 0]
        tone = np.clip(0.72 - grey, 0, 0.5) * mid * 0.7 + np.clip(0.42 - grey, 0, 0.4) * dark * 0.9
        ink = (
            np.clip(edge * (1.2 + 1.6 * body), 0, 0.75)
            + tone * (0.25 + 0.75 * body)
            + np.clip(outline * 2.6, 0, 0.8)
        )
        return np.repeat(np.clip(paper - ink, 0.08, 1)[..., None], 3, axis=-1)
    if scene.style == "embroidery":
        maps, threads = scenery.stitches()
        index = maps[variant % 24]
        thread = threads[variant % 24]
        stitched = image.reshape(-1, 3)[index].reshape(SIDE, SIDE, 3) * thread
        # A mean of the stitches' edge and the garment's: ragged, but thin straps stay.
        area = front.reshape(-1, 1)[index].reshape(SIDE, SIDE, 1) + front > 1.0
        cloth = scenery.linen()[chances.variants[5]]
        # The stitches cast a shade on the cloth.
        lift = portable_blur(area[..., 0].astype(np.float32), 1.2, "symmetric")[..., None]
        return np.where(area, np.clip(stitched, 0, 1), cloth * (1 - 0.35 * lift))
    return image


def _mix(start: np.ndarray, end: np.ndarray, strength: float) -> np.ndarray:
    return end if strength == 1 else start * np.float32(1 - strength) + end * np.float32(strength)


def render(scene: Scene) -> np.ndarray:
    return _rendered(scene, scene, 1.0)


def render_graded(scene: Scene, shift: str, strength: float) -> np.ndarray:
    """Render a scene between itself (strength 0) and its shift (strength 1), which is no companion
    and no style.

    The strength is the share of the picture with the new background, in patches from below; the
    share of snowflakes, rain streaks or fog density; or the weight of the new light or colour.
    """
    return render(scene) if strength == 0 else _rendered(scene, scene.shifted(shift), strength)


def _rendered(scene: Scene, target: Scene, strength: float) -> np.ndarray:
    """Render a scene on its way to a target, which may differ in background, weather, light or
    colour."""
    photograph = load_garments(scene.split).images[scene.garment]
    rng = np.random.default_rng(scene.seed)
    unit = rng.random(8)
    chances = _Chances(
        size=42 + 9 * unit[0],
        x=unit[1] * 2 - 1,
        y=unit[2] * 2 - 1,
        flip_garment=unit[3] < 0.5,
        flip_scene=unit[4] < 0.5,
        side_left=unit[5] < 0.5,
        variants=rng.integers(0, scenery.VARIANTS, 6),
        phase=unit[6:8],
    )
    brightness, coverage = _place(photograph, chances, scene.companion)
    garment = dress(target.colour, target.pattern, brightness, chances.phase)
    if target.colour != scene.colour:
        before = dress(scene.colour, scene.pattern, brightness, chances.phase)
        garment = _mix(before, garment, strength)
    alpha = coverage[..., None]
    image = _backdrop(scene, target, strength, chances)
    shadow = np.roll(portable_blur(coverage, 1.6, "symmetric"), (2, 2), (0, 1))[..., None]
    image = image * (1 - 0.38 * shadow * (1 - alpha))
    front = alpha
    if scene.companion != "none":
        library = scenery.people() if scene.companion == "person" else scenery.flowers()
        # The sprite is at the left, or flipped; the garment is placed on the other side.
        sprite = library[chances.variants[1]]
        if chances.side_left:
            sprite = sprite[:, ::-1]
        image = image * (1 - sprite[..., 3:]) + sprite[..., :3]
        front = np.maximum(front, sprite[..., 3:])
    image = put_on(image, garment, coverage)
    lit = _light_up(target, image, front, chances)
    if target.light != scene.light:
        lit = _mix(_light_up(scene, image, front, chances), lit, strength)
    if target.weather != scene.weather:
        lit = _weather(scene, 1 - strength, lit, front, chances)
    image = _weather(
        target, strength if target.weather != scene.weather else 1.0, lit, front, chances
    )
    image = _styled(scene, image, front, chances)
    return (np.clip(image, 0, 1) * 255 + 0.5).astype(np.uint8)
