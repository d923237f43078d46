"""The emulator and its runtime being built, by real compilers on a disk that is full."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from patchkit.toolchain.hip import Toolchain

pytestmark = [pytest.mark.hip, pytest.mark.slow]

# Builds what argv[2] names in the cache argv[1] with the pickled toolchain on stdin; no file gets a byte.
_BUILD = """
import pickle, resource, sys
from pathlib import Path
from patchkit.base.errors import PatchkitError
from patchkit.base.reporter import NullReporter
from patchkit.toolchain.compiler import open_compiler
from patchkit.gpu.emulated.emulator import build_emulator, this_level
from patchkit.gpu.emulated.runtime import build_stub

compiler = open_compiler(pickle.loads(sys.stdin.buffer.read()), Path(sys.argv[1]), NullReporter())
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    build_stub(compiler) if sys.argv[2] == "runtime" else build_emulator(compiler, this_level())
except PatchkitError as error:
    print(error.code, int(error.exit_code))
"""


@pytest.mark.parametrize("what", ["runtime", "emulator"])
def test_a_full_disk_is_no_compiler_that_fails(hip_toolchain: Toolchain, tmp_path: Path, what: str) -> None:
    (tmp_path / "crashes").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _BUILD, str(tmp_path / "cache"), what],
        input=pickle.dumps(hip_toolchain),
        env={**os.environ, "TMPDIR": str(tmp_path / "crashes")},
        capture_output=True,
        check=False,
    )
    assert done.stdout.decode().split() == ["DISK_FULL", "8"], done.stderr
    assert not [path for path in (tmp_path / "cache").rglob("*.so*") if path.is_file()]
