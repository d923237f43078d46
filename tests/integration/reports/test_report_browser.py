"""The page in a browser: it fits a phone, works by keyboard, has two colour schemes, runs and loads nothing.

Needs Chromium (the distribution's, on the PATH) and ``pip install 'patchkit[browser]'``; run with
``pytest -m browser``. ``PATCHKIT_SHOTS=DIR`` keeps the screenshots there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from patchkit.base.report.html import html_report
from patchkit.prove.report.evidence import parse_evidence
from patchkit.prove.report.sweep import sweep_tables

pytestmark = pytest.mark.browser

CORPUS = Path(__file__).resolve().parents[2] / "corpus" / "evidence"
_SHOTS = os.environ.get("PATCHKIT_SHOTS")  # read before tests get an environment of their own
_PINS = [
    {"build": build, "patches": [{"id": f"patch-{at}", "class": "clean", "drift": []} for at in range(14)]}
    for build in range(6900, 6914)
]
SWEEP = {"archs": ["gfx1151"], "patches": [f"patch-{at}" for at in range(14)], "pins": _PINS, "breaks": []}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of the whole evidence, and one whose texts try to be markup."""
    files = {path.name: path.read_bytes() for path in (CORPUS / "whole").glob("*.json")}
    hostile = (CORPUS / "hostile" / "fine--report--markup.json").read_bytes()
    sweep = tuple(sweep_tables(json.dumps(SWEEP).encode(), "sweep.json"))
    made = {}
    for name, texts in (("whole", files), ("hostile", {**files, "report.json": hostile})):
        made[name] = tmp_path_factory.mktemp("pages") / f"{name}.html"
        made[name].write_text(html_report(parse_evidence(texts, "evidence").report(sweep=sweep)), "utf-8")
    return made


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as playwright:
        # As root, as in a container, Chromium's own sandbox does not start.
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def show(browser: Any, pages: dict[str, Path]) -> Iterator[Any]:
    """Opens a page; whatever it loads, says or asks is an error when the test ends."""
    noise: list[str] = []
    contexts = []

    def start(name: str, width: int = 1280, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: noise.append(message.text))
        page.on("pageerror", lambda error: noise.append(str(error)))
        page.on("dialog", lambda dialog: (noise.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: noise.append(request.url))
        page.goto(pages[name].as_uri())
        assert noise.pop(0) == pages[name].as_uri()
        return page

    yield start
    for context in contexts:
        context.close()
    assert noise == []


@pytest.mark.parametrize("name", ["whole", "hostile"])
@pytest.mark.parametrize("width", [1280, 1000, 360, 320])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_never_scrolls_sideways(show, tmp_path: Path, name: str, width: int, scheme: str) -> None:
    page = show(name, width, scheme)
    _unfold(page)
    root = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert root == [width, width]
    shot = Path(_SHOTS or tmp_path) / f"{name}-{width}-{scheme}.png"
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = false)")
    page.screenshot(path=shot, full_page=True)
    assert shot.read_bytes().startswith(b"\x89PNG")


def test_wide_tables_scroll_inside_of_themselves_on_a_phone(show) -> None:
    page = show("whole", 360)
    _unfold(page)
    sizes = page.eval_on_selector_all(
        ".sheet > .scroll", "all => all.map(one => [one.scrollWidth, one.clientWidth])"
    )
    shown = [(inner, outer) for inner, outer in sizes if outer]
    assert any(inner > outer for inner, outer in shown)
    assert all(outer <= 360 for _, outer in shown)
    drawn = page.eval_on_selector_all(
        "figure .scroll", "all => all.map(one => one.scrollWidth - one.clientWidth)"
    )
    assert drawn == [0] * 5


def test_both_colour_schemes_are_there(show) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        page = show("whole", 1280, scheme)
        colours[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert colours == {"light": "rgb(255, 255, 255)", "dark": "rgb(18, 22, 27)"}


def test_the_keyboard_reaches_everything_in_order_and_shows_where_it_is(show) -> None:
    page = show("whole")
    places, outlines = [], []
    for _ in range(40):
        page.keyboard.press("Tab")
        at, outline = page.evaluate(
            "[[...document.querySelectorAll('*')].indexOf(document.activeElement),"
            " getComputedStyle(document.activeElement).outlineStyle]"
        )
        places.append(at)
        outlines.append(outline)
    assert places == sorted(set(places))
    assert set(outlines) == {"solid"}


def test_the_first_stop_is_the_way_past_the_navigation(show) -> None:
    page = show("whole")
    page.keyboard.press("Tab")
    link = page.locator(":focus")
    assert link.inner_text() == "Skip to the results"
    box = link.bounding_box()
    assert box["x"] >= 0
    assert box["y"] >= 0
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")


def test_rows_are_ordered_and_hidden_by_keyboard_alone(show) -> None:
    page = show("whole")
    _unfold(page)
    sheet = page.locator(".sheet", has=page.get_by_role("radio")).first

    def variants() -> list[str]:
        return [row.inner_text() for row in sheet.locator("tbody th").all() if row.is_visible()]

    first = variants()
    assert len(first) == 18
    sheet.get_by_role("radio", name="importance").focus()
    page.keyboard.press("ArrowRight")
    assert sheet.get_by_role("radio", name="name of the variant").is_checked()
    assert variants() == sorted(first)
    assert variants() != first
    sheet.get_by_role("checkbox", name="new").focus()
    page.keyboard.press("Space")
    assert len(variants()) == 8
    assert all(name.startswith("flash_attn_ext_f16") for name in variants())


def _unfold(page: Any) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")


def test_a_screen_reader_finds_landmarks_headings_and_named_tables(show) -> None:
    page = show("whole")
    _unfold(page)
    tree = page.locator("body").aria_snapshot()
    for line in (
        "- banner:",
        '- navigation "Sections":',
        "- main:",
        "- contentinfo:",
        '- heading "candidate/gfx1151/b6900" [level=1]',
        "- term: Does it fit?",
        '- heading "What to do now" [level=2]',
        '- heading "Not proven" [level=2]',
        '- region "Kernel variants that changed, baseline -> candidate"',
        '- group "Order by"',
        '- radio "importance" [checked]',
        '- columnheader "VGPRs"',
    ):
        assert line in tree, line
    assert re.search(r'- rowheader "flash_attn_ext_f16 head size 128, 16 columns', tree)
    assert re.search(r'img "Change of each test against the baseline tg16@d0: -0\.1 %', tree)


def test_texts_that_try_to_be_markup_are_seen_as_text(show) -> None:
    page = show("hostile")
    assert "<script>alert(1)</script><img src=x" in page.locator("h1").inner_text()
    assert page.locator("script, img").count() == 0
    assert page.locator("main > section").count() > 3
