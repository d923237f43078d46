"""The apt sources (mirrors) of this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.base.errors import Location, ToolchainError

# Suites of Debian's main archive. A mirror of it has all of them, whichever the machine uses.
_MAIN_SUITE = re.compile(
    r"(?:(?:old)*stable|testing|unstable|sid|buster|bullseye|bookworm|trixie|forky|duke)(?:-updates|-backports)?"
)


_LIST_LINE = re.compile(
    r"deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)(?P<components>.*)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AptSource:
    """An apt source. ``signed_by`` is a path, fingerprints or a key block; None means apt's own keys."""

    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str | None = None

    def as_stanza(self) -> str:
        """The entry as a stanza of a ``.sources`` file.

        Options that weaken apt's checks (Trusted, Allow-Insecure) are omitted on purpose.
        """
        lines = [
            "Types: deb",
            f"URIs: {' '.join(self.uris)}",
            f"Suites: {' '.join(self.suites)}",
            f"Components: {' '.join(self.components)}",
        ]
        if self.signed_by is not None:
            lines.append(f"Signed-By: {self.signed_by}")
        return "\n".join(lines) + "\n"

    def for_suite(self, suite: str) -> AptSource:
        """The same mirror with another suite."""
        return replace(self, suites=(suite,), components=("main",))


def choose_mirror(entries: tuple[AptSource, ...]) -> AptSource:
    """The first entry for Debian's main archive.

    Raises:
        SDK_PACKAGES_UNAVAILABLE: no entry is for it.
    """
    for entry in entries:
        of_main = all(_MAIN_SUITE.fullmatch(suite) for suite in entry.suites)
        if of_main and "main" in entry.components:
            return entry
    named = sorted({suite for entry in entries for suite in entry.suites})
    raise ToolchainError(
        "no Debian mirror in the apt sources of this machine",
        code="SDK_PACKAGES_UNAVAILABLE",
        why=f"the sources have the suites {', '.join(named)}" if named else "there are no apt sources",
        hint="the SDK consists of Debian packages: use a Debian machine or container, or install ROCm",
    )


def load_entries(main: Path, parts: Path) -> tuple[AptSource, ...]:
    """All entries in apt's order: the main file, then the files of the folder by name.

    Raises:
        SDK_PACKAGES_UNAVAILABLE: a file cannot be read, or is not text.
    """
    paths = [main] if main.is_file() else []
    if parts.is_dir():
        paths += sorted(path for path in parts.iterdir() if path.suffix in {".list", ".sources"})
    entries: list[AptSource] = []
    for path in paths:
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ToolchainError(
                f"cannot read a file of the apt sources: {error}",
                code="SDK_PACKAGES_UNAVAILABLE",
                where=Location(path=str(path)),
                hint=f"check the file with: ls -l {path}",
            ) from error
        entries += (parse_sources if path.suffix == ".sources" else parse_list)(text)
    return tuple(entries)


def parse_list(text: str) -> tuple[AptSource, ...]:
    """The entries of a one-line-style file (``.list``); invalid lines are skipped, apt reports them."""
    entries = []
    for line in text.splitlines():
        found = _LIST_LINE.fullmatch(line.partition("#")[0].strip())
        if found is None or _is_medium(found["uri"]):
            continue
        options = dict(option.partition("=")[::2] for option in (found["options"] or "").split())
        entries.append(
            AptSource(
                uris=(found["uri"],),
                suites=(found["suite"],),
                components=tuple(found["components"].split()),
                signed_by=options.get("signed-by", "").replace(",", " ") or None,
            )
        )
    return tuple(entries)


def parse_sources(text: str) -> tuple[AptSource, ...]:
    """The entries of a deb822-style file (``.sources``)."""
    entries = []
    for fields in _stanzas(text):
        uris = tuple(uri for uri in fields.get("uris", "").split() if not _is_medium(uri))
        enabled = fields.get("enabled", "yes").strip().lower() not in {"no", "false", "0", "off", "disable"}
        if enabled and uris and "deb" in fields.get("types", "").split():
            entries.append(
                AptSource(
                    uris=uris,
                    suites=tuple(fields.get("suites", "").split()),
                    components=tuple(fields.get("components", "").split()),
                    signed_by=fields.get("signed-by") or None,
                )
            )
    return tuple(entries)


def _stanzas(text: str) -> Iterator[dict[str, str]]:
    """The stanzas as dicts with lower-case field names; multi-line values keep their line breaks."""
    fields: dict[str, str] = {}
    last = ""
    for line in [*text.splitlines(), ""]:
        if line.startswith("#"):
            continue
        if not line.strip():
            if fields:
                yield fields
            fields, last = {}, ""
        elif line[0] in " \t" and last:
            fields[last] += f"\n{line}"
        else:
            name, _, value = line.partition(":")
            last = name.strip().lower()
            fields[last] = value.strip()


def _is_medium(uri: str) -> bool:
    return uri.startswith("cdrom:")
