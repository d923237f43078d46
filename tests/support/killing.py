"""Ends patchkit at the n-th thing that it does to the outside world, the same ones on every run.

The signal is SIGKILL, or the one that KILL_SIGNAL names without SIG.

Points are audit events of the interpreter (a file opened for writing, a process started, a rename, ...).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from demo_world import World

KILLER = """
import os, signal, sys
limit, counter, log = int(os.environ["KILL_AT"]), 0, os.environ.get("KILL_LOG")
NAMES = ("subprocess.Popen", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink",
         "os.truncate", "os.chmod", "os.utime", "tempfile.mkstemp", "tempfile.mkdtemp", "shutil.rmtree",
         "fcntl.flock")

def hook(name, args):
    global counter
    writes = name == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if writes and isinstance(args[0], (str, bytes)) and "__pycache__" in os.fsdecode(args[0]):
        return
    if writes or name in NAMES:
        counter += 1
        if counter == limit:
            which = signal.Signals["SIG" + os.environ.get("KILL_SIGNAL", "KILL")]
            if os.environ["KILL_GROUP"] == "1":
                os.killpg(0, which)
            else:
                os.kill(os.getpid(), which)

sys.addaudithook(hook)
if log:
    import atexit
    atexit.register(lambda: open(log, "w").write(str(counter)))
"""


def killed(
    place: World, at: int, *args: str, group: bool, cache: Path, log: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command line and kill it at point ``at`` (-1: never), with its children if ``group``.

    ``log`` gets the number of points, if the run comes to its end.
    """
    env = {
        "PYTHONDONTWRITEBYTECODE": "1",
        "KILL_AT": str(at),
        "KILL_GROUP": "1" if group else "0",
        **({"KILL_LOG": os.fspath(log)} if log is not None else {}),
    }
    return place.process(*args, cache=cache, env=env, before=KILLER, own_session=True)
