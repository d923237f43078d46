from __future__ import annotations

import pytest

from patchkit.pull.changes import Change, part_of


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("arch_profiles/gfx1151.toml", "profile"),
        ("arch_profiles/families/rdna3.toml", "profile"),
        ("arch_profiles/schema.json", "code"),
        ("patches/0001-wmma/patch.toml", "patch"),
        ("patches/0001-wmma/deep/table.cuh.jinja", "patch"),
        ("patches/0001-wmma/README.md", "patch"),  # the lock records it
        ("patches/0001-wmma/.patch.toml.swp", "docs"),  # no template can read it, no hash covers it
        ("patches/series.toml", "rules"),
        ("patches/upstream.lock", "lock"),
        ("patches/upstreams.toml", "catalogue"),
        ("patches/lock.schema.json", "code"),
        ("templates/shared.jinja", "template"),
        ("templates/README.md", "template"),
        ("README.md", "docs"),
        ("LICENSE", "docs"),
        ("docs/gates.md", "docs"),
        ("docs/pictures/speed.svg", "docs"),
        ("docs/conf.py", "code"),
        ("patchkit/notes.md", "code"),
        ("patchkit/cli/app.py", "code"),
        (".github/workflows/gate.yml", "code"),
        ("pyproject.toml", "code"),
        ("tests/README.md", "code"),
    ],
)
def test_a_path_belongs_to_one_part(path: str, part: str) -> None:
    assert part_of(Change(path=path, status="changed", mode="100644")) == part


def test_a_link_among_the_documents_is_no_document() -> None:
    assert part_of(Change(path="docs/how.md", status="added", mode="120000")) == "code"
