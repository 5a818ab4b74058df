"""A page that is open, and everything that should not happen on it."""

from typing import Any


class Visit:
    """allowed: what every address that is asked for begins with."""

    def __init__(self, browser: Any, url: str, allowed: str, **options: Any) -> None:
        self.context = browser.new_context(**options)
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

    def ready(self) -> "Visit":
        self.tab.wait_for_selector('body[data-ready="yes"]')
        self.tab.wait_for_selector("#list button")
        return self

    def says(self, text: str) -> None:
        """Wait until the live region says this."""
        self.tab.wait_for_function(
            "text => document.getElementById('status').textContent.includes(text)", arg=text
        )

    def on_map(self, row: int) -> tuple[float, float]:
        self.tab.locator("#map").scroll_into_view_if_needed()
        x, y = self.tab.evaluate(
            """row => {
                const place = kinspaceGallery.map.place(row);
                const box = document.getElementById("map").getBoundingClientRect();
                return [box.left + place.x, box.top + place.y];
            }""",
            row,
        )
        return x, y

    def close(self, mistakes: tuple[str, ...] = ()) -> None:
        self.context.close()
        assert [each for each in self.bad if not any(word in each for word in mistakes)] == []
