"""Time ``patchkit sweep`` over the known trees, and compare with three plain tools on the exported series.

The series is exported once, at the pin of ``--upstream``, as files for ``git am``. On every tree each tool
gets these files one after the other: ``git am -3``, ``git apply`` and ``patch -F3``. Counted are the patches
that each applies, and the trees where all apply; whether the result is right is not checked. ``git am -3``
finds the base's blobs in the same repository. Wall times are by a monotonic clock. The peak is of the sweep
and its processes together, sampled from /proc (Linux). CPU time is user and system time of the sweep's
processes, and can be used on a busy machine too.

    python benchmarks/sweep_plain_tools.py --cache-dir CACHE --every-patch --record

``--record`` writes docs/records/data/sweep.json, from which benchmarks/records.py makes tables.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from records import write_record

from patchkit.base.series_folder import find_series_dir
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.profile import load_profile
from patchkit.carry.series.selection import terms_of

# Required by issue 5: anchors and rendering only, warm, two cores.
LIMIT_WALL_S = 60.0
LIMIT_PEAK_MB = 1000.0
_ID = re.compile(r"^Patchkit-Id: (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Results of one tool on all trees; ``taken`` has the number of applied patches by build."""

    name: str
    whole_series: int
    patches: int
    wall_s: float
    taken: dict[int, int]


def main() -> int:
    """Run the comparison; return 1 if the sweep exceeds a limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", default="gfx1151")
    parser.add_argument("--cache-dir", type=Path, required=True, help="a cache folder with every pin")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--upstream", default="b6900", help="the pin for which the series is exported")
    opted = parser.add_mutually_exclusive_group()
    opted.add_argument("--with", dest="with_", action="append", default=[], metavar="ID")
    opted.add_argument("--every-patch", action="store_true", help="also sweep the optional patches")
    parser.add_argument("--sweep-only", action="store_true")
    parser.add_argument("--record", action="store_true", help="write the data of docs/records")
    options = parser.parse_args()
    if options.record and options.sweep_only:
        parser.error("--record needs the tools; remove --sweep-only")
    opt_in = _opt_in(options.arch) if options.every_patch else options.with_
    with tempfile.TemporaryDirectory(prefix="patchkit-bench-") as scratch:
        result = compare(
            options.arch,
            options.cache_dir,
            Path(scratch),
            upstream=options.upstream,
            with_=opt_in,
            sweep_only=options.sweep_only,
        )
    print(json.dumps(result, indent=2))
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if options.record:
        some = ["--every-patch"] if options.every_patch else [f"--with {name}" for name in opt_in]
        words = ["--arch", options.arch, "--upstream", options.upstream, *some]
        write_record("sweep", f"python benchmarks/sweep_plain_tools.py {' '.join(words)}", result)
    wall, peak = float(str(result["sweep_wall_s"])), float(str(result["sweep_peak_mb"]))
    return int(wall > LIMIT_WALL_S or peak > LIMIT_PEAK_MB)


def compare(
    arch: str, cache: Path, scratch: Path, *, upstream: str, with_: Sequence[str], sweep_only: bool
) -> dict[str, object]:
    """The figures of the sweep, with the optional patches ``with_``, and of each tool."""
    patchkit = [sys.executable, "-m", "patchkit"]
    where = ["--cache-dir", str(cache)]
    began, used = time.monotonic(), _processor_s()
    opted = [word for name in with_ for word in ("--with", name)]
    out, peak_mb = _measured([*patchkit, "sweep", "--arch", arch, *opted, *where, "--json", "--quiet"])
    wall, used = time.monotonic() - began, _processor_s() - used
    swept = json.loads(out)
    classes = {
        str(pin["build"]): {patch["id"]: patch["class"] for patch in pin["patches"]} for pin in swept["pins"]
    }
    result: dict[str, object] = {
        "arch": arch,
        "with": list(with_),
        "trees": len(swept["pins"]),
        "cores": os.cpu_count(),
        "sweep_wall_s": round(wall, 1),
        "sweep_processor_s": round(used, 1),
        "sweep_peak_mb": round(peak_mb, 1),
        "classes": classes,
    }
    if sweep_only:
        return result
    which = ["--arch", arch, "--upstream", upstream, *where, "--quiet"]
    _checked([*patchkit, "apply", *which])
    series = scratch / "series"
    _checked([*patchkit, "export", *which, str(series)])
    files = sorted(series.glob("*.patch"))
    repository = cache / "upstream.git"
    builds = [pin["build"] for pin in swept["pins"]]
    tools = [
        _run(name, take, files, repository, builds, scratch)
        for name, take in (("git am -3", _am), ("git apply", _apply), ("patch -F3", _patch))
    ]
    return result | {
        "upstream": upstream,
        "series": [_ID.findall(file.read_text("utf-8", "replace"))[0] for file in files],
        "tools": [asdict(tool) for tool in tools],
    }


def _opt_in(arch: str) -> list[str]:
    """The optional patches of the GPU, on any build."""
    folder = find_series_dir(None)
    series = load_series(folder.patches)
    profile = load_profile(folder.profiles, arch)
    terms = {patch.id: terms_of(series, patch, profile, None) for patch in series.patches}
    return [name for name, each in terms.items() if each.default == "opt-in"]


def _run(
    name: str,
    take: Callable[[Path, Path], bool],
    files: Sequence[Path],
    repository: Path,
    builds: Sequence[int],
    scratch: Path,
) -> Tool:
    taken: dict[int, int] = {}
    wall = 0.0
    for build in builds:
        tree = scratch / "tree"
        # Not a clone: from a shallow repository git copies only what its branches reach.
        _checked(["git", "init", "--quiet", str(tree)])
        (tree / ".git" / "objects" / "info" / "alternates").write_text(
            f"{repository.resolve() / 'objects'}\n"
        )
        shutil.copy(repository / "shallow", tree / ".git" / "shallow")
        pin = _checked(["git", "-C", str(repository), "rev-parse", f"refs/patchkit/pin/b{build}"])
        git = ["git", "-C", str(tree)]
        _checked([*git, "sparse-checkout", "set", "--no-cone", "/ggml/src/ggml-cuda/"])
        _checked([*git, "checkout", "--quiet", "--detach", pin.decode().strip()])
        began = time.monotonic()
        count = 0
        for file in files:
            count += take(tree, file)
        wall += time.monotonic() - began
        taken[build] = count
        shutil.rmtree(tree)
    return Tool(
        name=name,
        whole_series=sum(count == len(files) for count in taken.values()),
        patches=sum(taken.values()),
        wall_s=round(wall, 1),
        taken=taken,
    )


def _am(tree: Path, file: Path) -> bool:
    who = ["git", "-C", str(tree), "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    done = subprocess.run(
        [*who, "am", "-3", "--quiet", "--keep-cr", str(file)], check=False, capture_output=True
    )
    if done.returncode:
        subprocess.run([*who, "am", "--abort"], check=False, capture_output=True)
    return done.returncode == 0


def _apply(tree: Path, file: Path) -> bool:
    argv = ["git", "-C", str(tree), "apply", str(file)]
    done = subprocess.run(argv, check=False, capture_output=True)
    return done.returncode == 0


def _patch(tree: Path, file: Path) -> bool:
    argv = ["patch", "-p1", "-F3", "--batch", "--forward", "-d", str(tree), "-i", str(file)]
    trial = subprocess.run([*argv, "--dry-run"], check=False, capture_output=True)
    if trial.returncode:
        return False
    return subprocess.run(argv, check=False, capture_output=True).returncode == 0


def _measured(argv: Sequence[str]) -> tuple[bytes, float]:
    """stdout, and the largest resident set of the process and its children, sampled from /proc."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        peak = 0.0
        chunks: list[bytes] = []
        if process.stdout is None:
            raise AssertionError("stdout is not a pipe")
        os.set_blocking(process.stdout.fileno(), False)
        while process.poll() is None:
            peak = max(peak, _resident_mb(process.pid))
            chunks.append(process.stdout.read() or b"")
            time.sleep(0.1)
        os.set_blocking(process.stdout.fileno(), True)
        chunks.append(process.stdout.read() or b"")
    if process.returncode not in (0, 3):
        raise subprocess.CalledProcessError(process.returncode, argv)
    return b"".join(chunks), peak


def _processor_s() -> float:
    """CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _resident_mb(pid: int) -> float:
    """Resident set of a process and its descendants, in 10**6 bytes; Linux only."""
    total, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        try:
            pages = int(Path(f"/proc/{one}/statm").read_text("ascii").split()[1])
            children = Path(f"/proc/{one}/task/{one}/children").read_text("ascii").split()
        except (OSError, IndexError):
            continue
        total += pages * os.sysconf("SC_PAGE_SIZE")
        waiting += [int(child) for child in children]
    return total / 1e6


def _checked(argv: Sequence[str]) -> bytes:
    return subprocess.run(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
