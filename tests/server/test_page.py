"""The page in a real browser: click, upload, paste, map, filter, errors, phone, keyboard, token."""

import base64
import csv
import io
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kinspace
from browsers import Visit
from bundles import digits
from kinspace.evaluation.thresholds import DEFAULT_STRANGERS, RATES
from kinspace.inference import EmbeddingModel
from kinspace.report import write_report
from kinspace.search.gallery_tables import read_new_classes
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
    name = first.get_attribute("data-id")
    assert first.get_attribute("title") == name
    first.click()
    visit.says("24 nearest pictures")
    near = model.neighbors(name, 24)
    cards = visit.tab.locator("#list button")
    found = cards.evaluate_all("all => all.map(each => [each.dataset.id, each.title])")
    assert found == [[each.id, f"{each.id} (similarity {each.similarity:.3f})"] for each in near]
    label = model.table.class_name(int(model.table.labels[model.gallery.row_of(name)]))  # type: ignore[index,union-attr]
    assert visit.tab.locator("#answer-class").inner_text() == label
    same = sum(each.class_name == label for each in near[:8])
    said = visit.tab.locator("#answer-why").inner_text()
    assert said == f"{same} of the nearest 8 are {label}."
    others = visit.tab.locator("#list .mark").all_inner_texts()
    assert others == ["other class"] * sum(each.class_name != label for each in near)
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
        first = visit.tab.locator("#list button").first
        assert first.get_attribute("title") == "digit 20 (similarity 1.000)"
        assert visit.tab.locator("#answer-class").inner_text() == "0"
        assert "this very picture" in visit.tab.locator("#answer-why").inner_text()
        visit.tab.click("#clear")
        visit.says(f"{ROWS} pictures")
    visit.close()


def test_filters_act_on_list_neighbors_and_uploads(browser: Any, server: str) -> None:
    visit = open_page(browser, server)
    visit.tab.fill("#class-filter", "3")
    visit.says("of 3.")
    assert set(visit.tab.locator("#list .class").all_inner_texts()) == {"3"}
    visit.tab.evaluate("location.hash = '#picture=20'")
    visit.says("nearest pictures")
    assert set(visit.tab.locator("#list .class").all_inner_texts()) == {"3"}
    visit.tab.set_input_files(
        "#file", files=[{"name": "a.png", "mimeType": "image/png", "buffer": picture(20)}]
    )
    visit.says("nearest pictures. ")
    assert set(visit.tab.locator("#list .class").all_inner_texts()) == {"3"}
    visit.tab.fill("#class-filter", "moon")
    visit.tab.keyboard.press("Tab")
    visit.tab.click("#clear")
    visit.says(f"{ROWS} pictures.")
    visit.tab.select_option("#attribute-filter", value="part=train")
    visit.says("of part=train")
    visit.close()


def test_the_dial_is_asked_of_the_server(browser: Any, server: str, model: EmbeddingModel) -> None:
    assert model.thresholds is not None
    visit = open_page(browser, server)
    assert visit.tab.locator(
        "#dial-box"
    ).is_hidden()  # without a picture there is nothing to decide
    query = digits().pictures.read(400).rotate(30)
    data = io.BytesIO()
    query.save(data, "png")
    file = {"name": "mine.png", "mimeType": "image/png", "buffer": data.getvalue()}
    visit.tab.set_input_files("#file", files=[file])
    visit.says(str(model.classify(query)))
    dial = visit.tab.locator("#dial")
    assert dial.input_value() == str(RATES.index(DEFAULT_STRANGERS))
    for place in (0, len(RATES) - 1):
        dial.fill(str(place))
        visit.says(str(model.classify(query, strangers=RATES[place])))
        verdict = model.classify(query, strangers=RATES[place])
        shown = visit.tab.locator("#answer-class").inner_text()
        assert shown == (verdict.class_name if verdict.known else "Unknown")
        said = str(model.thresholds.at(RATES[place]))
        assert visit.tab.locator("#dial-text").inner_text() == f"{said[0].upper()}{said[1:]}."
    visit.close()


def test_paths_are_copied_and_wrong_labels_are_marked(
    browser: Any, server: str, tmp_path: Path
) -> None:
    visit = open_page(browser, server, permissions=["clipboard-read", "clipboard-write"])
    assert visit.tab.locator("#copy").is_hidden()
    visit.tab.locator("#list button").nth(2).click()
    visit.says("24 nearest pictures")
    path = visit.tab.locator("#query-picture").get_attribute("title")
    label = visit.tab.locator("#answer-class").inner_text()
    visit.tab.click("#copy")
    visit.tab.wait_for_function("() => document.getElementById('copy').textContent === 'Copied'")
    assert visit.tab.evaluate("navigator.clipboard.readText()") == path
    visit.tab.click("#wrong")
    assert visit.tab.locator("#marked-count").inner_text() == "1 wrong label"
    with visit.tab.expect_download() as saved:
        visit.tab.click("#marked-save")
    with Path(saved.value.path()).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["id"], row["class"]) for row in rows] == [(path, label)]
    assert rows[0]["suggested"] != label
    (tmp_path / "marked.csv").write_bytes(Path(saved.value.path()).read_bytes())
    assert read_new_classes(tmp_path / "marked.csv") == {rows[0]["suggested"]: [path]}
    said = visit.tab.locator("#marked-next").inner_text()
    assert said == "then: kinspace relabel RUN --table wrong-labels.csv"
    visit.tab.click("#clear")
    assert visit.tab.locator("#list .mark").all_inner_texts() == ["wrong label"]
    visit.tab.click("#marked-clear")
    assert visit.tab.locator("#marked").is_hidden()
    visit.close()


def test_a_picture_of_the_gallery_is_found_by_its_path_and_its_address(
    browser: Any, server: str
) -> None:
    visit = open_page(browser, server)
    shown = visit.tab.locator("#query-picture")
    for way, text in (
        ("typed", "digit 30"),
        ("typed", "/data/somewhere/digit 31"),
        ("pasted", f"{server}/#picture=32"),
        ("dropped", f"{server}/thumb/33.jpg"),
    ):
        if way == "typed":
            visit.tab.fill("#find", text)
            visit.tab.keyboard.press("Enter")
        else:
            visit.tab.evaluate(
                """([way, text]) => {
                    const data = new DataTransfer();
                    data.setData(way === "dropped" ? "text/uri-list" : "text/plain", text);
                    const options = { bubbles: true, cancelable: true };
                    document.body.dispatchEvent(way === "dropped"
                        ? new DragEvent("drop", { ...options, dataTransfer: data })
                        : new ClipboardEvent("paste", { ...options, clipboardData: data }));
                }""",
                [way, text],
            )
        visit.says("24 nearest pictures")
        assert shown.get_attribute("title") == f"digit {re.findall('3[0-3]', text)[-1]}"
        assert visit.tab.locator("#find").is_hidden()
        visit.tab.click("#clear")
        visit.says(f"{ROWS} pictures")
    visit.tab.fill("#find", "digit 9999")
    visit.tab.keyboard.press("Enter")
    assert "no picture “digit 9999”" in visit.tab.locator("#error").inner_text()
    visit.close()


def test_what_an_unknown_picture_looks_like_is_said_in_large(
    browser: Any, server: str, model: EmbeddingModel
) -> None:
    query = digits().pictures.read(400).rotate(140)
    verdict = model.classify(query, strangers=RATES[0])
    assert not verdict.known
    data = io.BytesIO()
    query.save(data, "png")
    visit = open_page(browser, server)
    file = {"name": "mine.png", "mimeType": "image/png", "buffer": data.getvalue()}
    visit.tab.set_input_files("#file", files=[file])
    visit.says("24 nearest pictures. ")
    visit.tab.locator("#dial").fill("0")
    visit.says(str(verdict))
    assert (
        verdict.headline
        == f"unknown, looks most like {verdict.best}, {verdict.confidence:.0%} sure"
    )
    said = visit.tab.locator("#answer-best").inner_text()
    assert said == f"Looks most like {verdict.best}, {verdict.confidence:.0%} sure."
    assert visit.tab.locator("#add").is_hidden()  # this server does not change its gallery
    visit.close()


@pytest.mark.parametrize("phone", [False, True])
def test_a_picture_is_added_as_a_new_class_and_a_label_put_right(
    browser: Any, run: Path, tmp_path: Path, phone: bool
) -> None:
    folder = shutil.copytree(run, tmp_path / "run")
    size = {"width": 360, "height": 740} if phone else {"width": 1200, "height": 900}
    with running(kinspace.load(folder, "cpu"), ServerSettings(editable=True)) as server:
        visit = Visit(browser, server, server, viewport=size, is_mobile=phone).ready(*READY)
        picture = digits().pictures.read(400).rotate(140)
        data = io.BytesIO()
        picture.save(data, "png")
        file = {"name": "a.png", "mimeType": "image/png", "buffer": data.getvalue()}
        visit.tab.set_input_files("#file", files=[file])
        visit.says("nearest pictures. ")
        visit.tab.click("#add")
        visit.tab.fill("#name", "a new class")
        visit.tab.click("#name-save")
        note = visit.tab.locator("#results-note", has_text="Added to the gallery")
        assert note.inner_text() == "Added to the gallery: a new class has 1 picture now."
        assert visit.tab.locator("#answer-class").inner_text() == "a new class"
        visit.tab.wait_for_function(
            "() => document.getElementById('query-picture').naturalWidth > 0"
        )
        assert "241 pictures of 11 classes" in visit.tab.locator("#subtitle").inner_text()
        visit.ready('body[data-map="ready"]')
        assert visit.tab.evaluate("document.documentElement.scrollWidth") <= size["width"]
        visit.tab.evaluate("location.hash = '#picture=20'")
        visit.says("24 nearest pictures")
        visit.tab.click("#wrong")
        visit.tab.fill("#name", "a new class")
        visit.tab.keyboard.press("Enter")
        visit.tab.locator("#results-note", has_text="Label changed").wait_for()
        visit.close()
    after = kinspace.load(folder, "cpu")  # as it is on the disk
    assert len(after.table) == 241
    assert sorted(after.gallery.find(class_name="a new class"))[1] == "digit 20"  # type: ignore[union-attr]
    assert after.classify(picture).class_name == "a new class"


@pytest.mark.slow
def test_the_report_opens_at_the_picture(browser: Any, run: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(run, tmp_path / "run")
    write_report(folder, device="cpu", checked=False)
    with running(kinspace.load(folder, "cpu")) as server:
        visit = open_page(browser, server)
        table = kinspace.load(folder, "cpu").table
        assert table.attributes is not None
        parts = table.attributes[:, table.attribute_names.index("part=test")] > 0
        test = [int(parts.argmax()), int(parts.argmin())]
        link = visit.tab.locator("#in-report")
        for row, there in zip(test, (True, False), strict=True):
            visit.tab.evaluate(f"location.hash = '#picture={row}'")
            visit.says("24 nearest pictures")
            assert link.is_visible() == there
            if there:
                address = link.get_attribute("href")
        name = visit.tab.locator("#report-link")
        assert name.is_visible()
        visit.tab.goto(f"{server}/{address}")
        visit.ready('.stage[data-ready="yes"]')
        assert f"digit {test[0]}" in visit.tab.locator("#map-panel").inner_text()
        figure = visit.tab.request.get(f"{server}/report/figures/recall.csv")
        assert figure.ok
        assert visit.tab.request.get(f"{server}/report/figures/run.json").status == 404
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
    assert visit.tab.locator("#query-picture").get_attribute("title") == name
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


def test_the_map_names_the_clusters_and_marks_the_query(
    browser: Any, server: str, model: EmbeddingModel
) -> None:
    visit = open_page(browser, server)
    named = visit.tab.evaluate("kinspaceMap.draw() || kinspaceMap.named()")
    assert 4 <= len(named) <= 10
    assert len(set(named)) == len(named)
    assert visit.tab.evaluate("kinspaceMap.query()") is None
    file = {"name": "mine.png", "mimeType": "image/png", "buffer": picture(20)}
    visit.tab.set_input_files("#file", files=[file])
    visit.says("24 nearest pictures. ")
    place = visit.tab.evaluate("kinspaceMap.place(kinspaceMap.query())")
    near = [
        visit.tab.evaluate(f"kinspaceMap.place({each.row})")
        for each in model.search(digits().pictures.read(20), 5)
    ]
    for axis in ("x", "y"):
        assert place[axis] == pytest.approx(sum(each[axis] for each in near) / 5, abs=0.1)
    visit.tab.click("#clear")
    visit.says(f"{ROWS} pictures")
    assert visit.tab.evaluate("kinspaceMap.query()") is None
    visit.close()


VISIONS = {  # Machado et al. 2009, on linear RGB
    "normal": np.eye(3),
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_color_blind_people_can_tell_the_colors_of_ten_classes(
    browser: Any, server: str, scheme: str
) -> None:
    visit = open_page(browser, server, color_scheme=scheme)
    texts = visit.tab.evaluate(f"[...Array({ROWS}).keys()].map(i => kinspaceMap.color(i))")
    colors = np.array([list(map(int, re.findall(r"\d+", each))) for each in dict.fromkeys(texts)])
    assert len(colors) == 10
    encoded = colors / 255
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    for name, matrix in VISIONS.items():
        lab = cielab(np.clip(linear @ np.array(matrix).T, 0, 1))
        apart = np.linalg.norm(lab[:, None] - lab, axis=2) + 100 * np.eye(10)
        assert apart.min() > 20, name  # 2 is just noticeable side by side
    visit.close()


def cielab(linear: np.ndarray) -> np.ndarray:
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = linear @ np.array(to_xyz).T / [0.9505, 1.0, 1.089]
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116).T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], 1)


def test_everything_goes_by_keyboard(browser: Any, server: str) -> None:
    visit = open_page(browser, server)
    order = []
    for _ in range(8):
        visit.tab.keyboard.press("Tab")
        order.append(
            visit.tab.evaluate("document.activeElement.id || document.activeElement.className")
        )
    assert order[0] == "skip"
    assert order[4:8] == ["file", "find", "class-filter", "attribute-filter"]
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
    assert visit.tab.locator("#query-picture").get_attribute("title") in said
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
    assert "of 100 strangers" in visit.tab.locator("#verdict").inner_text()
    assert visit.tab.locator("#verdict tbody tr").count() == 3
    assert "kind" not in visit.tab.locator("main").inner_text().replace("kinspace", "")
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
