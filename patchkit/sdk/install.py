"""Installing and removing prefixes, so that nobody ever sees half of one.

Vocabulary: a prefix is *made* in a folder beside its place and renamed when it is complete. Whoever
makes one holds the lock ``<cache>/sdk/lock``; what a killed run left there is removed by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patchkit.errors import PatchkitError
from patchkit.report import Reporter
from patchkit.sdk.make import Request, make_prefix
from patchkit.sdk.prefix import Prefix, Record, current_prefix, sdk_folder
from patchkit.vcs.disk import disk_errors


def install(request: Request, reporter: Reporter) -> tuple[Prefix, bool]:
    """The prefix of this cache, and whether it was made now: one that is whole is kept as it is.

    Raises:
        PatchkitError: one of :mod:`patchkit.sdk.errors`; nothing half-made stays visible.
    """
    folder = sdk_folder(request.cache_root)
    with disk_errors(folder, "creating the SDK folder"):
        folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder, reporter):
        _sweep(folder, reporter)
        if not request.again:
            with contextlib.suppress(PatchkitError):  # a damaged one is made anew
                present = current_prefix(request.cache_root)
                if present is not None:
                    return present, False
        with disk_errors(folder, "creating a prefix"):
            new = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
            new.chmod(0o755)
        try:
            record = make_prefix(new, request, reporter)
            return _publish(new, record, folder, reporter), True
        finally:
            shutil.rmtree(new, ignore_errors=True)


def remove(cache_root: Path, reporter: Reporter) -> tuple[Path, ...]:
    """Remove every prefix of this cache; the folders that went."""
    folder = sdk_folder(cache_root)
    if not folder.is_dir():
        return ()
    with _locked(folder, reporter):
        _sweep(folder, reporter)
        gone = []
        with disk_errors(folder, "removing the SDK"):
            (folder / "current").unlink(missing_ok=True)
            for path in sorted(folder.iterdir()):
                if path.is_dir() and not path.is_symlink():
                    _discard(path)
                    gone.append(path)
    return tuple(gone)


def _publish(new: Path, record: Record, folder: Path, reporter: Reporter) -> Prefix:
    """Give the prefix its name, and make it the current one; older ones go.

    Where it replaces one of the same name there is none for a moment: a run that is killed just then
    leaves a link to nothing, which reads as a damaged prefix.
    """
    path = folder / record.id
    with disk_errors(path, "publishing the prefix"):
        if path.exists():  # a damaged one of the same content, or a killed run's whole one
            _discard(path)
        new.rename(path)
        link = folder / f".current-{os.getpid()}"
        link.unlink(missing_ok=True)
        link.symlink_to(path.name)
        link.replace(folder / "current")
        for other in sorted(folder.iterdir()):
            if other != path and other.is_dir() and not other.is_symlink():
                reporter.info(f"removing the older prefix {other.name}")
                _discard(other)
    return Prefix(path=path, record=record)


def _sweep(folder: Path, reporter: Reporter) -> None:
    """Remove what killed runs left. The lock is held: nobody is making anything here now.

    A package client that outlived its patchkit may still write there; what it writes goes next time.
    """
    with disk_errors(folder, "removing what a killed run left"):
        for path in sorted(folder.glob(".*")):
            reporter.info(f"removing what a killed run left: {path.name}")
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _discard(path: Path) -> None:
    """Remove a prefix: out of sight in one step, then file by file."""
    gone = path.with_name(f".old-{path.name}")
    path.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)  # what stays is swept by the next run


@contextmanager
def _locked(folder: Path, reporter: Reporter) -> Iterator[None]:
    with disk_errors(folder, "locking the SDK folder"):
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                reporter.info("waiting for another patchkit that is installing or removing the SDK")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        except BaseException:
            os.close(descriptor)
            raise
    try:
        yield
    finally:
        os.close(descriptor)
