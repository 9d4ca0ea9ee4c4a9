"""The page in a browser: charts are drawn, keys and pointer work, and nothing is requested.

One Chromium serves all tests; without it, or without Playwright, they are skipped.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from report_cases import make_report

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
FLAGS = [
    *("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    *(["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []),
]


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as program:
        opened = program.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """A page of a fit and one whose names and cells are hostile."""
    folder = tmp_path_factory.mktemp("pages")
    for name, hostile in (("plain", False), ("hostile", True)):
        page = make_report(150, hostile=hostile).page().to_html()
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {path.stem: path for path in folder.iterdir()}


@pytest.fixture
def visit(browser, files):
    """Open a page; at the end, check that there were no console messages and no requests."""
    events: list[str] = []
    contexts = []

    def open_page(name: str = "plain", **settings: Any) -> Any:
        settings = {"viewport": {"width": 1200, "height": 900}, **settings}
        context = browser.new_context(**settings)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(600_000)
        page.on("console", lambda message: events.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: events.append(f"error: {error}"))
        page.on("dialog", lambda dialog: events.append(f"dialog: {dialog.message}"))
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith("file:")
                else events.append(f"request: {request.url}")
            ),
        )
        page.goto(files[name].as_uri())
        page.wait_for_selector("html[data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert events == []


@pytest.mark.parametrize("name", ["plain", "hostile"])
def test_every_chart_has_marks_and_a_description(visit, name):
    page = visit(name)
    figures = page.locator("figure[data-chart]")
    assert figures.count() == 10
    for i in range(figures.count()):
        figure = figures.nth(i)
        assert figure.locator("svg[role=img] .marks .mark").count() > 0
        label = figure.locator("svg[role=img]").get_attribute("aria-label")
        assert len(label) > 60
        box = figure.locator("svg[role=img]").bounding_box()
        assert box["width"] > 300 and box["height"] > 150


def column_texts(page: Any, table: str, column: int) -> list[str]:
    rows = page.locator(f"#{table} > tbody > tr:not(.detail):not([hidden])")
    return [rows.nth(i).locator("th, td").nth(column).inner_text() for i in range(rows.count())]


def test_tables_are_sorted_by_the_buttons_of_their_headers(visit):
    page = visit()
    table = page.locator("#rows-table-2")
    button = table.locator("thead button").nth(2)
    button.click()
    head = table.locator("thead th").nth(2)
    assert head.get_attribute("aria-sort") == "descending"
    values = [float(text.replace("−", "-")) for text in column_texts(page, "rows-table-2", 2)]
    assert values == sorted(values, reverse=True) and len(set(values)) > 5
    button.focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    values = [float(text.replace("−", "-")) for text in column_texts(page, "rows-table-2", 2)]
    assert values == sorted(values)


def test_a_row_opens_to_show_the_training_rows_behind_it(visit):
    page = visit()
    row = page.locator("#rows-table-1 > tbody > tr:not(.detail)").first
    button, detail = row.locator("button.opens"), page.locator("#rows-table-1 tr.detail").first
    assert not detail.is_visible() and button.get_attribute("aria-expanded") == "false"
    button.click()
    assert detail.is_visible() and button.get_attribute("aria-expanded") == "true"
    assert detail.locator("tbody tr").count() == 5


def test_a_filter_shows_the_rows_that_contain_all_words(visit):
    page = visit()
    before = column_texts(page, "rows-table-1", 2)
    kinds = column_texts(page, "rows-table-1", 6)
    entry = page.locator('input[data-table="rows-table-1"]')
    entry.fill(f"{before[3]} {kinds[3].upper()}")
    assert column_texts(page, "rows-table-1", 2) == [before[3]]
    assert page.locator("#rows-table-1-count").inner_text() == "1 of 10 rows"
    entry.fill("")
    assert column_texts(page, "rows-table-1", 2) == before


def test_the_dependence_can_be_selected_for_every_column(visit):
    page = visit()
    select, figure = page.locator("#dependence-choice"), page.locator("#figure-dependence")
    names = select.locator("option").all_inner_texts()
    assert sorted(names) == ["day", "kind", "noise", "size"]
    assert figure.locator("h3").inner_text() == f"Dependence on {names[0]}"
    seen = set()
    for name in names:
        select.select_option(label=name)
        assert figure.locator("h3").inner_text() == f"Dependence on {name}"
        seen.add(figure.locator("svg[role=img]").get_attribute("aria-label"))
        assert figure.locator(".marks .points").count() > 1
    assert len(seen) == 4


def ticks(figure: Any) -> list[str]:
    return figure.locator(".axes text").all_inner_texts()


def test_keys_zoom_move_and_reset_a_chart(visit):
    figure = visit().locator("#figure-predicted")
    plot, before = figure.locator(".plot"), ticks(figure)
    plot.focus()
    plot.press("+")
    nearer = ticks(figure)
    plot.press("ArrowRight")
    assert nearer != before and ticks(figure) not in (before, nearer)
    assert figure.get_attribute("data-zoomed") is not None
    plot.press("-")
    plot.press("0")
    assert ticks(figure) == before and figure.get_attribute("data-zoomed") is None


def test_a_rectangle_zooms_and_a_double_click_or_the_button_shows_all(visit):
    page = visit()
    figure = page.locator("#figure-predicted")
    before, svg = ticks(figure), figure.locator("svg[role=img]")
    figure.scroll_into_view_if_needed()

    def drag() -> None:
        box = svg.bounding_box()
        page.mouse.move(box["x"] + 150, box["y"] + 80)
        page.mouse.down()
        page.mouse.move(box["x"] + 300, box["y"] + 240, steps=4)
        page.mouse.up()

    drag()
    assert ticks(figure) != before
    figure.locator("button[data-zoom=reset]").click()
    assert ticks(figure) == before
    drag()
    figure.locator(".plot").dblclick()
    assert ticks(figure) == before


def test_the_pointer_shows_the_values_of_the_nearest_mark(visit):
    page = visit()
    figure = page.locator("#figure-predicted")
    figure.scroll_into_view_if_needed()
    point = figure.locator(".marks circle.points").first.bounding_box()
    page.mouse.move(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
    tip = figure.locator(".tip")
    assert tip.is_visible()
    for words in ("predicted y:", "observed y:", "row "):
        assert words in tip.inner_text()
    page.mouse.move(2, 2)
    assert not tip.is_visible()


def test_data_of_a_chart_are_shown_as_a_table_on_request(visit):
    figure = visit().locator("#figure-calibration")
    figure.locator("summary").click()
    figure.locator("details.data tbody tr").first.wait_for()  # the toggle event is asynchronous
    assert figure.locator("details.data tbody tr").count() == 2 * 49
    assert "observed" in figure.locator("details.data").inner_text()


@pytest.mark.parametrize(("name", "scheme"), [("plain", "light"), ("hostile", "dark")])
def test_axe_finds_nothing_serious(visit, name, scheme):
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = visit(name, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.locator("button.opens").first.click()
    found = axe.Axe().run(page).response
    grave = [
        (violation["id"], [node["html"][:200] for node in violation["nodes"][:3]])
        for violation in found["violations"]
        if violation["impact"] in ("serious", "critical")
    ]
    assert grave == [] and len(found["passes"]) > 15


@pytest.mark.parametrize("name", ["plain", "hostile"])
def test_a_narrow_screen_needs_no_sideways_scrolling(visit, name):
    page = visit(name, viewport={"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    for box in (figure.bounding_box() for figure in page.locator("svg[role=img]").all()):
        assert box["x"] >= 0 and box["x"] + box["width"] <= 400


def test_the_colours_follow_the_system_and_the_switch(visit):
    page = visit(color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.locator("#theme").click()
    light = page.evaluate(ground)
    assert light == "rgb(255, 255, 255)" and dark != light
    page.locator("#theme").click()
    assert page.evaluate(ground) == dark


def test_print_has_all_charts_and_opened_rows_in_light_colours(visit):
    page = visit(color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for figure in page.locator("figure[data-chart] svg[role=img]").all():
        box = figure.bounding_box()
        assert figure.is_visible() and box["width"] > 200
    assert all(row.is_visible() for row in page.locator("tr.detail").all())
    assert page.locator("#made dl").is_visible()
    assert not page.locator("nav").is_visible() and not page.locator(".tools").first.is_visible()


def test_a_page_without_javascript_still_shows_its_numbers(browser, files):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(files["plain"].as_uri())
    assert "% intervals contained" in page.locator(".sentence").inner_text()
    assert page.locator("tr.detail").first.is_visible()
    context.close()
