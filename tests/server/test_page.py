"""The page in a real browser: click, upload, paste, map, filter, errors, phone, keyboard, token."""

import base64
from typing import Any

import pytest

from browsers import Visit
from kinspace.inference import EmbeddingModel
from kinspace.server.server_settings import ServerSettings
from web_servers import READY, ROWS, picture, running


def open_page(browser: Any, server: str, **options: Any) -> Visit:
    return Visit(browser, server, server, viewport={"width": 1200, "height": 900}, **options).ready(
        *READY
    )


def test_a_click_shows_the_neighbors_and_back_goes_back(
    browser: Any, server: str, model: EmbeddingModel
) -> None:
    visit = open_page(browser, server)
    visit.says(f"{ROWS} pictures")
    first = visit.tab.locator("#list button").nth(3)
    name = first.locator(".name").inner_text()
    first.click()
    visit.says("24 nearest pictures")
    found = visit.tab.locator("#list .name").all_inner_texts()
    assert found == [each.id for each in model.neighbors(name, 24)]
    assert visit.tab.locator("#results-title").inner_text() == f"Nearest to {name}"
    shown = [float(text) for text in visit.tab.locator("#list .cosine").evaluate_all(
        "all => all.map(each => each.lastChild.textContent)"
    )]  # fmt: skip
    assert shown == sorted(shown, reverse=True)
    visit.tab.go_back()
    visit.says(f"{ROWS} pictures")
    visit.close()


def test_a_picture_is_searched_by_picking_dropping_and_pasting(browser: Any, server: str) -> None:
    visit = open_page(browser, server)
    for way in ("pick", "drop", "paste"):
        if way == "pick":
            file = {"name": "mine.png", "mimeType": "image/png", "buffer": picture(20)}
            visit.tab.set_input_files("#file", files=[file])
        else:
            visit.tab.evaluate(
                """([way, text]) => {
                    const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
                    const data = new DataTransfer();
                    data.items.add(new File([bytes], "mine.png", { type: "image/png" }));
                    const options = { bubbles: true, cancelable: true };
                    document.body.dispatchEvent(way === "drop"
                        ? new DragEvent("drop", { ...options, dataTransfer: data })
                        : new ClipboardEvent("paste", { ...options, clipboardData: data }));
                }""",
                [way, base64.b64encode(picture(20)).decode()],
            )
        visit.says("24 nearest pictures")
        assert visit.tab.locator("#list .name").first.inner_text() == "digit 20"
        assert visit.tab.locator("#list .cosine").first.inner_text().endswith("1.000")
        assert "this very picture" in visit.tab.locator("#answer").inner_text()
        visit.tab.click("#clear")
        visit.says(f"{ROWS} pictures")
    visit.close()


def test_filters_act_on_list_neighbors_and_uploads(browser: Any, server: str) -> None:
    visit = open_page(browser, server)
    visit.tab.fill("#class-filter", "3")
    visit.says("of 3. Choose")
    assert set(visit.tab.locator("#list .class").all_inner_texts()) == {"3"}
    visit.tab.evaluate("location.hash = '#picture=20'")
    visit.says("nearest pictures")
    assert set(visit.tab.locator("#list .class").all_inner_texts()) == {"3"}
    visit.tab.set_input_files(
        "#file", files=[{"name": "a.png", "mimeType": "image/png", "buffer": picture(20)}]
    )
    visit.tab.wait_for_function(
        "() => document.getElementById('results-title').textContent === 'Nearest to your picture'"
    )
    assert set(visit.tab.locator("#list .class").all_inner_texts()) == {"3"}
    visit.tab.fill("#class-filter", "moon")
    visit.tab.keyboard.press("Tab")
    visit.tab.click("#clear")
    visit.says(f"{ROWS} pictures. ")
    visit.tab.select_option("#attribute-filter", value="part=train")
    visit.says("of part=train")
    visit.close()


def test_errors_are_told_in_words(browser: Any, server: str) -> None:
    visit = open_page(browser, server)
    error = visit.tab.locator("#error")
    assert error.is_hidden()
    file = {"name": "a.jpg", "mimeType": "image/jpeg", "buffer": b"no picture"}
    visit.tab.set_input_files("#file", files=[file])
    error.wait_for(state="visible")
    assert "expected JPEG, PNG" in error.inner_text()
    assert error.get_attribute("role") == "alert"
    visit.tab.evaluate(
        """() => {
            const data = new DataTransfer();
            data.items.add(new File([new Uint8Array(11 * 2 ** 20)], "large.png"));
            const options = { bubbles: true, dataTransfer: data };
            document.body.dispatchEvent(new DragEvent("drop", options));
        }"""
    )
    visit.tab.wait_for_function(
        "() => document.getElementById('error').textContent.includes('10 MiB')"
    )
    visit.close(mistakes=("415",))


def test_the_map_shows_a_picture_on_hover_and_searches_on_click(browser: Any, server: str) -> None:
    visit = open_page(browser, server)
    tip = visit.tab.locator("#map-tip")
    assert tip.is_hidden()
    visit.tab.mouse.move(*visit.on_map(7))
    tip.wait_for(state="visible")
    name = visit.tab.locator("#tip-name").inner_text()
    visit.tab.wait_for_function("() => document.getElementById('tip-picture').naturalWidth > 0")
    visit.tab.mouse.click(*visit.on_map(7))
    visit.says("24 nearest pictures")
    assert visit.tab.locator("#results-title").inner_text() == f"Nearest to {name}"
    visit.tab.click("#map-in")
    assert visit.tab.evaluate("kinspaceMap.view().scale") == pytest.approx(1.5)
    visit.tab.click("#map-reset")
    x, y = visit.on_map(7)
    visit.tab.mouse.move(x, y)
    visit.tab.mouse.down()
    visit.tab.mouse.move(x + 60, y, steps=4)
    visit.tab.mouse.up()
    assert visit.tab.evaluate("kinspaceMap.view().x") == pytest.approx(60, abs=20)
    visit.close()


def test_everything_goes_by_keyboard(browser: Any, server: str) -> None:
    visit = open_page(browser, server)
    order = []
    for _ in range(9):
        visit.tab.keyboard.press("Tab")
        order.append(
            visit.tab.evaluate("document.activeElement.id || document.activeElement.className")
        )
    assert order[0] == "skip"
    assert order[4:8] == ["file", "class-filter", "attribute-filter", "clear"]
    visit.tab.locator("#list button").nth(1).focus()
    visit.tab.keyboard.press("Enter")
    visit.says("24 nearest pictures")
    assert visit.tab.evaluate("document.activeElement.id") == "results"
    visit.tab.locator("#map").focus()
    for key in ("+", "ArrowLeft"):
        visit.tab.keyboard.press(key)
    visit.says("In the center: ")
    said = visit.tab.locator("#status").inner_text()
    visit.tab.keyboard.press("Enter")
    visit.says("24 nearest pictures")
    assert visit.tab.locator("#results-title").inner_text().removeprefix("Nearest to ") in said
    visit.close()


def test_what_a_screen_reader_needs_is_there(browser: Any, server: str) -> None:
    visit = open_page(browser, server)
    unnamed = visit.tab.evaluate(
        """() => [...document.querySelectorAll("button, input, select, canvas")].filter(each =>
            each.checkVisibility() && !(each.getAttribute("aria-label") || each.textContent.trim()
            || (each.labels && each.labels.length))).map(each => each.id)"""
    )
    assert unnamed == []
    assert visit.tab.locator("#status").get_attribute("aria-live") == "polite"
    assert visit.tab.locator("img:not([alt])").count() == 0
    assert visit.tab.locator("h1").count() == 1
    assert visit.tab.evaluate("document.documentElement.lang") == "en"
    visit.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_in_light_and_dark(browser: Any, server: str, scheme: str) -> None:
    visit = Visit(
        browser, server, server, viewport={"width": 360, "height": 740}, has_touch=True,
        is_mobile=True, color_scheme=scheme,
    ).ready(*READY)  # fmt: skip
    assert visit.tab.evaluate("document.documentElement.scrollWidth") <= 360
    small = visit.tab.evaluate(
        """() => [...document.querySelectorAll("button, select, .button")].filter(each =>
            each.checkVisibility() && each.getBoundingClientRect().height < 36).length"""
    )
    assert small == 0
    light = visit.tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (int(light[4:].split(",")[0]) > 128) == (scheme == "light")
    visit.tab.locator("#list button").first.tap()
    visit.says("24 nearest pictures")
    visit.close()


def test_the_page_asks_for_the_token(browser: Any, model: EmbeddingModel) -> None:
    with running(model, ServerSettings(token="moths-fly-at-night")) as server:
        visit = Visit(browser, server, server)
        dialog = visit.tab.locator("#login")
        dialog.wait_for(state="visible")
        visit.tab.fill("#token", "something else")
        visit.tab.keyboard.press("Enter")
        visit.tab.locator("#login-error").wait_for(state="visible")
        visit.tab.fill("#token", "moths-fly-at-night")
        visit.tab.keyboard.press("Enter")
        visit.ready(*READY)
        assert dialog.is_hidden()
        visit.tab.wait_for_function("() => document.querySelector('#list img').naturalWidth > 0")
        visit.close(mistakes=("401",))


def test_the_verdict_and_the_interface_are_described(browser: Any, server: str) -> None:
    visit = open_page(browser, server)
    assert "of the same class in" in visit.tab.locator("#verdict").inner_text()
    assert visit.tab.locator("#verdict tbody tr").count() == 3
    visit.tab.goto(f"{server}/docs")
    visit.tab.wait_for_selector("#routes section")
    assert "POST /api/search" in visit.tab.locator("#routes").inner_text()
    visit.close()


def test_scripts_from_elsewhere_and_in_the_page_are_stopped(browser: Any, server: str) -> None:
    visit = open_page(browser, server)
    ran = visit.tab.evaluate(
        """() => { const one = document.createElement("script"); one.textContent = "window.ran = 1";
            document.body.append(one); return window.ran || 0; }"""
    )
    assert ran == 0
    visit.close(mistakes=("Content Security Policy",))
