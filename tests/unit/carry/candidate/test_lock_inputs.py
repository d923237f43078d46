"""What counts as an input of a result: every file that a template can reach."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import jinja2
import pytest
from refusing import refused

from patchkit.base.series_folder import SeriesDir
from patchkit.carry.candidate.inputs import digest_of_patch, hash_inputs
from patchkit.carry.placing.templates import BoundedEnvironment


@pytest.fixture
def series(tmp_path: Path) -> SeriesDir:
    root = tmp_path / "series"
    for name in ("patches/0001-demo/.parts/deep", "templates/.hidden"):
        (root / name).mkdir(parents=True)
    for name in ("patches/series.toml", "patches/0001-demo/patch.toml", "templates/shared.jinja"):
        (root / name).write_text(f'# {name}\nfolders = ["src/"]\n')
    return SeriesDir(root=root, origin="named")


def _inputs(series: SeriesDir) -> dict[str, str]:
    return hash_inputs((), ["0001-demo"], series)


@pytest.mark.parametrize(
    "name",
    ["patches/0001-demo/part.jinja", "patches/0001-demo/patchkit/part.jinja", "templates/deep/part.jinja"],
)
def test_every_template_is_an_input(series: SeriesDir, name: str) -> None:
    before = _inputs(series)
    assert list(before) == ["patches/0001-demo/patch.toml", "patches/series.toml", "templates/shared.jinja"]
    (series.root / name).parent.mkdir(exist_ok=True)
    (series.root / name).write_text("text")
    after = _inputs(series)
    assert after == {**before, name: hashlib.sha256(b"text").hexdigest()}


@pytest.mark.parametrize(
    ("added", "counts"),
    [
        ("# a word of comment", False),
        ('[gates]\nrequired = ["anchors"]\nwhy = "w"', False),
        ("[trust]\nmeasured = 3", False),
        ('[[fault]]\nid = "wrong"', True),
        ('folders = ["src/", "more/"]', True),
    ],
)
def test_of_the_rules_only_what_decides_a_byte_is_an_input(
    series: SeriesDir, added: str, counts: bool
) -> None:
    before = _inputs(series)
    rules = series.patches / "series.toml"
    rules.write_text(added if added.startswith("folders") else f"{rules.read_text()}{added}\n")
    assert (_inputs(series) != before) is counts


@pytest.mark.parametrize(
    "name",
    [
        "patches/0001-demo/.patch.toml.swp",
        "patches/0001-demo/patch.toml~",
        "patches/0001-demo/#patch.toml#",
        "patches/0001-demo/.parts/deep/part.jinja",
        "patches/0001-demo/evidence.toml",
        "templates/.hidden/part.jinja",
        "templates/patchkit/part.jinja",
    ],
)
def test_what_is_no_input_is_no_template(series: SeriesDir, name: str) -> None:
    before = _inputs(series)
    (series.root / name).parent.mkdir(exist_ok=True)
    (series.root / name).write_text("text")
    assert _inputs(series) == before
    # The lock does not cover it, so no patch may read it either.
    folders = [series.patches / "0001-demo", series.templates]
    environment = BoundedEnvironment(folders)
    inside = [Path(name).relative_to(start) for start in ("patches/0001-demo", "templates") if start in name]
    with pytest.raises(jinja2.TemplateNotFound):
        environment.get_template(inside[0].as_posix())
    assert inside[0].as_posix() not in environment.list_templates()


def test_a_patch_that_was_left_out_is_another_one_with_another_shared_template(series: SeriesDir) -> None:
    patch = SimpleNamespace(folder="0001-demo")
    before = digest_of_patch(patch, series)
    (series.templates / "shared.jinja").write_text("mended")
    assert digest_of_patch(patch, series) != before


def test_a_link_does_not_bring_in_what_no_hash_covers(series: SeriesDir) -> None:
    folder = series.patches / "0001-demo"
    (folder / ".parts/part.jinja").write_text("text")
    (folder / "parts").symlink_to(".parts", target_is_directory=True)
    (folder / "part.jinja").symlink_to(".parts/part.jinja")
    environment = BoundedEnvironment([folder, series.templates])
    for name in ("parts/part.jinja", "part.jinja", "deep/../.parts/part.jinja"):
        with pytest.raises(jinja2.TemplateNotFound):
            environment.get_template(name)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_name_that_the_lock_cannot_hold(series: SeriesDir) -> None:
    (series.root / "templates" / os.fsdecode(b"\xff.jinja")).write_text("text")
    with refused("LOCK_INPUT_UNUSABLE", match="is not UTF-8"):
        _inputs(series)


def test_a_file_that_cannot_be_read(series: SeriesDir, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root reads everything, so the refusal is made by hand.
    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with refused("LOCK_INPUT_UNUSABLE") as caught:
        _inputs(series)
    assert caught.value.why is not None
    assert caught.value.why.endswith("Permission denied")
