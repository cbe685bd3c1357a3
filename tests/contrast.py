"""The contrast of every text on a page with its background, as WCAG 2 counts it, from the browser's
own styles."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

_MEASURE = """
() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  // Colours laid one over the other, the lowest first.
  const mixed = colours => {
    context.globalCompositeOperation = "source-over";
    context.clearRect(0, 0, 1, 1);
    for (const colour of colours) { context.fillStyle = colour; context.fillRect(0, 0, 1, 1); }
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(one => one / 255).map(
      one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const element = node.parentElement, text = node.textContent.trim();
    if (!text || element.closest("script, style, option, noscript, title, .hidden, .skip, :disabled")) continue;
    if (!element.checkVisibility({ visibilityProperty: true })) continue;
    const behind = [], style = getComputedStyle(element);
    let opacity = 1;
    for (let one = element; one; one = one.parentElement) {
      behind.unshift(getComputedStyle(one).backgroundColor);
      opacity *= Number(getComputedStyle(one).opacity);
    }
    const ground = mixed(["Canvas", ...behind]);
    const ink = mixed([`rgb(${ground})`, element.closest("svg") ? style.fill : style.color]);
    const [high, low] = [light(ground), light(ink)].sort((a, b) => b - a);
    found.push({
      text: text.slice(0, 40),
      place: `${element.tagName}.${element.getAttribute("class") || ""}`,
      ratio: opacity < 1 ? 0 : (high + 0.05) / (low + 0.05),
    });
  }
  return found;
}
"""


def faint_texts(page: Page, least: float = 4.5) -> list[str]:
    """Return the visible texts of less contrast, see-through ones included; fail if there is hardly
    any text."""
    texts = page.evaluate(_MEASURE)
    assert len(texts) > 10
    return [
        f"{text['text']!r} in {text['place']}: {text['ratio']:.2f}"
        for text in texts
        if text["ratio"] < least
    ]
