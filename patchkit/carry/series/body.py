"""Detect whether the edits and files of an imported patch.toml were changed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import tomlkit
from tomlkit.items import Whitespace

from patchkit.base.digests import key_of, sha256
from patchkit.base.files import disk_errors
from patchkit.carry.series.patch import Patch

NOTE = "# A hunk of text: "
"""The beginning of comments that patchkit writes above an edit."""


BODY_TABLES = ("file", "edit", "remove", "rename", "mode")
"""The tables that an import rewrites. Append new ones: the order is part of digests already written."""


def body_digest(text: str, templates: Mapping[str, str]) -> str:
    """sha256 over the tables of files and edits of a patch.toml, their comments, and the templates.

    Layout and patchkit's own notes are not included.
    """
    document = tomlkit.parse(text)
    tables = [table for key in BODY_TABLES for table in document.get(key, [])]
    items = [item for table in tables for _, item in table.value.body if not isinstance(item, Whitespace)]
    comments = [item.trivia.comment for item in items]
    hashed = {name: sha256(each.encode("utf-8", "surrogateescape")) for name, each in templates.items()}
    hashed_parts = {
        "tables": [table.unwrap() for table in tables],
        "comments": [each for each in comments if each and not each.startswith(NOTE)],
        "templates": hashed,
    }
    return key_of(hashed_parts)


def named_templates(text: str, folder: Path) -> dict[str, str]:
    """The templates in a patch's own folder that its ``[[file]]`` and ``[[edit]]`` tables name."""
    own = named_files(text, folder, "template")
    with disk_errors(folder, "reading the patch"):
        return {name: (folder / name).read_bytes().decode("utf-8", "surrogateescape") for name in own}


def named_files(text: str, folder: Path, key: str) -> list[str]:
    """The files in a patch's own folder named by ``key`` in its tables of files and edits."""
    document = tomlkit.parse(text)
    tables = [table for each in BODY_TABLES for table in document.get(each, [])]
    with disk_errors(folder, "reading the patch"):
        return [str(table[key]) for table in tables if key in table and (folder / str(table[key])).is_file()]


def is_as_imported(patch: Patch, patches: Path) -> bool:
    """Whether the edits of a patch in the folder ``patches`` are unchanged since its import."""
    recorded = patch.upstream.digest if patch.upstream is not None else None
    folder = patches / patch.folder
    with disk_errors(folder, "reading the patch"):
        text = (folder / "patch.toml").read_text("utf-8")
    return recorded is not None and recorded == body_digest(text, named_templates(text, folder))
