"""The HTML page: valid, complete, to be used by everybody, and nothing in evidence is more than text."""

from __future__ import annotations

import itertools
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import html5lib
import pytest
from evidence_files import files_of

import patchkit.base.report
from patchkit.base.errors import GateError
from patchkit.base.report.blocks import Finding, Place, Report, Row, Section, Table, columns
from patchkit.base.report.html import html_report
from patchkit.prove.gates.anchors import AnchorsEvidence, FoundEdit
from patchkit.prove.gates.base import GateResult
from patchkit.prove.report.evidence import parse_evidence
from patchkit.prove.report.model import Run
from patchkit.prove.report.sweep import sweep_tables

STYLE = (Path(patchkit.base.report.__file__).parent / "page" / "style.css").read_text("utf-8")
SWEEP = {
    "archs": ["gfx1151"],
    "patches": ["one", "two"],
    "pins": [
        {
            "build": 6900,
            "patches": [
                {"id": "one", "class": "clean", "drift": []},
                {"id": "two", "class": "moved", "drift": [{}]},
            ],
        },
        {
            "build": 7079,
            "releases": ["v0.5.0"],
            "patches": [
                {"id": "two", "class": "conflict", "drift": []},
                {"id": "one", "class": "off", "drift": []},
            ],
        },
    ],
    "breaks": [{"patch": "two", "good": 6900, "bad": 7079, "class": "conflict", "reason": "gone"}],
}


def parse(page: str) -> ET.Element:
    """The tree of a page; any mistake in it is an error."""
    return html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)


def text_of(element: ET.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def with_class(root: ET.Element, name: str) -> Iterator[ET.Element]:
    return (each for each in root.iter() if name in each.get("class", "").split())


@pytest.fixture(scope="module")
def page(whole: Run) -> ET.Element:
    tables = tuple(sweep_tables(json.dumps(SWEEP).encode(), "sweep.json"))
    return parse(html_report(whole.report(sweep=tables, version="1.2.3")))


@pytest.fixture(scope="module")
def failing_page(failing: Run) -> ET.Element:
    return parse(html_report(failing.report()))


@pytest.fixture(scope="module")
def emulated_page(emulated: Run) -> ET.Element:
    return parse(html_report(emulated.report()))


@pytest.fixture(params=["page", "failing_page", "emulated_page"])
def any_page(request: pytest.FixtureRequest) -> ET.Element:
    return request.getfixturevalue(request.param)


def test_three_answers_come_first_then_what_to_do_and_what_was_not_proven(
    page: ET.Element, failing_page: ET.Element, whole: Run
) -> None:
    answers = [text_of(each) for each in next(with_class(page, "answers")).iter("div")]
    assert [text.partition("?")[0] for text in answers] == ["Does it fit", "Is it correct", "Is it faster"]
    assert "code for other GPUs is unchanged" in answers[0]
    headings = [text_of(each) for each in page.iter("h2")]
    assert headings[:2] == ["What to do now", "Not proven"]
    assert text_of(next(failing_page.iter("h2"))) == "Problems"
    shown = text_of(next(with_class(page, "open")))
    once = {"compile", *whole.strays}  # each the only one of its group, which says it in other words
    missing = [gate for gate, text in whole.open if " ".join(text.split()) not in shown]
    assert set(missing) <= once
    assert "patchkit verify --arch gfx1151 --upstream b6900" in shown


def test_the_headline_is_green_only_when_everything_ran(
    page, failing_page, emulated_page, whole: Run
) -> None:
    def state(root: ET.Element) -> str:
        return next(with_class(root, "headline")).get("class", "")

    assert state(page) == "headline not-run"
    assert state(failing_page) == "headline failed"
    assert state(emulated_page) == "headline passed-emulated"
    assert [text_of(each) for each in with_class(emulated_page, "passed-emulated") if each.tag == "span"] == [
        "≈ passed (emulated)"
    ] * 2
    passed = [gate for gate in whole.gates if gate.verdict == "passed"]
    all_passed = parse_evidence(
        files_of([GateResult(gate=one.name, verdict="passed", summary="") for one in passed]), "e"
    )
    assert state(parse(html_report(all_passed.report()))) == "headline passed"


def test_every_table_is_there_with_every_row(page: ET.Element, whole: Run) -> None:
    captions = {text_of(each) for each in page.iter("caption")}
    for table in (table for section in whole.report().sections for table in section.tables):
        assert (table.caption in captions) != table.is_unchanged
    assert "Kernel variants that did not change, and traps: 10." in text_of(page)
    (kernels,) = (
        each for each in page.iter("table") if text_of(each[0]).startswith("Kernel variants that changed")
    )
    bodies = list(kernels.iter("tbody"))
    assert [body.get("class") for body in bodies] == ["o0", "o1", "o2", "o3", "o4"]
    rows = [sorted(text_of(row) for row in body.iter("tr")) for body in bodies]
    assert rows[0] == rows[1] == rows[2] == rows[3] == rows[4]
    assert [text_of(row) for row in bodies[0].iter("tr")] != [text_of(row) for row in bodies[1].iter("tr")]


def test_problems_show_place_patch_reason_and_next_command(failing_page: ET.Element) -> None:
    first = text_of(next(with_class(failing_page, "problem")))
    for told in (
        "ISOLATION_TOKENS in isolation",
        "ggml/src/ggml-cuda/fattn.cu:42:7 (wmma-tile-params)",
        "patches/0001-p/patch.toml:9 (the edit)",
        "no patch is for this GPU",
        "patchkit diff --patch wmma-tile-params",
    ):
        assert told in first


def test_the_sweep_is_a_matrix_of_words(page: ET.Element) -> None:
    (matrix,) = (each for each in page.iter("table") if "Patches on 2 upstreams" in text_of(each[0]))
    assert [[text_of(cell) for cell in row] for row in matrix.iter("tr")] == [
        ["pin", "one", "two"],
        ["b6900", "clean", "moved*"],
        ["v0.5.0 (b7079)", "off", "CONFLICT"],
    ]


def test_landmarks_and_headings_are_in_order(any_page: ET.Element) -> None:
    body = any_page.find("body")
    assert [each.tag for each in body] == ["a", "header", "nav", "main", "footer"]
    assert body[0].get("href") == "#main"
    levels = [int(each.tag[1]) for each in any_page.iter() if re.fullmatch("h[1-6]", str(each.tag))]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert any_page.get("lang") == "en"


def test_everything_that_is_pointed_at_is_there_once(any_page: ET.Element) -> None:
    ids = [each.get("id") for each in any_page.iter() if each.get("id")]
    assert len(ids) == len(set(ids))
    wanted = [each.get("href")[1:] for each in any_page.iter("a")]
    wanted += [name for each in any_page.iter() for name in each.get("aria-labelledby", "").split()]
    assert len(wanted) > 5
    assert set(wanted) <= set(ids)


def test_tables_have_captions_and_headers_with_scope(any_page: ET.Element) -> None:
    tables = list(any_page.iter("table"))
    assert len(tables) > 3
    for table in tables:
        assert table[0].tag == "caption"
        assert text_of(table[0])
        assert all(cell.get("scope") == "col" for cell in table[1].iter("th"))
        for row in (row for body in table.iter("tbody") for row in body):
            assert [cell.get("scope") for cell in row if cell.tag == "th"] == ["row"]


def test_what_scrolls_can_be_reached_and_has_a_name(any_page: ET.Element) -> None:
    scrolling = list(with_class(any_page, "scroll"))
    assert scrolling
    for each in scrolling:
        assert (each.get("tabindex"), each.get("role")) == ("0", "region")
        assert each.get("aria-label") or each.get("aria-labelledby")
    inside = {table for each in scrolling for table in each.iter("table")}
    assert inside == set(any_page.iter("table"))


def test_controls_have_labels_and_groups_have_legends(page: ET.Element) -> None:
    inputs = list(page.iter("input"))
    assert len(inputs) > 6
    labelled = [one for label in page.iter("label") for one in label.iter("input") if text_of(label)]
    assert labelled == inputs
    assert all(group[0].tag == "legend" for group in page.iter("fieldset"))


def test_drawings_have_names_descriptions_and_no_meaning_by_colour_alone(page: ET.Element) -> None:
    drawings = [each for each in page.iter() if str(each.tag).endswith("svg")]
    assert len(drawings) == 5  # registers, LDS, changes, two speeds
    for drawing in drawings:
        assert drawing.get("role") == "img"
        assert drawing.get("aria-labelledby")
        description = next(each for each in drawing.iter() if str(each.tag).endswith("desc"))
        assert re.search(r"\d", text_of(description))
    shapes = {str(each.tag).rpartition("}")[2] for each in drawings[3].iter()}
    assert {"circle", "rect", "path"} <= shapes
    assert "stroke-dasharray" in STYLE


def test_verdicts_are_words_beside_their_colours(page: ET.Element) -> None:
    words = {text_of(badge).split(maxsplit=1)[1] for badge in with_class(page, "badge")}
    assert words == {"passed", "not run"}


def test_nothing_is_loaded_and_nothing_may_run(any_page: ET.Element) -> None:
    (policy,) = (each.get("content") for each in any_page.iter("meta") if each.get("http-equiv"))
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'")
    tags = {str(each.tag) for each in any_page.iter()}
    assert not tags & {"script", "img", "link", "iframe", "object", "embed", "form", "base", "audio", "video"}
    attributes = {name for each in any_page.iter() for name in each.attrib}
    assert not {
        name for name in attributes if name.startswith("on") or name in {"src", "srcset", "style", "action"}
    }
    assert all(each.get("href").startswith("#") for each in any_page.iter("a"))
    assert not re.search(r"url\(|@import|https?:", STYLE)


_HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style><script>x</script>",
    "{{ 7*7 }} {% include 'x' %}",
    "<!-- --> ]]> &amp; &#x3c;script&#x3e;",
    "a\x1b[31m\x00\u202eb\ud800",
    "'onmouseover='x'",
    "x" * 100_000,
)


@pytest.mark.parametrize("text", _HOSTILE, ids=range(len(_HOSTILE)))
def test_hostile_text_is_text_wherever_it_stands(text: str) -> None:
    class Hostile(GateError):
        code = text

    edit = FoundEdit(patch=text, edit=text, entity=text, entity_digest=text, confidence=text, places=(text,))
    result = GateResult(
        gate="anchors",
        verdict="failed",
        summary=text,
        problems=(Hostile(text, why=text, hint=text),),
        not_run=(text,),
        lines=(text,),
        evidence=AnchorsEvidence(edits=(edit,)),
    )
    changes = dict.fromkeys(("branch", "base", "tree", "stopped"), text) | {
        "archs": [text],
        "proven_with": [text],
        "tip": f"tip {text}",  # where it is the base's commit, there is nothing to prove
    }
    evidence = parse_evidence(files_of([result], **changes), "e")
    page = html_report(evidence.report())
    page.encode("utf-8")
    root = parse(page)
    test_nothing_is_loaded_and_nothing_may_run(root)
    told = evidence.gates[0].summary
    assert " ".join(told.split()) in text_of(root.find("body"))
    assert [each.tag for each in root.find("body")] == ["a", "header", "nav", "main", "footer"]
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", page)


def test_a_template_never_prints_nothing_for_a_name_it_lacks(tmp_path: Path) -> None:
    from jinja2 import UndefinedError

    from patchkit.base.report.html import render_page

    (tmp_path / "a.html").write_text("<p title='{{ here }}'>{{ there }}</p>")
    with pytest.raises(UndefinedError):
        render_page(tmp_path, "a.html", {"here": 1})
    shown = render_page(tmp_path, "a.html", {"here": "'<", "there": "<b>"})
    assert shown == "<p title='&#39;&lt;'>&lt;b&gt;</p>"


def _colours(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))


def _luminance(colour: str) -> float:
    """Of WCAG 2.2, "relative luminance"."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_have_the_contrast_that_wcag_asks_for_at_level_aa(scheme: str) -> None:
    light, dark, *_ = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
    colours = _colours(light if scheme == "light" else dark)
    assert set(colours) == set(_colours(light))

    def contrast(one: str, other: str) -> float:
        high, low = sorted((_luminance(colours[one]), _luminance(colours[other])), reverse=True)
        return (high + 0.05) / (low + 0.05)

    texts = [
        ("text", "page"),
        ("text", "sheet"),
        ("quiet", "page"),
        ("link", "page"),
        ("text", "none-back"),
        ("text", "bad-back"),
    ]
    texts += [(name, back) for name in ("good", "bad", "none") for back in (f"{name}-back",)]
    assert {pair: contrast(*pair) for pair in texts if contrast(*pair) < 4.5} == {}
    drawn = [("cand", "page"), ("base", "page"), ("focus", "page"), ("cand", "noise")]
    assert {pair: contrast(*pair) for pair in drawn if contrast(*pair) < 3} == {}


def test_the_style_sheet_knows_every_order_and_filter_that_a_page_may_have(whole: Run) -> None:
    from patchkit.base.report.html import _MOST_STATES
    from patchkit.prove.gates.resources import STATES

    orders = max(len(table.orders) for section in whole.report().sections for table in section.tables)
    assert set(re.findall(r"input\.o(\d):checked\) tbody\.o\1 ", STYLE.replace(",", " "))) == set(
        map(str, range(1, orders))
    )
    assert len(STATES) <= _MOST_STATES
    assert re.findall(r"input\.f(\d):not\(:checked\)\) \.r\1", STYLE) == list(map(str, range(_MOST_STATES)))


@pytest.mark.parametrize("text", _HOSTILE[:3], ids=range(3))
def test_what_there_is_instead_of_a_patch_is_text_too(text: str) -> None:
    result = GateResult(gate="anchors", verdict="not run", summary=text)
    nothing = {"ok": False, "nothing_to_prove": True, "available": {"sentence": text}}
    page = html_report(parse_evidence(files_of([result], **nothing), "e").report())
    assert text not in page
    assert text in text_of(parse(page))


def test_the_page_of_findings_takes_hostile_names_for_text() -> None:
    hostile = "</title><script>alert(1)</script>\x1b[31m\u202e\udcff"
    table = Table(
        name="findings",
        caption="Findings",
        columns=columns("kind", "source", "what~", "times #"),
        rows=(Row(cells=("races", hostile, f"{hostile} wrote", "3")),),
    )
    place = Place(path=hostile, label=hostile)
    finding = Finding(code="races", message=hostile, places=(place,), why=hostile)
    text = html_report(
        Report(
            command="patchkit sanitize",
            title=hostile,
            headline=hostile,
            facts=(("GPU", "emulated gfx1151"),),
            sections=(Section(title="Findings", blocks=(table, finding)),),
        )
    )
    page = parse(text)
    assert not list(page.iter("script"))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "Content-Security-Policy" in text
    assert [text_of(each) for each in page.iter("caption")] == ["Findings"]
    assert next(with_class(page, "headline")).get("class") == "headline failed"
    assert "<script>alert(1)</script>" in text_of(next(iter(page.iter("h1"))))
    text.encode("utf-8")
