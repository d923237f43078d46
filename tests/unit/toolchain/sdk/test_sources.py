"""The apt sources of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusing import refused

from patchkit.toolchain.sdk.sources import AptSource, choose_mirror, load_entries, parse_list, parse_sources

DEBIAN = "http://mirror.example/debian"


def test_one_line_entries() -> None:
    text = (
        f"# a comment\n\ndeb {DEBIAN} bookworm main contrib # trailing\n"
        f"deb-src {DEBIAN} bookworm main\n"
        f"deb [arch=amd64 signed-by=/k/a.gpg,/k/b.gpg] {DEBIAN}-security bookworm-security main\n"
        "deb cdrom:[Debian 12]/ bookworm main\nnonsense\n"
    )
    assert parse_list(text) == (
        AptSource(uris=(DEBIAN,), suites=("bookworm",), components=("main", "contrib")),
        AptSource(
            uris=(f"{DEBIAN}-security",),
            suites=("bookworm-security",),
            components=("main",),
            signed_by="/k/a.gpg /k/b.gpg",
        ),
    )


def test_stanzas_with_a_key_inside() -> None:
    text = (
        f"Types: deb deb-src\n# a comment\nURIs: {DEBIAN}\nSuites: trixie trixie-updates\nComponents: main\n"
        "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n\n\n"
        f"Types: deb\nURIs: {DEBIAN}\nSuites: sid\nComponents: main\nEnabled: no\n\n"
        f"Types: deb-src\nURIs: {DEBIAN}\nSuites: sid\nComponents: main\n"
    )
    (entry,) = parse_sources(text)
    assert entry.suites == ("trixie", "trixie-updates")
    assert entry.signed_by == "\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc"
    assert parse_sources(entry.as_stanza()) == (entry,)


def test_options_that_weaken_checks_are_omitted() -> None:
    (entry,) = parse_list(f"deb [trusted=yes allow-insecure=yes] {DEBIAN} sid main")
    (stanza,) = parse_sources(f"Types: deb\nTrusted: yes\nURIs: {DEBIAN}\nSuites: sid\nComponents: main\n")
    assert entry == stanza
    assert "rusted" not in entry.as_stanza()


def test_files_are_read_in_apts_order(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "sources.list").write_text(f"deb {DEBIAN} bookworm main\n")
    (tmp_path / "parts/b.list").write_text(f"deb {DEBIAN} b main\n")
    (tmp_path / "parts/a.sources").write_text(f"Types: deb\nURIs: {DEBIAN}\nSuites: a\nComponents: main\n")
    (tmp_path / "parts/c.list.disabled").write_text(f"deb {DEBIAN} c main\n")
    entries = load_entries(tmp_path / "sources.list", tmp_path / "parts")
    assert [entry.suites for entry in entries] == [("bookworm",), ("a",), ("b",)]
    assert load_entries(tmp_path / "none", tmp_path / "nowhere") == ()


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.list").write_bytes(b"deb \xff\xfe")
    with refused("SDK_PACKAGES_UNAVAILABLE") as caught:
        load_entries(tmp_path / "none", tmp_path)
    assert caught.value.where[0].path == str(tmp_path / "bad.list")


def test_the_mirror_is_the_main_archive() -> None:
    entries = parse_list(
        f"deb http://apt.example/node nodistro main\ndeb {DEBIAN}-security bookworm-security main\n"
        f"deb {DEBIAN} bookworm-updates main\n"
    )
    mirror = choose_mirror(entries)
    assert mirror.uris == (DEBIAN,)
    assert mirror.for_suite("forky").as_stanza() == (
        f"Types: deb\nURIs: {DEBIAN}\nSuites: forky\nComponents: main\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("deb http://mirror.example/ubuntu noble main universe", "the sources have the suites noble"),
        ("", "there are no apt sources"),
    ],
)
def test_without_a_debian_mirror_the_error_lists_the_suites(text: str, expected: str) -> None:
    with refused("SDK_PACKAGES_UNAVAILABLE") as caught:
        choose_mirror(parse_list(text))
    assert caught.value.why == expected
