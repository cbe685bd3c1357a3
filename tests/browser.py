"""A real browser for tests of pages: Debian's chromium, driven by playwright, which lets no request
leave a page."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# The first has no window to draw, and takes a third of the time.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser")
CHROMIUM = next((path for name in _NAMES if (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: pages are not tried in a browser")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        )
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Yield `open_page(path, width=1300, dark=False, **context)`, which opens a file in the
    browser.

    The test fails if a page asked for anything but files of its own folder, `data:` and `blob:`, or
    if its script raised.
    """
    contexts: list[Any] = []
    outside: list[str] = []
    raised: list[str] = []

    def opened(
        path: Path, width: int = 1300, dark: bool = False, fragment: str = "", **options: Any
    ) -> Page:
        scheme = "dark" if dark else "light"
        context = chromium.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            accept_downloads=True,
            **options,
        )
        contexts.append(context)
        folder = path.resolve().parent.as_uri()

        def look(request: Any) -> None:
            if not request.url.startswith((folder, "data:", "blob:")):
                outside.append(request.url)

        context.on("request", look)
        page = context.new_page()
        page.on("pageerror", lambda error: raised.append(str(error)))
        page.goto(path.resolve().as_uri() + fragment)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert outside == [], "a page asked for something outside"
    assert raised == [], "a script on a page raised"
