"""The page in a browser: updates, accessibility, and no requests to other sites."""

import os
from pathlib import Path

import pandas as pd
import pytest
from serve_cases import TOKEN, served

from sigmax.serve.limits import ServeOptions

CHROMIUM = os.environ.get("SIGMAX_CHROMIUM", "/usr/bin/chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]


@pytest.fixture(scope="module")
def address(saved):
    with served(saved, ServeOptions(port=0, request_seconds=600.0)) as port:
        yield f"http://127.0.0.1:{port}/"


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no Chromium at {CHROMIUM}; SIGMAX_CHROMIUM names another one")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser, address):
    """Open the page; in the end, the console must be empty and all requests local."""
    contexts, messages, asked = [], [], []

    def open_with(**how):
        context = browser.new_context(**how)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(600_000)
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        page.wait_for_selector("#curve .outline")
        page.wait_for_selector("#neighbors tbody tr")
        return page

    yield open_with
    for context in contexts:
        context.close()
    assert not messages
    assert asked and all(url.startswith((address, "blob:" + address[:-1])) for url in asked)


def outline(page):
    return page.get_attribute("#curve .outline", "d")


def wait_for_change(page, before):
    page.wait_for_function("d => document.querySelector('#curve .outline')"
                           ".getAttribute('d') !== d", arg=before)  # fmt: skip


def test_the_density_and_its_summary_update_while_typing(open_page):
    page = open_page()
    assert page.inner_text("h1") == "minutes"
    before, said = outline(page), page.inner_text("#summary")
    page.get_by_label("distance_km").fill("4.5")
    wait_for_change(page, before)
    assert page.inner_text("#summary") != said
    assert page.get_attribute("#summary", "aria-live") == "polite"
    assert page.locator("#curve .half").count() == page.locator("#curve .most").count() == 1
    before = outline(page)
    page.get_by_role("button", name="Typical values").click()
    wait_for_change(page, before)
    assert page.inner_text("#summary") == said


def test_rows_out_of_distribution_get_a_warning_and_training_rows_are_shown(open_page):
    page = open_page()
    assert page.inner_text("#note") == ""
    page.get_by_label("distance_km").fill("5000")
    page.wait_for_selector("#note strong")
    assert "out of distribution" in page.inner_text("#note")
    assert "distance_km above" in page.inner_text("#note")
    page.get_by_role("button", name="Typical values").click()
    page.wait_for_function("() => document.querySelector('#note').textContent === ''")
    head = page.locator("#neighbors th").all_inner_texts()
    assert head == ["row", "weight"]


def test_the_columns_that_make_a_prediction_narrower_are_named_on_demand(open_page):
    page = open_page()
    page.get_by_role("button", name="Why is it uncertain?").click()
    page.wait_for_selector("#effects li")
    assert "Knowing distance_km makes this prediction " in page.inner_text("#effects")
    before = outline(page)
    page.get_by_label("distance_km").fill("4.5")
    wait_for_change(page, before)
    assert page.inner_text("#effects") == ""


def test_the_prediction_stays_visible_on_a_phone(open_page):
    page = open_page(viewport={"width": 400, "height": 800})
    page.get_by_label("weight_kg").scroll_into_view_if_needed()
    page.evaluate("window.scrollTo(0, 500)")
    box = page.locator("#summary").bounding_box()
    assert box["y"] == 0 and box["height"] < 120
    assert "in 9 of 10 cases" in page.inner_text("#summary")


def test_missing_values_and_unseen_categories_can_be_entered(open_page):
    page = open_page()
    before = outline(page)
    page.get_by_label("vehicle", exact=True).select_option("other, not in this list")
    page.wait_for_selector("#note p")
    assert "vehicle 'something else' unseen" in page.inner_text("#note")
    wait_for_change(page, before)
    before = outline(page)
    page.get_by_label("weather", exact=True).select_option("missing")
    wait_for_change(page, before)
    before = outline(page)
    page.get_by_label("weight_kg").fill("")
    wait_for_change(page, before)


def test_the_form_works_with_the_keyboard_only(open_page):
    page = open_page()
    reached = []
    for _ in range(24):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("document.activeElement.id || document.activeElement.type || ''")
        )
    fields = [one for one in dict.fromkeys(reached) if one.startswith("field-")]
    assert len(fields) == 8
    before = outline(page)
    page.get_by_label("vehicle", exact=True).focus()
    page.keyboard.press("ArrowDown")
    wait_for_change(page, before)


def test_a_file_is_predicted_and_downloaded(open_page, table, tmp_path):
    page = open_page()
    page.set_input_files("#file", str(table))
    page.get_by_role("button", name="Predict the file").click()
    page.wait_for_selector("#file-result:not([hidden])")
    assert page.inner_text("#file-status") == "250 rows predicted; the file is ready"
    with page.expect_download() as waiting:
        page.click("#download")
    assert waiting.value.suggested_filename == "predicted.csv"
    waiting.value.save_as(tmp_path / "predicted.csv")
    found = pd.read_csv(tmp_path / "predicted.csv")
    assert len(found) == 250 and list(found.columns)[-8] == "mean"


def test_a_file_without_the_columns_shows_an_error(browser, address, tmp_path):
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    page.set_input_files("#file", str(tmp_path / "bad.csv"))
    page.get_by_role("button", name="Predict the file").click()
    page.wait_for_function(
        "() => document.querySelector('#file-status').textContent.includes('column')"
    )
    assert "which the model needs" in page.inner_text("#file-status")
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 400])
def test_the_page_is_accessible_and_does_not_scroll_sideways(open_page, scheme, width, tmp_path):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe installed")
    page = open_page(color_scheme=scheme, viewport={"width": width, "height": 900})
    page.get_by_label("distance_km").fill("5000")
    page.wait_for_selector("#note strong")
    found = axe.Axe().run(page).response["violations"]
    assert not [(one["id"], one["impact"]) for one in found if one["impact"] != "minor"]
    inner, whole = page.evaluate("[innerWidth, document.documentElement.scrollWidth]")
    assert whole <= inner == width
    folder = Path(os.environ.get("SIGMAX_SCREENSHOTS") or tmp_path)
    page.screenshot(path=folder / f"page-{scheme}-{width}.png", full_page=True)


def test_the_page_asks_for_the_token_as_a_password(browser, saved):
    with served(saved, ServeOptions(port=0, token=TOKEN, request_seconds=600.0)) as port:
        for password, status in (("wrong", 401), (TOKEN, 200)):
            credentials = {"username": "anybody", "password": password}
            context = browser.new_context(http_credentials=credentials)
            page = context.new_page()
            answer = page.goto(
                f"http://127.0.0.1:{port}/", wait_until="commit" if status == 401 else "load"
            )
            assert answer.status == status
            if status == 200:
                page.wait_for_selector("#curve .outline")
            context.close()
