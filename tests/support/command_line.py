"""patchkit's command line: in the test's own process, or in one of its own where a test is about that.

Starting Python and importing patchkit is most of a run, so a process is for what only a process has:
signals, limits, standard streams that are closed, two at once.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from patchkit.cli.app import main

ROOT = Path(__file__).resolve().parents[2]


def run_patchkit(
    *args: str | os.PathLike[str], cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """How ``patchkit ARGS`` ends and what it writes, in ``cwd``, with ``env`` on top of the environment."""
    argv = [os.fspath(arg) for arg in args]
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
    with (
        contextlib.chdir(cwd or Path.cwd()),
        _environment(env or {}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = main(argv)
    out.flush()
    err.flush()
    return subprocess.CompletedProcess(
        argv, code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode()
    )


@contextlib.contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def patchkit_process(
    *args: str | os.PathLike[str],
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    before: str = "",
    own_session: bool = False,
) -> subprocess.CompletedProcess[str]:
    """The same as a process of its own; ``before`` is Python that runs in it before anything of patchkit."""
    return subprocess.run(
        [*process_start(before), *args],
        cwd=cwd,
        env=process_environment(env),
        capture_output=True,
        text=True,
        check=False,
        start_new_session=own_session,
    )


def process_start(before: str = "") -> list[str]:
    """The beginning of a command line that starts patchkit as a process, from any folder."""
    if not before:
        return [sys.executable, "-m", "patchkit"]
    return [
        sys.executable,
        "-c",
        f"{before}\nimport sys\nfrom patchkit.cli.app import run\nsys.argv[0] = 'patchkit'\nrun()",
    ]


def process_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment in which such a process finds this checkout."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **(more or {})}
