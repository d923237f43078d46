"""Writing tuned rows into the text of a profile."""

from __future__ import annotations

import tomllib
from shutil import copytree

import pytest
from refusing import refused

from patchkit.base.errors import CacheError
from patchkit.carry.series.profile import load_profile
from patchkit.tune.profile_text import replace_rows, row_text, write_profile

TEXT = """arch = "gfx1151"
# a comment
[facts]
a = 1

# why the rows are so

[[tuning.wmma]]
head_size = 64

[[tuning.wmma]]
head_size = 80

[[tuning.tile]]
ncols = 2
"""


def _row(head_size=64, source="from a test") -> dict[str, int | str]:
    return {
        "head_size": head_size,
        "ncols": 16,
        "acc": "f16",
        "kq_stride": 128,
        "nwarps": 8,
        "min_waves": 1,
        "source": source,
        "measured_on": "nothing",
    }


def test_rows_replace_the_old_ones() -> None:
    made = replace_rows(TEXT, "wmma", [_row(64), _row(96)], "x.toml")
    assert [row["head_size"] for row in tomllib.loads(made)["tuning"]["wmma"]] == [64, 96]
    assert made.index("# why the rows") < made.index("[[tuning.wmma]]") < made.index("[[tuning.tile]]")
    assert replace_rows(made, "wmma", [_row(64), _row(96)], "x.toml") == made


def test_a_profile_without_rows_gets_them_at_the_end() -> None:
    made = replace_rows('arch = "gfx1102"\n', "wmma", [_row()], "x.toml")
    assert made == 'arch = "gfx1102"\n\n' + row_text("wmma", _row())


def test_every_character_of_a_source_survives() -> None:
    source = 'a "quoted" back\\slash\ttab\x7f and \u00e4'
    made = replace_rows(TEXT, "wmma", [_row(source=source)], "x.toml")
    assert tomllib.loads(made)["tuning"]["wmma"][0]["source"] == source


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a = [\n", "TOML"),
        ("[tuning]\nwmma = []\n", "TOML"),
        ('a = """\n[[tuning.wmma]]\n"""\n', "TOML|would change|not consecutive"),
    ],
)
def test_a_text_that_cannot_be_changed_safely_is_rejected(text, why) -> None:
    with refused("TUNE_PROFILE_NOT_WRITTEN") as caught:
        replace_rows(text, "wmma", [_row()], "x.toml")
    assert caught.value.why is not None
    assert any(word in caught.value.why for word in why.split("|"))


def test_a_real_profile_is_written_whole_and_loads(tmp_path, checkout) -> None:
    folder = tmp_path / "arch_profiles"
    copytree(checkout / "arch_profiles", folder)
    path = folder / "gfx1151.toml"
    before = load_profile(folder, "gfx1151")
    assert write_profile(path, "wmma", [_row(64), _row(128)])
    after = load_profile(folder, "gfx1151")
    assert [row.head_size for row in after.tuning.wmma] == [64, 128]
    assert (after.facts.by_name.keys(), after.patches.keys()) == (
        before.facts.by_name.keys(),
        before.patches.keys(),
    )
    assert not write_profile(path, "wmma", [_row(64), _row(128)])
    assert [each.name for each in folder.iterdir() if each.name.startswith(".")] == []


def test_a_missing_profile_is_a_disk_error(tmp_path) -> None:
    with pytest.raises(CacheError) as caught:
        write_profile(tmp_path / "none.toml", "wmma", [_row()])
    assert caught.value.code == "DISK_REFUSED"
