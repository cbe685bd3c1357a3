"""Corruptions that leave every pixel in its place: noise, light, colour, what files and cameras do to it.

A picture is float64 [height, width, 3] from 0 to 1 and so is the answer, which the caller clips and rounds. Whatever is
random comes as arrays behind the constants; a function `draw_…` makes them from a generator.
"""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

Constant = float | tuple[float, ...]
# The weights of red, green and blue in a grey level, as JPEG and Pillow have them.
LUMA = np.array([0.299, 0.587, 0.114])


def draw_normal(rng: np.random.Generator, picture: np.ndarray, constant: Constant) -> tuple[np.ndarray, ...]:
    return (rng.standard_normal(picture.shape),)


def draw_photons(rng: np.random.Generator, picture: np.ndarray, full: float) -> tuple[np.ndarray, ...]:
    """How many arrive in each pixel, where a white one gets `full` on average."""
    return (rng.poisson(picture * full),)


def draw_two_uniform(rng: np.random.Generator, picture: np.ndarray, constant: Constant) -> tuple[np.ndarray, ...]:
    return rng.random(picture.shape), rng.random(picture.shape)


def draw_place(rng: np.random.Generator, picture: np.ndarray, constant: Constant) -> tuple[np.ndarray, ...]:
    """Two numbers from 0 to 1."""
    return (rng.random(2),)


def draw_sign(rng: np.random.Generator, picture: np.ndarray, constant: Constant) -> tuple[np.ndarray, ...]:
    return (np.asarray(rng.integers(2) * 2 - 1),)


def added_noise(picture: np.ndarray, deviation: float, normal: np.ndarray) -> np.ndarray:
    return picture + deviation * normal


def counted_photons(picture: np.ndarray, full: float, photons: np.ndarray) -> np.ndarray:
    return photons / full


def scaled_noise(picture: np.ndarray, deviation: float, normal: np.ndarray) -> np.ndarray:
    return picture + picture * deviation * normal


def salt_and_pepper(picture: np.ndarray, share: float, struck: np.ndarray, salt: np.ndarray) -> np.ndarray:
    return np.where(struck <= share, np.where(salt <= 0.5, 1.0, 0.0), picture)


def brightened(picture: np.ndarray, more: float) -> np.ndarray:
    """More value in HSV. Hue and saturation stand still where the three channels keep their ratios."""
    value = picture.max(axis=2, keepdims=True)
    brighter = np.minimum(value + more, 1)
    return np.where(value > 0, picture * (brighter / np.where(value > 0, value, 1)), brighter)


def saturated(picture: np.ndarray, factor_and_more: tuple[float, float]) -> np.ndarray:
    """Another saturation in HSV, where hue and value stand still. A grey has the hue 0, which is red."""
    factor, more = factor_and_more
    value = picture.max(axis=2, keepdims=True)
    below = value - picture
    saturation = below.max(axis=2, keepdims=True) / np.where(value > 0, value, 1)
    other = np.clip(saturation * factor + more, 0, 1)
    red = value * np.array([0.0, 1.0, 1.0])
    return value - other * np.where(saturation > 0, below / np.where(saturation > 0, saturation, 1), red)


def less_contrast(picture: np.ndarray, left: float) -> np.ndarray:
    means = picture.mean(axis=(0, 1), keepdims=True)
    return (picture - means) * left + means


def jpeg(picture: np.ndarray, quality: int) -> np.ndarray:
    file = io.BytesIO()
    _image(picture).save(file, "JPEG", quality=quality)
    return _picture(Image.open(file))


def pixelated(picture: np.ndarray, share: float) -> np.ndarray:
    return _by_way_of(picture, share, Image.Resampling.BOX)


def low_resolution(picture: np.ndarray, share: float) -> np.ndarray:
    return _by_way_of(picture, share, Image.Resampling.BICUBIC)


def darker(picture: np.ndarray, stops: float) -> np.ndarray:
    return _encoded(_light(picture) * 2.0**-stops)


def colour_cast(picture: np.ndarray, stops: float, sign: np.ndarray) -> np.ndarray:
    """Red up and blue down by so many stops, or the other way; a white picture keeps its luminance."""
    gains = 2.0 ** (np.array([0.5, 0.0, -0.5]) * stops * sign)
    return _encoded(_light(picture) * (gains / (gains @ np.array([0.2126, 0.7152, 0.0722]))))


def greyer(picture: np.ndarray, share: float) -> np.ndarray:
    return picture + share * ((picture @ LUMA)[..., None] - picture)


def occluded(picture: np.ndarray, share: float, place: np.ndarray) -> np.ndarray:
    """A grey rectangle of the picture's form over so much of its area, wholly inside of it."""
    sides = np.array(picture.shape[:2])
    covered = np.maximum(np.rint(sides * share**0.5).astype(int), 1)
    top, left = np.floor(place * (sides - covered + 1)).astype(int)
    other = picture.copy()
    other[top : top + covered[0], left : left + covered[1]] = 0.5
    return other


def _light(picture: np.ndarray) -> np.ndarray:
    """Amounts of light of sRGB levels."""
    return np.where(picture <= 0.04045, picture / 12.92, ((picture + 0.055) / 1.055) ** 2.4)


def _encoded(light: np.ndarray) -> np.ndarray:
    """sRGB levels of amounts of light."""
    light = np.clip(light, 0, 1)
    return np.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055)


def _by_way_of(picture: np.ndarray, share: float, resampling: Image.Resampling) -> np.ndarray:
    """Resized to this share of its sides, and back."""
    image = _image(picture)
    width, height = image.size
    small = image.resize((max(1, int(width * share)), max(1, int(height * share))), resampling)
    return _picture(small.resize((width, height), resampling))


def _image(picture: np.ndarray) -> Image.Image:
    return Image.fromarray(np.rint(picture * 255).astype(np.uint8))


def _picture(image: Image.Image) -> np.ndarray:
    return np.asarray(image, np.uint8) / 255.0
