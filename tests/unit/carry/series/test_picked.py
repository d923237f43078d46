"""The file that pick writes and apply takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.base.errors import ConfigError
from patchkit.carry.series.picked import PickedFile, PickedPatch, PickedVerdict, load_picked, picked_text


def _file(verdict: PickedVerdict = "keep", why: str = "faster", device: str = "ROCm0") -> PickedFile:
    return PickedFile(
        format=1,
        archs=("gfx1151",),
        upstream="b11549",
        tree="0" * 40,
        device=device,
        models=("a", "b"),
        tests=("pp512",),
        patch=(
            PickedPatch(id="one", verdict=verdict, why=why),
            PickedPatch(id="two", verdict="leave out", why="slower"),
        ),
    )


@pytest.mark.parametrize("words", ["plain", 'quotes " and \\', "line\nbreak\t", "é\u2028\x7f\x1b[31m", "🙂"])
def test_what_is_written_is_read_again_whatever_the_words(words: str, tmp_path: Path) -> None:
    path = tmp_path / "picked.toml"
    written = _file(why=words, device=words)
    path.write_text(picked_text(written), "utf-8")
    read = load_picked(path)
    assert read.kept == ("one",)
    told = [(one.id, one.verdict, one.why) for one in read.patch]
    assert (read.device, told) == (written.device, [(one.id, one.verdict, one.why) for one in written.patch])


@pytest.mark.parametrize("word", ["unclear", "cannot tell"])  # the second is of earlier versions
def test_nothing_picked_is_nothing_to_apply(tmp_path: Path, word) -> None:
    path = tmp_path / "picked.toml"
    path.write_text(picked_text(_file(word)), "utf-8")
    with pytest.raises(ConfigError) as refused:
        load_picked(path)
    assert refused.value.code == "PICKED_NOTHING"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("format = 1", "format = 2"),
        ('verdict = "keep"', 'verdict = "maybe"'),
        ("archs =", "arch ="),
        ('archs = ["gfx1151"]', "archs = []"),
        ('id = "two"', 'id = "one"'),
        ('tree = "000', 'tree = "../'),
        ("[[patch]]", "[[patches]]"),
    ],
)
def test_another_file_is_refused(old: str, new: str, tmp_path: Path) -> None:
    path = tmp_path / "picked.toml"
    path.write_text(picked_text(_file()).replace(old, new), "utf-8")
    with pytest.raises(Exception) as refused:  # noqa: PT011  # one ConfigError or a group of them
        load_picked(path)
    assert "picked.toml" in str(getattr(refused.value, "where", "")) or hasattr(refused.value, "errors")
