"""``current`` always runs: an update to a newer build is killed, two run at once, the disk is full."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import patchkit_process, process_environment, process_start
from demo_world import pin_text
from killing import KILLER
from small_disk import on_small_disk
from thorough import ordinary
from tiny_upstream import make_tiny_world

SPREAD, LAST = 12, 12  # points of a run: evenly spread ones, and all of the last ones, which install


class Box:
    """The tiny upstream's series, and the builds of it that are installed in ``prefix``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.words = make_tiny_world(root, added={}, patches={"same": ("one", "return 1", "return 1 + 0")})

    @property
    def prefix(self) -> Path:
        return self.root / "prefix"

    def up(self, *more: str) -> list[str]:
        """The arguments of ``up`` for its program."""
        return ["up", *self.words, "--arch", "plain", "--prefix", str(self.prefix), *self.program, *more]

    program = ("--program", "llama-cli")

    @property
    def lock(self) -> Path:
        return self.root / "series" / "patches" / "upstream.lock"

    def move_to(self, build: int) -> None:
        """Move the series to another build of upstream, as an update of patchkit does."""
        self.lock.write_text(pin_text(self.root / "upstream", build))

    def run(self, *more: str) -> subprocess.CompletedProcess[str]:
        """``up`` as a process."""
        return patchkit_process(*self.up(*more))

    def update(self, *more: str, killer: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """``up --update`` as a process in a session of its own, with the environment of ``killer``."""
        words = ("up", "--update", *more, *self.words, "--prefix", str(self.prefix))
        return patchkit_process(*words, env=killer, before=KILLER, own_session=True)

    def good(self, *more: str) -> str:
        """Install, which must work; the name of the build."""
        done = self.run("--json", *more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["installation"]["name"]

    def current(self) -> str:
        """The name of the current build, whose program must run and print the version of that build."""
        link = self.prefix / "current"
        about = json.loads((link / "patchkit.json").read_text())
        done = subprocess.run([link / "llama-cli", "--version"], capture_output=True, text=True, check=True)
        assert done.stdout == f"{about['commit'][:9]}+same\n"
        return about["name"]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Box, str, str, int]:
    """A box with one build installed, and a newer one to update to; the names of both, and the points."""
    box = Box(tmp_path_factory.mktemp("box"))
    box.move_to(111)
    first = box.good()
    saved = box.root.with_name("saved")
    box.move_to(112)
    shutil.copytree(box.root, saved, symlinks=True)
    log = box.root.with_name("points")
    done = box.update("--json", killer=_killer(-1, "KILL", log))
    assert done.returncode == 0, done.stderr
    second = json.loads(done.stdout)["installation"]["name"]
    assert [name[:5] for name in (first, second)] == ["b111-", "b112-"]
    assert box.current() == second
    points = int(log.read_text()) - 1  # without the log itself
    shutil.rmtree(box.root)
    saved.rename(box.root)  # paths in the build folders stay the same
    return box, first, second, points


def _killer(at: int, signal: str, log: Path | None = None) -> dict[str, str]:
    more = {"KILL_LOG": str(log)} if log is not None else {}
    return {
        "PYTHONDONTWRITEBYTECODE": "1",
        "KILL_AT": str(at),
        "KILL_GROUP": "1",
        "KILL_SIGNAL": signal,
        **more,
    }


@pytest.fixture
def box(grown: tuple[Box, str, str, int]) -> Iterator[tuple[Box, str, str, int]]:
    """The same box, which is as before after the test."""
    root = grown[0].root
    saved = root.with_name("before")
    shutil.copytree(root, saved, symlinks=True)
    yield grown
    shutil.rmtree(root)
    saved.rename(root)


@pytest.mark.cpu_build
@pytest.mark.parametrize("signal", ["KILL", "INT"])
@pytest.mark.parametrize("part", ordinary(range(SPREAD + LAST), (SPREAD // 2, SPREAD + LAST - 1)))
def test_wherever_it_is_ended_the_last_good_build_runs(
    part: int, signal: str, box: tuple[Box, str, str, int]
) -> None:
    place, first, second, points = box
    before = points - LAST
    assert before > SPREAD
    at = 1 + part * before // SPREAD if part < SPREAD else before + 1 + part - SPREAD
    done = place.update(killer=_killer(at, signal))
    if signal == "KILL":
        assert done.returncode == -9, (at, points, done.stderr)
        assert done.stdout == ""
    left = place.current()
    assert left in (first, second)
    if left == first:
        assert not done.stdout
    assert place.good() == second
    assert place.current() == second
    back = patchkit_process("up", "--rollback", "--prefix", str(place.prefix))
    assert back.returncode == 0, back.stderr
    assert place.current() == first
    # No temporary names of patchkit's are left but those that a kill left, which a later run removes.
    names = {path.name for path in place.prefix.iterdir() if not path.name.startswith(".")}
    assert names == {first, second, "current", "previous", "lock"}


@pytest.mark.cpu_build
def test_two_at_once_install_one_after_the_other(box: tuple[Box, str, str, int]) -> None:
    place, first, second, _ = box
    both = [
        subprocess.Popen(
            [*process_start(), *place.up("--json", *more)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=process_environment(),
        )
        for more in ((), ("--program", "llama-server"))
    ]
    ended = [one.communicate() for one in both]
    assert [one.returncode for one in both] == [0, 0], ended
    names = [json.loads(out)["installation"]["name"] for out, _ in ended]
    assert names[0] == second
    assert place.current() in names
    assert (place.prefix / "previous").readlink().name in {first, *names}
    assert not list(place.prefix.glob(".*"))


@pytest.mark.cpu_build
def test_more_programs_leave_the_files_of_an_installed_build_alone(tmp_path: Path) -> None:
    """Installed files are links to those in the cache, and one of them may be running."""
    place = Box(tmp_path)
    installed = place.prefix / place.good() / "llama-cli"
    (built,) = tmp_path.glob("cache/builds/programs-*/build/bin/llama-cli")
    assert built.samefile(installed)
    place.good("--program", "llama-server")
    assert built.with_name("llama-server").exists()
    assert not built.samefile(installed)


@pytest.mark.cpu_build
@pytest.mark.extra_tools
@pytest.mark.parametrize(("full", "kib"), [("prefix", 2048), ("cache", 32768)])
def test_a_full_disk_leaves_the_last_good_build(full: str, kib: int, box: tuple[Box, str, str, int]) -> None:
    """The builds that are installed, or those in the cache, are on a full disk: a tmpfs, empty at first."""
    place, first, second, _ = box
    folder, current = place.root / full, place.prefix / "current"
    (place.root / "moved").write_text(place.lock.read_text())
    place.move_to(111)
    script = (
        f'"$@" >/dev/null && cp "{place.root}/moved" "{place.lock}" && '
        f'dd if=/dev/zero of="{folder}/filler" bs=4k 2>/dev/null; "$@"; echo "status $?"; '
        f'"{current}/llama-cli" --version; cat "{current}/patchkit.json"; '
        f'rm "{folder}/filler"; "$@" >/dev/null; readlink "{current}"'
    )
    shutil.rmtree(folder)
    done = subprocess.run(
        [*on_small_disk(folder, kib, script), *process_start(), *place.up()],
        capture_output=True,
        text=True,
        check=False,
        env=process_environment(),
    )
    assert "status 8" in done.stdout, (done.stdout, done.stderr)
    assert "No space left on device" in done.stderr
    assert f'"name": "{first}"' in done.stdout
    assert done.stdout.rstrip().endswith(second)
