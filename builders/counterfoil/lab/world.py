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
from PIL import Image, ImageOps
from scipy import ndimage

from counterfoil.lab import scenery
from counterfoil.lab.portable import Pixels, cosine, portable_blur, power, sine
from counterfoil.lab.scenery import COLUMN_OF_PIXEL, ROW_OF_PIXEL, SIDE, rgb
from counterfoil.lab.vocabulary import ATTRIBUTES, CLASSES, SHIFTS_BY_NAME

GARMENT_SIDE = 28
FOLDER = Path(__file__).parent / "garments"


@dataclass(frozen=True, slots=True, eq=False)
class Garments:
    """Photographs of one split: `images` uint8 [n, 28, 28], `labels` int64 [n], `ids` strings such
    as `train-00017`."""

    images: Pixels
    labels: np.ndarray
    ids: tuple[str, ...]

    def of_class(self, label: int) -> Pixels:
        return np.flatnonzero(self.labels == label)


@cache
def load_garments(split: str) -> Garments:
    index = json.loads((FOLDER / f"{split}.json").read_text())
    with Image.open(FOLDER / f"{split}.webp") as mosaic:
        pixels = np.asarray(mosaic.convert("L"))
    labels = np.asarray(index["labels"], dtype=np.int64)
    side = GARMENT_SIDE
    tiles = pixels.reshape(-1, side, index["columns"], side).swapaxes(1, 2)
    # The last row of the mosaic may have empty tiles.
    images = tiles.reshape(-1, side, side)[: len(labels)]
    ids = tuple(f"{index['file']}-{number:05d}" for number in index["positions"])
    return Garments(np.ascontiguousarray(images), labels, ids)


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
_INK_ON_LIGHT = rgb(0.16, 0.14, 0.30)
_INK_ON_DARK = rgb(0.97, 0.96, 0.92)
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
    """The variants of background, snowflakes and companion, light, rain, style, and linen."""
    phase: np.ndarray

    def pick(self, library: Pixels, use: int) -> Pixels:
        """Return the variant of a library that the scene has for one of its six uses."""
        chosen = library[self.variants[use]]
        return chosen[:, ::-1] if self.flip_scene else chosen


def cut_out(photograph: Pixels, side: int, flip: bool) -> tuple[Pixels, Pixels]:
    """Cut a garment out of its photograph and resize it: return brightness and coverage, [side,
    side] in 0…1."""
    grey = photograph.astype(np.float32)
    covered = np.where(grey > 10, 255, 0).astype(np.uint8)
    # Closing fills pinholes of dark cloth in the mask.
    covered = np.maximum(covered, ndimage.grey_closing(covered, 3, mode="constant"))
    is_covered = covered > 0
    # Outside the garment brightness continues at its mean, so that resizing leaves no dark rim.
    outside = grey[is_covered].mean() if is_covered.any() else 128.0
    brightest = max(float(grey.max()), 1.0)
    filled = np.where(is_covered, grey, outside) / brightest * 255
    resized = []
    for levels in (filled.astype(np.uint8), covered):
        image = Image.fromarray(levels).resize((side, side), Image.Resampling.BICUBIC)
        if flip:
            image = ImageOps.mirror(image)
        resized.append(np.asarray(image, np.float32) / 255)
    brightness, mask = resized
    # Less than a quarter of a pixel counts as none of it, and three quarters as all of it.
    return brightness, np.clip((mask - 0.25) * 2, 0, 1)


def _place(photograph: Pixels, chances: _Chances, companion: str) -> tuple[Pixels, Pixels]:
    """Put the garment on the canvas: return its brightness and its coverage, both [64, 64]."""
    size = chances.size
    shift = 0.0
    play = 0.7
    if companion != "none":
        # The garment is smaller, and on the side where the companion is not.
        size *= 0.84
        shift = -6.0 if chances.side_left else 6.0
        play = 0.2
    side = round(size)
    room = (SIDE - side) / 2
    left = round(room + shift + chances.x * room * play)
    top = round(room + chances.y * room * 0.7)
    # Its square never reaches beyond the canvas.
    window = slice(top, top + side), slice(left, left + side)
    brightness = np.zeros((SIDE, SIDE), np.float32)
    coverage = np.zeros((SIDE, SIDE), np.float32)
    brightness[window], coverage[window] = cut_out(photograph, side, chances.flip_garment)
    return brightness, coverage


def dress(colour: str, pattern: str, brightness: Pixels, phase: np.ndarray) -> Pixels:
    """Return tinted, patterned cloth [height, width, 3] of a brightness [height, width], at most 64
    a side."""
    cloth = rgb(*_TINTS[colour])
    if pattern != "plain":
        height, width = brightness.shape
        ink = _INK_ON_LIGHT if colour in _LIGHT_TINTS else _INK_ON_DARK
        inked = _inked(pattern, phase)[:height, :width, None]
        cloth = cloth + (ink - cloth) * (0.92 * inked)
    folds = power(brightness, 0.8)[..., None]
    shade = 0.45 + 0.62 * folds
    glossy = 0.10 if colour == "black" else 0.05
    sheen = glossy * np.clip(folds - 0.6, 0, 1)
    return np.clip(cloth * shade + sheen, 0, 1)


def _inked(pattern: str, phase: np.ndarray) -> Pixels:
    """Return how much of each pixel a pattern inks [64, 64], in 0…1."""
    rows = ROW_OF_PIXEL + phase[0] * 8
    columns = COLUMN_OF_PIXEL + phase[1] * 8
    if pattern == "striped":
        wave = sine(rows * 2 * np.pi / 8)
        return np.clip(2.5 * wave + 0.5, 0, 1)
    if pattern == "dotted":
        # Every other row of dots is moved by half their distance.
        is_odd = np.floor(rows / 8) % 2
        down = rows % 8 - 4
        across = (columns + is_odd * 4) % 8 - 4
        return np.clip(2.9 - np.sqrt(across * across + down * down), 0, 1)
    squares = np.floor(rows / 5) + np.floor(columns / 5)
    return (squares % 2).astype(np.float32)


def put_on(image: Pixels, cloth: Pixels, coverage: Pixels) -> Pixels:
    """Draw cloth with a dark rim over a picture, both [height, width, 3]."""
    alpha = coverage[..., None]
    dressed = image * (1 - alpha) + cloth * alpha
    rim = np.clip(1 - np.abs(alpha - 0.5) * 2, 0, 1)
    return dressed * (1 - 0.35 * rim)


def _backdrop(scene: Scene, target: Scene, strength: float, chances: _Chances) -> Pixels:
    """Return the background: in a share `strength` of the picture the target's, elsewhere the
    scene's."""
    image = chances.pick(scenery.backgrounds(target.background), 0)
    if target.background != scene.background:
        reached = chances.pick(scenery.reaches(), 0)[..., None] < strength
        before = chances.pick(scenery.backgrounds(scene.background), 0)
        image = np.where(reached, image, before)
    falling = 0.0
    if target.background == "snow":
        falling += strength
    if scene.background == "snow":
        falling += 1 - strength
    if falling:
        flakes = chances.pick(scenery.flakes(falling), 1)
        image = image + (1 - image) * flakes * 0.9
    return image


def _light_up(scene: Scene, image: Pixels, front: Pixels, chances: _Chances) -> Pixels:
    """Apply the light to an image; `front` [64, 64, 1] is the coverage of garment and companion."""
    behind = 1 - front
    if scene.light == "sunlight":
        contrasty = np.clip((image - 0.5) * 1.16 + 0.58, 0, 1)
        image = contrasty * rgb(1.04, 1.0, 0.86)
        sun = chances.pick(scenery.suns(), 2)
        return image + (rgb(1.0, 0.97, 0.72) - image) * sun * (behind * 0.55 + 0.45)
    if scene.light == "dusk":
        down = (ROW_OF_PIXEL / (SIDE - 1))[..., None]
        tint = rgb(0.62, 0.42, 0.70) * (1 - down) + rgb(1.0, 0.60, 0.40) * down
        image = image * tint
        glow = chances.pick(scenery.low_suns(), 2)
        return image + (rgb(1.0, 0.62, 0.22) - image) * glow * (behind * 0.75 + 0.2)
    if scene.light == "night":
        dark = image * rgb(0.26, 0.30, 0.52) + rgb(0.0, 0.0, 0.04)
        lit = image * rgb(0.52, 0.55, 0.78)
        image = dark * behind + lit * front
        lamps = chances.pick(scenery.night_sky(), 2) * behind
        return image + (rgb(1.0, 0.98, 0.84) - image) * lamps
    if scene.light == "studio":
        spot = chances.pick(scenery.spotlights(), 2)
        pale = 0.5 * image + 0.5 * image.mean(-1, keepdims=True)
        backdrop = pale * (0.14 + 0.66 * spot) + 0.22 * spot
        garment = image * (0.62 + 0.5 * spot)
        return backdrop * behind + garment * front
    return image


def _weather(
    scene: Scene, strength: float, image: Pixels, front: Pixels, chances: _Chances
) -> Pixels:
    """Apply the weather to a lit image; less strength gives fewer streaks of rain, or thinner
    fog."""
    if scene.weather == "rain":
        pale = 0.6 * image + 0.4 * image.mean(-1, keepdims=True)
        image = _mix(image, pale * rgb(0.66, 0.72, 0.82), strength)
        streaks = chances.pick(scenery.rain_streaks(strength), 3)
        return image + (rgb(0.86, 0.91, 0.97) - image) * streaks * 0.8
    if scene.weather == "fog":
        waves = sine(ROW_OF_PIXEL / 9 + chances.phase[0] * 6)
        density = 0.70 - 0.28 * front + 0.06 * waves[..., None]
        return image + (rgb(0.83, 0.85, 0.87) - image) * (density * strength)
    return image


def _steepness(field: Pixels) -> Pixels:
    down, across = np.gradient(field)
    return np.sqrt(down * down + across * across)


def _styled(scene: Scene, image: Pixels, front: Pixels, chances: _Chances) -> Pixels:
    variant = chances.variants[4] % scenery.STYLE_VARIANTS
    if scene.style == "oil":
        index = scenery.brush_strokes()[variant]
        strokes = _seen_at(image, index)
        grey = strokes.mean(-1, keepdims=True)
        vivid = grey + (strokes - grey) * 1.35
        # Each stroke is a little higher or lower than the others.
        relief = (index % 7).reshape(SIDE, SIDE, 1).astype(np.float32) / 7 - 0.43
        return np.clip(vivid * rgb(1.02, 0.97, 0.86) + 0.11 * relief, 0, 1)
    if scene.style == "sketch":
        return _sketched(image, front[..., 0], *scenery.hatching()[:, variant])
    if scene.style == "embroidery":
        maps, threads = scenery.stitches()
        index = maps[variant]
        stitched = np.clip(_seen_at(image, index) * threads[variant], 0, 1)
        # A mean of the stitches' edge and the garment's: ragged, but thin straps stay.
        is_stitched = _seen_at(front, index) + front > 1.0
        # The stitches cast a shade on the cloth.
        shade = portable_blur(is_stitched[..., 0].astype(np.float32), 1.2, "symmetric")
        cloth = scenery.linen()[chances.variants[5]] * (1 - 0.35 * shade[..., None])
        return np.where(is_stitched, stitched, cloth)
    return image


def _seen_at(image: Pixels, index: np.ndarray) -> Pixels:
    """Return the image in which each pixel has the colour of another, the one with this index."""
    channels = image.shape[-1]
    return image.reshape(-1, channels)[index].reshape(SIDE, SIDE, channels)


def _sketched(image: Pixels, front: Pixels, mid: Pixels, dark: Pixels) -> Pixels:
    """Draw an image in pencil: its edges, and two layers of hatching where it is dark."""
    grey = 0.3 * image[..., 0] + 0.59 * image[..., 1] + 0.11 * image[..., 2]
    edge = _steepness(portable_blur(grey, 0.8, "symmetric"))
    outline = _steepness(portable_blur(front, 0.7, "symmetric"))
    paper = 0.97 - 0.03 * cosine(ROW_OF_PIXEL * 0.9) * cosine(COLUMN_OF_PIXEL * 1.1)
    mid_tone = np.clip(0.72 - grey, 0, 0.5) * mid * 0.7
    dark_tone = np.clip(0.42 - grey, 0, 0.4) * dark * 0.9
    tone = (mid_tone + dark_tone) * (0.25 + 0.75 * front)
    lines = np.clip(edge * (1.2 + 1.6 * front), 0, 0.75)
    ink = lines + tone + np.clip(outline * 2.6, 0, 0.8)
    return np.repeat(np.clip(paper - ink, 0.08, 1)[..., None], 3, axis=-1)


def _mix(start: Pixels, end: Pixels, strength: float) -> Pixels:
    if strength == 1:
        return end
    return start * np.float32(1 - strength) + end * np.float32(strength)


def render(scene: Scene) -> Pixels:
    return _rendered(scene, scene, 1.0)


def render_graded(scene: Scene, shift: str, strength: float) -> Pixels:
    """Render a scene between itself (strength 0) and its shift (strength 1), which is no companion
    and no style.

    The strength is the share of the picture with the new background, in patches from below; the
    share of snowflakes, rain streaks or fog density; or the weight of the new light or colour.
    """
    if strength == 0:
        return render(scene)
    return _rendered(scene, scene.shifted(shift), strength)


def _rendered(scene: Scene, target: Scene, strength: float) -> Pixels:
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
    image = _backdrop(scene, target, strength, chances)
    shadow = np.roll(portable_blur(coverage, 1.6, "symmetric"), (2, 2), (0, 1))
    front = coverage[..., None]
    image = image * (1 - 0.38 * shadow[..., None] * (1 - front))
    if scene.companion != "none":
        library = scenery.people() if scene.companion == "person" else scenery.flowers()
        # The sprite is at the left, or flipped; the garment is placed on the other side.
        sprite = library[chances.variants[1]]
        if chances.side_left:
            sprite = sprite[:, ::-1]
        colour = sprite[..., :3]
        alpha = sprite[..., 3:]
        image = image * (1 - alpha) + colour
        front = np.maximum(front, alpha)
    image = put_on(image, garment, coverage)
    lit = _light_up(target, image, front, chances)
    if target.light != scene.light:
        lit = _mix(_light_up(scene, image, front, chances), lit, strength)
    if target.weather == scene.weather:
        image = _weather(scene, 1.0, lit, front, chances)
    else:
        image = _weather(scene, 1 - strength, lit, front, chances)
        image = _weather(target, strength, image, front, chances)
    image = _styled(scene, image, front, chances)
    return (np.clip(image, 0, 1) * 255 + 0.5).astype(np.uint8)
