"""The page in a real browser: no errors, no requests, light and dark, small and large, alive."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browsers import Visit, chromium


@pytest.fixture(scope="module")  # not longer: its event loop would be in the way of others
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


def visit_to(browser: Any, page: Path, **options: Any) -> Visit:
    url = page.resolve().as_uri()
    visit = Visit(browser, url, url, offline=True, **options)
    return visit.ready('.stage[data-ready="yes"]')


def color(visit: Visit, selector: str, name: str) -> tuple[int, ...]:
    text = visit.tab.evaluate(
        "([selector, name]) => getComputedStyle(document.querySelector(selector))[name]",
        [selector, name],
    )
    return tuple(int(part) for part in text[text.index("(") + 1 : -1].split(",")[:3])


def contrast(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """The ratio of WCAG 2."""

    def luminance(rgb: tuple[int, ...]) -> float:
        parts = [c / 255 for c in rgb]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_have_enough_contrast_and_no_errors(
    browser: Any, page: Path, scheme: str
) -> None:
    visit = visit_to(browser, page, color_scheme=scheme)
    ground = color(visit, "section", "backgroundColor")
    assert (sum(ground) > 600) == (scheme == "light")
    for selector in ("main p", ".note", "nav a", "td.n", "figcaption", ".yes", ".no"):
        assert contrast(color(visit, selector, "color"), ground) >= 4.5, selector
    visit.close()


@pytest.mark.parametrize("width", [320, 390, 768, 1400])
def test_no_width_needs_scrolling_to_the_side(browser: Any, page: Path, width: int) -> None:
    visit = visit_to(browser, page, viewport={"width": width, "height": 800})
    visit.tab.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert visit.tab.evaluate("document.documentElement.scrollWidth") <= width
    visit.close()


def test_hovering_names_a_picture_and_clicking_lists_its_neighbors(
    browser: Any, page: Path
) -> None:
    visit = visit_to(browser, page, viewport={"width": 1200, "height": 1000})
    tip, panel = visit.tab.locator("#map-tip"), visit.tab.locator("#map-panel")
    assert tip.is_hidden()
    visit.tab.mouse.move(*visit.on_map(7))
    tip.wait_for(state="visible")
    assert "digit" in tip.inner_text()
    visit.tab.mouse.click(*visit.on_map(7))
    assert panel.locator("li").count() == 6
    assert "similarity" in panel.inner_text()
    title = panel.locator("h3").inner_text()
    assert title in tip.inner_text()
    second = panel.locator("li").nth(0).inner_text()
    panel.locator("li button").nth(0).click()  # a neighbor becomes the chosen one
    assert panel.locator("h3").inner_text() in second
    visit.close()


def test_the_map_zooms_and_moves_by_mouse_and_by_keys(browser: Any, page: Path) -> None:
    visit = visit_to(browser, page, viewport={"width": 1200, "height": 1000})
    view = "kinspaceMap.view()"
    visit.tab.click("#map-in")
    assert visit.tab.evaluate(view)["scale"] == pytest.approx(1.5)
    visit.tab.click("#map-reset")
    x, y = visit.on_map(3)
    visit.tab.mouse.move(x, y)
    visit.tab.mouse.down()
    visit.tab.mouse.move(x + 50, y + 20, steps=4)
    visit.tab.mouse.up()
    assert visit.tab.evaluate(view)["x"] == pytest.approx(50, abs=16)
    assert visit.tab.locator("#map-panel li").count() == 0  # a drag is no click
    visit.tab.mouse.wheel(0, -300)
    visit.tab.locator("#map").focus()
    for key in ("0", "+", "ArrowLeft"):
        visit.tab.keyboard.press(key)
    now = visit.tab.evaluate(view)
    assert (now["scale"], now["x"]) == (pytest.approx(1.4), pytest.approx(60))
    visit.tab.keyboard.press("Enter")
    assert visit.tab.locator("#map-panel li").count() == 6
    visit.tab.select_option("#map-class", label="digit 7")
    visit.close()


def test_the_dial_shows_its_consequences_and_the_pictures_at_the_boundary(
    browser: Any, page: Path
) -> None:
    visit = visit_to(browser, page)
    data = json.loads(visit.tab.evaluate("document.getElementById('dial-data').textContent"))
    for place, setting in list(enumerate(data["settings"]))[::5]:
        visit.tab.locator("#dial").fill(str(place))
        said = visit.tab.locator("#dial-text").inner_text()
        assert said == f"{setting['text'][0].upper()}{setting['text'][1:]}."
        for side in ("refused", "accepted"):
            shown = visit.tab.locator(f"#dial-{side} img").evaluate_all(
                "all => all.map(e => e.alt)"
            )
            assert shown == [data["pictures"][row]["text"] for row in setting[side]]
    visit.close()


def test_it_prints(browser: Any, page: Path, tmp_path: Path) -> None:
    visit = visit_to(browser, page)
    visit.tab.emulate_media(media="print", color_scheme="dark")
    assert color(visit, "body", "backgroundColor") == (255, 255, 255)
    for selector in ("nav", ".tools", ".panel", "#map-section .screen", "figcaption .screen"):
        assert not visit.tab.locator(selector).first.is_visible(), selector
    # of the width of A4 between margins: two columns, and nothing over the edge
    visit.tab.set_viewport_size({"width": 690, "height": 1000})
    visit.tab.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert visit.tab.evaluate("document.documentElement.scrollWidth") <= 690
    boxes = "[...document.querySelectorAll('table, pre, svg')].map(e => e.getBoundingClientRect())"
    assert max(visit.tab.evaluate(f"{boxes}.map(box => box.right)")) <= 690
    columns = (
        "getComputedStyle(document.querySelector('.two')).gridTemplateColumns.split(' ').length"
    )
    assert visit.tab.evaluate(columns) == 2
    assert len(visit.tab.pdf(path=tmp_path / "report.pdf")) > 20_000
    visit.close()


def test_what_is_folded_is_unfolded_on_paper_and_folded_again(browser: Any, page: Path) -> None:
    visit = visit_to(browser, page)
    folded = "document.querySelectorAll('details:not([open])').length"
    before = visit.tab.evaluate(folded)
    assert before > 0
    visit.tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert visit.tab.evaluate(folded) == 0
    visit.tab.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert visit.tab.evaluate(folded) == before
    visit.close()
