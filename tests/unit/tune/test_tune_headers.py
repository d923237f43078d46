"""Which versions of rocWMMA decide, and the check with this machine's own."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from refusing import refused
from toolchains import toolchain_in

from patchkit.toolchain.hip import RocWmma
from patchkit.tune.headers import HeaderSets, choose_headers, own_headers
from patchkit.tune.record import Record, RecordedHeaders
from patchkit.tune.request import TuneRequest

REQUEST = TuneRequest(arch="gfx1151")


def _rocwmma(folder: Path, text: str) -> RocWmma:
    (folder / "rocwmma" / "internal").mkdir(parents=True)
    (folder / "rocwmma" / "rocwmma.hpp").write_text(text)
    (folder / "rocwmma" / "internal" / "config.hpp").write_text("__gfx1151__")
    return RocWmma(kind="git", include=folder, version="9.9.9")


@pytest.fixture
def toolchain(tmp_path):
    return partial(toolchain_in, tmp_path)


def _record(*headers: tuple[str, str]) -> Record:
    return Record(
        arch="gfx1151",
        kernel="wmma",
        build=6900,
        made="2026-11-21",
        compiler="clang 22.1.8",
        sources="00",
        like=None,
        headers=tuple(RecordedHeaders(name=name, sha256=digest) for name, digest in headers),
        excluded=(),
        candidates={},
        units={},
    )


def _standin(toolchain) -> str:
    (own,) = choose_headers(toolchain(), REQUEST, None).headers
    return own.sha256


def test_without_a_record_the_machines_own_headers_decide(toolchain, tmp_path) -> None:
    own = _rocwmma(tmp_path / "own", "own")
    sets = choose_headers(toolchain(own), REQUEST, None)
    assert ([each.name for each in sets.headers], sets.here) == (["rocWMMA 9.9.9"], (0,))
    assert sets.played is None  # the timing model was held to the stand-in's code alone
    assert choose_headers(toolchain(), REQUEST, None).headers[0].name.endswith("stand-in")


def test_headers_of_a_record_are_found_by_their_digest(toolchain, tmp_path) -> None:
    own = _rocwmma(tmp_path / "own", "own")
    (mine,) = choose_headers(toolchain(own), REQUEST, None).headers
    record = _record(("stand-in", _standin(toolchain)), ("elsewhere", "22"), ("mine", mine.sha256))
    sets = choose_headers(toolchain(own), REQUEST, record)
    assert (sets.here, sets.played) == (((0, 2)), 0)
    assert [each.rocwmma.include for each in sets.toolchains if each.rocwmma][1] == own.include
    assert own_headers(toolchain(own), "gfx1151", sets) is None
    assert choose_headers(toolchain(), REQUEST, record).here == (0,)


def test_headers_that_the_record_lacks_are_checked_against_the_table(toolchain, tmp_path) -> None:
    own = _rocwmma(tmp_path / "own", "other bytes")
    sets = choose_headers(toolchain(own), REQUEST, _record(("stand-in", _standin(toolchain))))
    assert sets.here == (0,)
    found = own_headers(toolchain(own), "gfx1151", sets)
    assert found is not None
    assert found[0] == "rocWMMA 9.9.9"
    assert own_headers(toolchain(), "gfx1151", sets) is None


def test_a_record_without_available_headers_is_stale(toolchain) -> None:
    with refused("TUNE_RECORD_BAD", match="none of the rocWMMA headers"):
        choose_headers(toolchain(), REQUEST, _record(("an older stand-in", "11")))


def test_a_folder_without_rocwmma_is_rejected(toolchain, tmp_path) -> None:
    with refused("TUNE_KERNEL_UNTUNABLE"):
        choose_headers(toolchain(), TuneRequest(arch="gfx1151", headers=(str(tmp_path),)), None)


def test_a_kernel_that_includes_none_has_one_column(toolchain) -> None:
    sets = HeaderSets.none(toolchain())
    assert ([each.name for each in sets.headers], sets.here) == (["without rocWMMA"], (0,))
