"""Installs Python 3.14 into a folder of its own, and prints the path of the interpreter.

Its packages are those of a newer Debian suite, unpacked together with their C library, so that nothing on
this machine is replaced. A small program, compiled here, starts the interpreter with that library's loader.
The folder must not be moved; delete it to get the newest 3.14.

Exit code 3: the packages are not available (no apt, no mirror, no such package); the last line gives the
reason.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from patchkit.base.errors import PatchkitError
from patchkit.base.reporter import NullReporter
from patchkit.toolchain.sdk.apt import AvailablePackage, Client, make_client
from patchkit.toolchain.sdk.install import machine_entries
from patchkit.toolchain.sdk.packages import unpack
from patchkit.toolchain.sdk.sources import choose_mirror

CANNOT_BE_HAD = 3
_NAME = "python3.14"
_PACKAGES = (_NAME, f"{_NAME}-venv", "libstdc++6")  # the last for what comes as a wheel of C++
_SUITES = ("sid", "forky")
_COMPILERS = ("c++", "g++", "clang++")

# With the path that was called as argv[0], Python finds the virtual environment that it belongs to. A script
# would do the same, but the shell adds to the environment.
_LAUNCHER = """#include <cstdio>
#include <vector>

#include <unistd.h>

int main(int argc, char **argv) {{
    std::vector<const char *> call = {{{loader}, "--library-path", {libraries}}};
    call.insert(call.end(), {{"--argv0", argv[0], {program}}});
    call.insert(call.end(), argv + 1, argv + argc);
    call.push_back(nullptr);
    execv(call[0], const_cast<char *const *>(call.data()));
    std::perror(call[0]);
    return 127;
}}
"""


def obtain(folder: Path) -> Path:
    """The interpreter in ``folder``, made if it is not there.

    Raises:
        PatchkitError: the packages cannot be had.
        subprocess.CalledProcessError: what was made does not work.
    """
    launcher = folder / "usr" / "bin" / _NAME
    if not folder.is_dir():
        made = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(made, ignore_errors=True)
        _fetch(made)
        _make_launcher(made, folder)
        made.rename(folder)
    subprocess.run([launcher, "-c", "import ctypes, ensurepip, lzma, sqlite3, ssl"], check=True)
    return launcher


def _fetch(folder: Path) -> None:
    """Unpack the packages of the first suite that has them."""
    reporter = NullReporter()
    mirror = choose_mirror(machine_entries(reporter))
    scratch = folder / "scratch"
    for suite in _SUITES:
        stanza = mirror.for_suite(suite).as_stanza()
        client = make_client(scratch / suite, stanza, environ=os.environ, reporter=reporter)
        try:
            wanted = _choose(client, suite)
        except PatchkitError:
            if suite == _SUITES[-1]:
                raise
            continue
        client.download(wanted, scratch / "debs", suite)
        unpack(scratch / "debs", wanted, folder, reporter)
        shutil.rmtree(scratch)
        return


def _choose(client: Client, suite: str) -> tuple[AvailablePackage, ...]:
    client.update(f"the suite {suite}")
    return client.closure(_PACKAGES, f"the suite {suite}")


def _make_launcher(made: Path, folder: Path) -> None:
    """Put the launcher in the place of the interpreter; ``made`` is going to be called ``folder``."""
    library = Path("usr", "lib", _NAME)
    program = library / "interpreter"
    launcher = made / "usr" / "bin" / _NAME
    launcher.replace(made / program)
    # Debian's ensurepip takes pip from a folder of the system.
    wheels = f"'WHEEL_PKG_DIR': {str(folder / 'usr/share/python-wheels')!r}"
    for data in (made / library).glob("_sysconfigdata_*.py"):
        text = re.sub(r"'WHEEL_PKG_DIR': '[^']*'", lambda _: wheels, data.read_text("utf-8"))
        data.write_text(text, "utf-8")
    (loader,) = (path.relative_to(made) for path in (made / "usr" / "lib").glob("*/ld-linux*.so.*"))
    places = {"loader": loader, "libraries": loader.parent, "program": program}
    source = _LAUNCHER.format(**{name: json.dumps(str(folder / place)) for name, place in places.items()})
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), _COMPILERS[0])
    argv = [compiler, "-O1", "-o", str(launcher), "-x", "c++", "-"]
    subprocess.run(argv, input=source.encode(), check=True)


if __name__ == "__main__":
    try:
        print(obtain(Path(sys.argv[1]).absolute()))
    except PatchkitError as error:
        print(" ".join(str(part) for part in (error.message, error.why) if part), file=sys.stderr)
        sys.exit(CANNOT_BE_HAD)
