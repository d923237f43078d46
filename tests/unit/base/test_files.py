"""Atomic writes of output files, and early checks."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.errors import CacheError
from patchkit.base.files import (
    check_folder,
    check_output,
    remove_output,
    temporary_folder,
    working_folder,
    write_output,
    write_whole,
)


def test_a_file_is_replaced_without_leaving_temporary_files(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    write_output(path, b"new", "writing")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_symbolic_link_is_kept(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to("target")
    write_output(link, b"new", "writing")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_the_links_of_the_system_are_written_through(tmp_path: Path) -> None:
    """``/dev/stdout`` of a process that writes to a file is a link to a regular file."""
    with (tmp_path / "stdout").open("wb") as stream:
        path = Path(f"/proc/self/fd/{stream.fileno()}")
        write_output(path, b"new", "writing")
        assert os.fstat(stream.fileno()).st_nlink == 1  # the same file, not another one in its place
    assert (tmp_path / "stdout").read_bytes() == b"new"


def test_output_of_an_earlier_run_is_removed_but_not_devices_or_links(tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    target.write_text("old")
    link.symlink_to("target")
    os.mkfifo(pipe)
    for path in (link, pipe, tmp_path / "none", Path("/dev/null")):
        remove_output(path, "removing")
    assert sorted(tmp_path.iterdir()) == [link, pipe]
    assert Path("/dev/null").exists()


def test_the_longest_name_that_a_file_system_takes(tmp_path: Path) -> None:
    path = tmp_path / ("n" * os.pathconf(tmp_path, "PC_NAME_MAX"))
    check_output(path, "preparing")
    write_output(path, b"new", "writing")
    assert path.read_bytes() == b"new"


def test_a_full_device_is_reported() -> None:
    check_output(Path("/dev/full"), "preparing")
    with refused("DISK_FULL", match="writing failed"):
        write_output(Path("/dev/full"), b"x" * 100_000, "writing")


def test_an_unwritable_output_is_reported_early(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, code in (
        (tmp_path, "DISK_REFUSED"),
        (tmp_path / "none" / "file", "DISK_REFUSED"),
        (tmp_path / "file" / "x", "DISK_REFUSED"),
    ):
        with refused(code):
            check_output(path, "preparing")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "none" / "file")
    with pytest.raises(CacheError, match="no such folder"):
        check_output(link, "preparing")


def test_an_unwritable_folder_is_reported_early(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("file", "file/below", "link", "link/below"):
        with refused("DISK_REFUSED"):
            check_folder(tmp_path / name, 1, "preparing", "name another")
    with refused("DISK_FULL"):
        check_folder(tmp_path / "new", 10**18, "preparing", "name another")
    check_folder(tmp_path / "new" / "below", 1, "preparing", "name another")
    assert not (tmp_path / "new").exists()
    monkeypatch.setattr(os, "access", lambda asked, _mode: asked != tmp_path)  # the tests may run as root
    with refused("DISK_REFUSED"):
        check_folder(tmp_path / "new" / "below", 1, "preparing", "name another")


def test_a_file_that_is_read_only_is_not_replaced(tmp_path: Path, monkeypatch) -> None:
    """Simulated, because the tests may run as root, for whom nothing is read-only."""
    path = tmp_path / "report.html"
    path.touch()
    monkeypatch.setattr(os, "access", lambda asked, _mode: asked != path)
    with refused("DISK_REFUSED"):
        check_output(path, "preparing")
    check_output(tmp_path / "other", "preparing")


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with refused("DISK_FULL"):
            write_output(path, b"x" * 2000, "writing")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_write_whole_creates_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.json"
    write_whole(path, "é\n", "writing")
    write_whole(path, b"two\n", "writing")
    assert path.read_bytes() == b"two\n"
    assert list(path.parent.iterdir()) == [path]


def test_an_interrupted_write_leaves_the_old_file_and_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.mkdir()  # a rename onto a folder fails after everything was written
    (path / "inside").touch()
    with pytest.raises(CacheError, match="writing failed"):
        write_whole(path, "new\n", "writing")
    assert list(tmp_path.iterdir()) == [path]


_GONE = 2**22 + 1  # above the largest number of a process


def test_folders_of_processes_that_were_killed_are_removed_and_no_others(tmp_path: Path) -> None:
    names = (f"x-{os.getpid()}-a", "x-1-a", "x-random_1", "x-123", f"y-{_GONE}-a", f"x-{2**80}-a", "x-٣-a")
    kept = [tmp_path / name for name in names]
    dead, link, file = tmp_path / f"x-{_GONE}-a", tmp_path / f"x-{_GONE}-link", tmp_path / f"x-{_GONE}-file"
    for folder in (*kept, dead / "full"):
        folder.mkdir(parents=True)
    link.symlink_to(kept[0])
    file.write_text("")
    with working_folder(tmp_path, "x-", "testing") as folder:
        assert folder.is_dir()
        assert set(tmp_path.iterdir()) == {*kept, link, file, folder}
    assert set(tmp_path.iterdir()) == {*kept, link, file}


def test_folders_of_other_users_are_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tmp_path / f"x-{_GONE}-a"
    left.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: 2**16 - 3)
    with working_folder(tmp_path, "x-", "testing"):
        assert left.is_dir()


def test_a_temporary_folder_names_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with temporary_folder("emulate") as folder:
        assert folder.name.startswith(f"patchkit-emulate-{os.getpid()}-")
        assert folder.parent == tmp_path
    assert not folder.exists()
