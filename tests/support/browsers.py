"""A real Chromium, a page open in it, and everything that should not happen on the page."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 120_000  # ms: a busy machine must not fail a test


@contextmanager
def chromium() -> Iterator[Any]:
    """The system's browser, else Playwright's own; a skip that says what is missing."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    with sync_api.sync_playwright() as playwright:
        found = next(filter(None, map(shutil.which, NAMES)), None)
        if found is None and not Path(playwright.chromium.executable_path).exists():
            pytest.skip("no Chromium: apt-get install chromium, or playwright install chromium")
        started = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox"], timeout=PATIENCE
        )
        yield started
        started.close()


class Visit:
    """A page that is open.

    allowed: what every address that is asked for begins with. options: of the browser's context.
    """

    def __init__(self, browser: Any, url: str, allowed: str, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(PATIENCE)
        self.tab = self.context.new_page()
        self.bad: list[str] = []
        self.allowed = allowed
        self.tab.on("console", lambda message: self.bad.append(f"console: {message.text}"))
        self.tab.on("pageerror", lambda error: self.bad.append(f"error: {error}"))
        self.tab.on("request", self._seen)
        self.tab.goto(url)

    def _seen(self, request: Any) -> None:
        if not request.url.startswith((self.allowed, "data:", "blob:")):
            self.bad.append(f"request: {request.url}")

    def ready(self, *selectors: str) -> "Visit":
        """Wait for these."""
        for selector in selectors:
            self.tab.wait_for_selector(selector)
        return self

    def says(self, text: str) -> None:
        """Wait until the live region says this."""
        self.tab.wait_for_function(
            "text => document.getElementById('status').textContent.includes(text)", arg=text
        )

    def on_map(self, number: int) -> tuple[float, float]:
        self.tab.locator("#map").scroll_into_view_if_needed()
        x, y = self.tab.evaluate(
            """number => {
                const place = kinspaceMap.place(number);
                const box = document.getElementById("map").getBoundingClientRect();
                return [box.left + place.x, box.top + place.y];
            }""",
            number,
        )
        return x, y

    def close(self, mistakes: tuple[str, ...] = ()) -> None:
        """mistakes: words of those that were made on purpose."""
        self.context.close()
        assert [each for each in self.bad if not any(word in each for word in mistakes)] == []
