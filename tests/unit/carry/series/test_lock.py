"""upstream.lock: read, checked, written in one step, and changed by several at once."""

from __future__ import annotations

import base64
import hashlib
import re
import resource
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.errors import ConfigError, ErrorGroup
from patchkit.base.toml import parse_toml
from patchkit.carry.series.git_object import commit_date
from patchkit.carry.series.lock import (
    Followed,
    GitSource,
    Lock,
    Result,
    SdistSource,
    format_lock,
    load_lock,
    parse_lock,
    record_result,
    write_lock,
)

TREE = "2ce50226eadb9957ae4adba311d1516c7758f80f"
RAW = (
    f"tree {TREE}\nauthor A <a@x> 1761900859 +0200\ncommitter A <a@x> 1761900859 +0200\n\nmessage\n"
).encode()
COMMIT = hashlib.sha1(b"commit %d\0" % len(RAW) + RAW).hexdigest()
SHA256 = "0" * 64

TEXT = f"""version = 2
default = "b10"

[[pin]]
name = "b10"
commit = "{COMMIT}"
tree = "{TREE}"
committed = "2025-10-31T10:54:19+02:00"
commit_object = "{base64.b64encode(RAW).decode()}"

[[pin.source]]
kind = "git"
url = "https://host/llama.cpp.git"

[[pin.source]]
kind = "sdist"
package = "pkg"
version = "1.0"
sha256 = "{SHA256}"
subdir = "a/b"
omit = [".git"]

[[pin]]
name = "b11"
commit = "{"ab" * 20}"
tree = "{TREE}"
committed = "2025-11-01T00:00:00Z"
source = [{{ kind = "git", url = "u" }}]

[[pin]]
name = "b12"
tree = "{TREE}"
committed = "2025-11-01T00:00:00Z"
source = [{{ kind = "sdist", package = "pkg", version = "2", sha256 = "{SHA256}", subdir = "a" }}]

[[result]]
pin = "b10"
archs = ["gfx1100", "gfx1151"]
patches = ["two", "one"]
tree = "{TREE}"
commit = "{COMMIT}"

[result.inputs]
"patches/0001-one/patch.toml" = "{SHA256}"

[result.rendered]
"one/edit" = "{SHA256}"

[result.entities]
"a.cu::kernel<int D>" = "{SHA256}"
"""


def _parse(text: str) -> Lock:
    return parse_lock(parse_toml("upstream.lock", text.encode()))


def _errors(old: str, new: str) -> tuple[ConfigError, ...]:
    assert old in TEXT
    with pytest.raises(ErrorGroup) as caught:
        _parse(TEXT.replace(old, new, 1))
    errors = caught.value.errors
    assert all(isinstance(error, ConfigError) for error in errors)
    return errors  # type: ignore[return-value]


def test_a_lock_is_read_whole() -> None:
    lock = _parse(TEXT)
    pin = lock.pins[0]
    assert (pin.build, pin.name, pin.commit, pin.tree, pin.commit_object) == (10, "b10", COMMIT, TREE, RAW)
    assert pin.sources == (
        GitSource(url="https://host/llama.cpp.git"),
        SdistSource(package="pkg", version="1.0", sha256=SHA256, subdir="a/b", omit=(".git",)),
    )
    assert lock.pins[2].commit is None
    assert lock.results[0].patches == ("two", "one")
    assert lock.results[0].entities == {"a.cu::kernel<int D>": SHA256}


@pytest.mark.parametrize(
    "wanted", [None, "10", "b10", "B10", COMMIT, COMMIT[:7], COMMIT[:4].upper()], ids=repr
)
def test_a_pin_is_found(wanted: str | None) -> None:
    assert _parse(TEXT).pin(wanted).build == 10


@pytest.mark.parametrize("wanted", ["b13", "9", "abab0", "ab", "", "latest"], ids=repr)
def test_a_pin_that_is_not_there_names_those_that_are(wanted: str) -> None:
    with refused("PIN_UNKNOWN") as caught:
        _parse(TEXT).pin(wanted)
    assert "b10, b11, b12" in (caught.value.hint or "")
    assert ("patchkit bump --to b13" in (caught.value.hint or "")) == (wanted == "b13")


def test_a_lock_of_version_1_is_read_as_the_same_lock() -> None:
    position = TEXT.index("[[result]]")
    now = f"{TEXT[:position]}{DROPPED}\n{TEXT[position:]}"
    text = now.replace("version = 2", "version = 1").replace('default = "b10"', "default = 10")
    text = text.replace("pin.dropped", "pin.left_out")
    text = re.sub(r'(?m)^(name|pin) = "b([0-9]+)"', r"build = \2", text)
    assert _parse(text) == _parse(now)
    with pytest.raises(ErrorGroup) as caught:
        _parse(text.replace("build = 11", "build = 10"))
    assert [place.line for place in caught.value.errors[0].where] == [24, 5]


def test_a_pin_whose_name_has_no_build_needs_one() -> None:
    named = TEXT.replace('name = "b12"', 'name = "v0.5.0"')
    with pytest.raises(ErrorGroup, match=r"not a valid lock") as caught:
        _parse(named)
    assert caught.value.errors[0].message == "lock: pin v0.5.0 has no build"
    lock = _parse(named.replace('name = "v0.5.0"', 'name = "v0.5.0"\nbuild = 12'))
    assert lock.pin("v0.5.0").build == 12
    assert _parse(format_lock(lock)) == lock
    with pytest.raises(ErrorGroup) as caught:
        _parse(TEXT.replace('name = "b12"', 'name = "b12"\nbuild = 13'))
    assert caught.value.errors[0].message == "lock: pin b12 has build = 13"


def test_a_prefix_of_two_commits_is_ambiguous() -> None:
    text = TEXT.replace('name = "b12"\n', f'name = "b12"\ncommit = "{"ab" * 19}cd"\n')
    with refused("PIN_UNKNOWN", match="b11, b12"):
        _parse(text).pin("abab")
    assert _parse(text).pin("ab" * 19 + "c").build == 12


def test_a_result_is_found_by_archs_in_any_order_and_patches_in_theirs() -> None:
    lock = _parse(TEXT)
    assert lock.result("b10", ["gfx1151", "gfx1100"], ["two", "one"]) == lock.results[0]
    assert lock.result("b10", ["gfx1151", "gfx1100"], ["one", "two"]) is None
    assert lock.result("b10", ["gfx1151"], ["two", "one"]) is None
    assert lock.result("b11", ["gfx1151", "gfx1100"], ["two", "one"]) is None


def _result(**fields: object) -> Result:
    made = Result(
        pin="b10",
        build=10,
        archs=("gfx90a",),
        patches=(),
        tree=TREE,
        commit=COMMIT,
        inputs={},
        rendered={},
        entities={},
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def test_a_result_is_replaced_or_added() -> None:
    lock = _parse(TEXT)
    old = lock.results[0]
    new = _result(archs=old.archs, patches=old.patches, tree="1" * 40)
    assert lock.with_result(new).results == (new,)
    assert lock.with_result(_result()).results == (old, _result())


@pytest.mark.parametrize(
    ("old", "new", "line", "code", "says"),
    [
        (f'tree = "{TREE}"', 'tree = "825D"', 7, "CONFIG_VALUE", "tree"),
        (f'tree = "{TREE}"\n', f'treee = "{TREE}"\n', 7, "CONFIG_VALUE", "treee"),
        ('kind = "git"\nurl = "https://host/llama.cpp.git"', 'kind = "git"', 11, "CONFIG_VALUE", "url"),
        (f'sha256 = "{SHA256}"', 'sha256 = "abc"', 19, "CONFIG_VALUE", "sha256"),
        ('subdir = "a/b"', 'subdir = "../b"', 20, "CONFIG_VALUE", "subdir"),
        ('subdir = "a/b"', 'subdir = "/b"', 20, "CONFIG_VALUE", "subdir"),
        ('archs = ["gfx1100", "gfx1151"]', "archs = []", 38, "CONFIG_VALUE", "archs"),
        ('name = "b10"\n', 'name = "b-1"\n', 5, "CONFIG_VALUE", "name"),
        ('name = "b10"\n', 'name = "b10"\nbuild = -1\n', 6, "CONFIG_VALUE", "build"),
        ('name = "b10"\n', 'name = "b10"\nreleases = ["v1"]\n', 6, "CONFIG_VALUE", "releases"),
    ],
)
def test_a_field_of_the_wrong_form_has_its_line(old: str, new: str, line: int, code: str, says: str) -> None:
    errors = _errors(old, new)
    fitting = [error for error in errors if error.code == code and error.where[0].line == line]
    assert len(fitting) == 1, [f"{error.where[0]}: {error.message}" for error in errors]
    assert says in fitting[0].message


@pytest.mark.parametrize(
    ("old", "new", "line", "code"),
    [
        ('default = "b10"', 'default = "b9"', 2, "LOCK_BAD"),
        ('name = "b11"', 'name = "b10"', 24, "LOCK_BAD"),
        (
            '2025-10-31T10:54:19+02:00"\ncommit_object',
            '2025-10-31T10:54:18+02:00"\ncommit_object',
            8,
            "LOCK_BAD",
        ),
        ('"2025-11-01T00:00:00Z"', '"2025-11-01T00:00:00"', 27, "LOCK_BAD"),
        ('"2025-11-01T00:00:00Z"', '"yesterday"', 27, "LOCK_BAD"),
        (f'commit = "{COMMIT}"', f'commit = "{"1" * 40}"', 9, "LOCK_BAD"),
        (f'tree = "{TREE}"', f'tree = "{"1" * 40}"', 9, "LOCK_BAD"),
        ('commit_object = "', 'commit_object = "*', 9, "LOCK_BAD"),
        (
            f'commit_object = "{base64.b64encode(RAW).decode()}"',
            'commit_object = "aGVsbG8="',
            9,
            "LOCK_BAD",
        ),
        (f'commit = "{"ab" * 20}"\n', "", 27, "LOCK_BAD"),
        (
            'pin = "b10"\narchs = ["gfx1100", "gfx1151"]',
            'pin = "b9"\narchs = ["gfx1100", "gfx1151"]',
            37,
            "LOCK_BAD",
        ),
        ('archs = ["gfx1100", "gfx1151"]', 'archs = ["gfx1151", "gfx1100"]', 38, "LOCK_BAD"),
    ],
)
def test_what_does_not_fit_together_has_its_own_error(old: str, new: str, line: int, code: str) -> None:
    (error,) = [error for error in _errors(old, new) if error.code == code]
    assert error.where[0].line == line
    assert "git checkout -- upstream.lock" in (error.hint or "")


def _with_committer(when: str, committed: str) -> str:
    """The lock whose pin has a commit object with this time and zone, and says ``committed`` of it."""
    raw = RAW.replace(b"committer A <a@x> 1761900859 +0200", f"committer A <a@x> {when}".encode())
    commit = hashlib.sha1(b"commit %d\0" % len(raw) + raw).hexdigest()
    text = TEXT.replace(COMMIT, commit).replace(
        base64.b64encode(RAW).decode(), base64.b64encode(raw).decode()
    )
    return text.replace('"2025-10-31T10:54:19+02:00"', f'"{committed}"')


@pytest.mark.parametrize(
    ("when", "line", "code"),
    [
        ("1761900859 +9959", 8, "LOCK_BAD"),
        ("1761900859 -9999", 8, "LOCK_BAD"),
        ("99999999999 +0000", 8, "LOCK_BAD"),
        ("10000000000000 +0000", 9, "LOCK_BAD"),
        ("99999999999999999999999999 +0000", 9, "LOCK_BAD"),
    ],
)
def test_a_commit_object_with_an_impossible_date_is_an_error_of_the_lock(
    when: str, line: int, code: str
) -> None:
    """A pull request brings its own lock, so these bytes may be anybody's."""
    with pytest.raises(ErrorGroup) as caught:
        _parse(_with_committer(when, "2025-10-31T10:54:18+02:00"))
    (error,) = caught.value.errors
    assert (error.code, error.where[0].line) == (code, line)


def test_a_commit_of_an_impossible_zone_has_the_date_that_a_bump_writes_for_it() -> None:
    lock = _parse(_with_committer("1761900859 +9959", "2025-10-31T22:54:19+14:00"))
    assert commit_date(lock.pins[0].commit_object or b"") == lock.pins[0].committed


RELEASED = TEXT.replace('name = "b10"\n', 'name = "b10"\nreleases = ["v0.5.0", "v0.5.1"]\n')


def test_a_pin_is_found_and_told_by_its_releases_and_written_with_them() -> None:
    lock = _parse(RELEASED)
    pin = lock.pin(" V0.5.1 ")
    assert (pin.build, pin.name, pin.title) == (10, "b10", "v0.5.0, v0.5.1 (b10)")
    assert lock.pin("b11").title == "b11"
    assert 'name = "b10"\nreleases = ["v0.5.0", "v0.5.1"]\n' in format_lock(lock)
    assert "releases" not in format_lock(_parse(TEXT))
    assert _parse(format_lock(lock)) == lock
    with refused("PIN_UNKNOWN") as caught:
        lock.pin("v0.6.0")
    assert "v0.5.0, v0.5.1 (b10)" in caught.value.hint
    assert "patchkit bump --to v0.6.0" in caught.value.hint


def test_a_release_of_two_pins_is_refused_with_both_places() -> None:
    with pytest.raises(ErrorGroup) as caught:
        _parse(RELEASED.replace('name = "b11"\n', 'name = "b11"\nreleases = ["v0.5.0"]\n'))
    (error,) = caught.value.errors
    assert (error.code, [place.line for place in error.where]) == ("LOCK_BAD", [26, 6])


def test_two_results_of_one_key_are_refused_with_both_places() -> None:
    second = TEXT[TEXT.index("[[result]]") :]
    with pytest.raises(ErrorGroup) as caught:
        _parse(f"{TEXT}\n{second}")
    (error,) = caught.value.errors
    assert error.code == "LOCK_BAD"
    assert [place.line for place in error.where] == [53, 37]


FOLLOWED = """
[[pin.followed]]
file = "ggml/a.cu"
function = "f"
now_file = "ggml/b.cu"
now_function = "g"
"""


def test_where_a_function_is_now_stands_with_its_pin() -> None:
    position = TEXT.index("[[result]]")
    lock = _parse(f"{TEXT[:position]}{FOLLOWED}\n{TEXT[position:]}")
    (followed,) = lock.pin("b12").followed
    assert (followed.function, followed.now_file, followed.now_function) == ("f", "ggml/b.cu", "g")
    assert lock.pin("b10").followed == ()
    assert _parse(format_lock(lock)) == lock
    again = Followed(file="ggml/a.cu", function="f", now_file="ggml/a.cu", now_function="h")
    assert lock.with_followed("b12", [again]).pin("b12").followed == (again,)
    assert _parse(TEXT).with_followed("b12", [followed]).pin("b12") == lock.pin("b12")


def test_a_function_has_one_place() -> None:
    position = TEXT.index("[[result]]")
    with pytest.raises(ErrorGroup) as caught:
        _parse(f"{TEXT[:position]}{FOLLOWED}{FOLLOWED}\n{TEXT[position:]}")
    (error,) = caught.value.errors
    assert error.code == "LOCK_BAD"
    assert len(error.where) == 2


DROPPED = f"""
[[pin.dropped]]
patch = "a-patch"
archs = ["gfx1151"]
digest = "{"0" * 64}"
why = "conflict: there is no such place"
"""


def test_a_lock_with_the_earlier_name_of_dropped_patches_is_read(tmp_path: Path) -> None:
    position = TEXT.index("[[result]]")
    lock = _parse(f"{TEXT[:position]}{DROPPED}\n{TEXT[position:]}")
    (row,) = lock.pin("b12").dropped
    assert (row.patch, row.archs) == ("a-patch", ("gfx1151",))
    assert _parse(format_lock(lock)) == lock
    assert lock.with_dropped("b12", ["gfx1150"], ()).pin("b12").dropped == (row,)
    assert lock.with_dropped("b12", ["gfx1151"], ()).pin("b12").dropped == ()
    without = _result(pin="b12", build=12, archs=("gfx1151",), patches=("b",))
    assert lock.with_result(without).pin("b12").dropped == (row,)
    assert lock.with_result(replace(without, patches=("a-patch", "b"))).pin("b12").dropped == ()
    with pytest.raises(ErrorGroup) as caught:
        _parse(f"{TEXT[:position]}{DROPPED}{DROPPED}\n{TEXT[position:]}")
    (error,) = caught.value.errors
    assert (error.code, len(error.where)) == ("LOCK_BAD", 2)


def test_text_and_lock_are_one_and_the_same() -> None:
    lock = _parse(TEXT)
    text = format_lock(lock)
    assert _parse(text) == lock
    assert format_lock(_parse(text)) == text
    assert text.startswith("# Written by patchkit, not by hand")
    assert max(map(len, text.splitlines())) < 130


def test_order_of_pins_and_odd_keys_do_not_matter() -> None:
    lock = _parse(TEXT)
    odd = _result(
        pin="b11",
        build=11,
        patches=tuple(f"a-patch-with-a-long-name-{number}" for number in range(9)),
        entities={'b "q" \\ \x7f \t \u00e9::x': "z", "a": "y"},
    )
    turned = replace(lock, pins=lock.pins[::-1], results=(odd, *lock.results))
    assert format_lock(turned) == format_lock(lock.with_result(odd))
    assert _parse(format_lock(turned)).result("b11", odd.archs, odd.patches) == odd


def test_a_link_to_the_lock_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.lock").write_text("old")
    (tmp_path / "upstream.lock").symlink_to("real.lock")
    write_lock(tmp_path / "upstream.lock", _parse(TEXT))
    assert (tmp_path / "upstream.lock").is_symlink()
    assert (tmp_path / "real.lock").read_text().startswith("# Written")


def test_a_full_disk_leaves_the_old_lock(tmp_path: Path) -> None:
    path = tmp_path / "upstream.lock"
    path.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with refused("DISK_FULL"):
            write_lock(path, _parse(TEXT))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["upstream.lock"]


def test_the_committed_lock_is_what_patchkit_would_write(checkout: Path) -> None:
    path = checkout / "patches" / "upstream.lock"
    lock = load_lock(path)
    assert format_lock(lock) == path.read_text()
    pin = lock.pin("b6900")
    assert (pin.build, pin.commit) == (6900, "c22473b580807929fd9e3a3344a48e8cfbe6c88f")
    assert pin.tree == "825d48d696e3989507318cae2a9d8e6e0c601eef"
    assert pin.commit_object is not None
    assert [type(source) for source in pin.sources] == [GitSource, SdistSource]


def test_the_corpus_of_the_tests_has_the_pins_of_the_lock(checkout: Path) -> None:
    corpus = load_lock(checkout / "tests" / "upstream" / "corpus.toml")
    for pin in load_lock(checkout / "patches" / "upstream.lock").pins:
        assert corpus.pin(pin.name).tree == pin.tree


def test_results_recorded_at_the_same_moment_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "upstream.lock"
    lock = _parse(TEXT)
    write_lock(path, lock)
    (tmp_path / ".upstream.lock.killed.patchkit-partial").write_text("left by a killed run")
    archs = [f"gfx11{number:02d}" for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda arch: record_result(path, lock.pins[0], _result(archs=(arch,))), archs))
    assert all(done)
    recorded = {result.archs[0] for result in load_lock(path).results}
    assert recorded == {*archs, *(result.archs[0] for result in lock.results)}
    assert not record_result(path, lock.pins[0], _result(archs=(archs[0],)))
    assert [each.name for each in tmp_path.iterdir()] == ["upstream.lock"]


def test_a_result_for_a_pin_that_is_another_now_is_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "upstream.lock"
    lock = _parse(TEXT)
    write_lock(path, lock)
    before = path.read_bytes()
    with refused("LOCK_CHANGED"):
        record_result(path, replace(lock.pins[0], tree="0" * 40), _result())
    assert path.read_bytes() == before


def test_the_mode_of_the_lock_stays(tmp_path: Path) -> None:
    path = tmp_path / "upstream.lock"
    write_lock(path, _parse(TEXT))
    assert path.stat().st_mode & 0o777 == 0o644
    path.chmod(0o664)
    write_lock(path, _parse(TEXT))
    assert path.stat().st_mode & 0o777 == 0o664


@pytest.mark.parametrize(
    ("version", "why"), [("true", "must be the number 2"), ("3", "it must be one of: 2")]
)
def test_a_version_that_is_not_known(version: str, why: str) -> None:
    with pytest.raises(ErrorGroup) as caught:
        _parse(TEXT.replace("version = 2", f"version = {version}"))
    (error,) = caught.value.errors
    assert (error.code, error.why, error.where[0].line) == ("CONFIG_VALUE", why, 1)


def test_a_bad_source_is_one_error_at_the_source() -> None:
    with pytest.raises(ErrorGroup) as caught:
        _parse(TEXT.replace('kind = "git"', 'kind = "gti"', 1).replace('kind = "sdist"', 'kind = "sdits"', 1))
    assert [error.message for error in caught.value.errors] == [
        "lock: 'pin[0].source[0].kind' is 'gti'",
        "lock: 'pin[0].source[1].kind' is 'sdits'",
    ]


def test_all_problems_are_told_at_once_and_of_very_many_the_first_are_explained() -> None:
    with pytest.raises(ErrorGroup) as caught:
        _parse(TEXT.replace('default = "b10"', 'default = "b9"').replace('name = "b11"', 'name = "b10"'))
    assert {error.code for error in caught.value.errors} >= {"LOCK_BAD"}
    text = "".join(f"key{number} = 1\n" for number in range(5000))
    with pytest.raises(ErrorGroup, match=r"5000 problems \(the first 100 are shown\)") as caught:
        _parse(text + TEXT)
    assert len(caught.value.errors) == 100
