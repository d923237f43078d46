"""patchkit's part of carry_queues.py: import one change, and apply it on another tree.

Only :func:`import_change` and :func:`place_again` know how patchkit does it. Each runs in its own process,
which is killed after a time limit. Results are stored under a digest of everything they depend on, including
patchkit's code for carrying patches.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomlkit

import patchkit
from patchkit.base.arch import list_profiles
from patchkit.base.errors import ErrorGroup, PatchkitError
from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import SeriesDir, find_series_dir
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.target import catalogue_pins
from patchkit.carry.importing.commits import compare_commits
from patchkit.carry.judging.classify import Comparison, classify_series
from patchkit.carry.judging.rendering import Rendering, render_patch
from patchkit.carry.lifting.change import Changeset
from patchkit.carry.lifting.pipeline import PatchOptions, open_pipeline
from patchkit.carry.placing.place import PlacedPatch
from patchkit.carry.placing.tree import UpstreamFiles, read_upstream
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import load_lock, write_lock
from patchkit.carry.series.profile import load_profiles
from patchkit.carry.series.selection import Selected
from patchkit.carry.upstream.cache import Cache, open_cache
from patchkit.carry.upstream.commits import NewCommit, write_commits

ARCH = "gfx1151"
"""The profile with which plain patches are parsed, and the one that a series for the bench has."""

LIMIT_S = 120.0
"""Of processor time: the machine may be busy with other things. Four times that of the clock."""
_POLL_S = 0.05
_PATIENCE = 4
_BROKEN = "broken"
DATE = "2023-11-14T22:13:20+00:00"
_PARTS = ("carry", "base")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change to import: ``base..after`` for ``build``; both are commits of the cache."""

    title: str
    build: int
    base: str
    after: str
    guard: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One error of patchkit: code, message and place."""

    code: str
    message: str
    where: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """The result of an import.

    ``seconds`` are CPU time, ``wall`` is wall time. ``texts`` are the edits that stayed text, with the
    reason; ``folder`` is the series. ``same``: applying it again gives the bytes that git gives.
    """

    seconds: float
    wall: float
    refusals: tuple[Refusal, ...] = ()
    edits: int = 0
    files: int = 0
    texts: tuple[str, ...] = ()
    folder: str = ""
    same: bool = False

    @property
    def is_made(self) -> bool:
        """Whether the import created a patch."""
        return not self.refusals

    @property
    def form(self) -> str:
        """The kind of edits: structural, mixed or text."""
        if self.refusals:
            return "refused"
        if not self.texts:
            return "structural"
        return "text" if len(self.texts) == self.edits and not self.files else "mixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """A patch on another tree: ``found`` is patchkit's class for it, ``files`` the files that it wrote.

    ``files`` has mode and blob by path, or is None if the patch was not applied. ``again``: the touched
    files are those of an earlier target, so the result is reused. ``faithful``: read again from its series,
    the patch gives the same result as git on its own base.
    """

    found: str
    files: dict[str, list[str]] | None = None
    why: str = ""
    code: str = ""
    seconds: float = 0.0
    faithful: bool = True
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A commit to apply the patch on; ``tree`` and ``touched`` are digests of all its files and of ``paths``.

    ``paths`` are the files that the patch changes on its base. On another tree it may change other files.
    """

    commit: str
    tree: str
    touched: str
    build: int
    paths: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patchkit:
    """patchkit with a cache folder; ``work`` is the folder for the benchmark's series and results."""

    work: Path
    cache: Path
    code: str

    @property
    def workspace(self) -> Workspace:
        """The workspace with this checkout's series, of which only profiles and pins are used."""
        return Workspace(series=find_series_dir(None), cache_root=self.cache, reporter=NullReporter())

    def import_one(self, change: Change, trees: Sequence[str]) -> Import:
        """Import a change within the time limit; the trees of its commits are part of the result's name."""
        key = _digest("3", self.code, change.title, str(change.build), change.guard, *trees)
        kept = self.work / "imported" / self.code[:12] / f"{key}.json"
        folder = kept.with_suffix(".series")
        found = _read(kept)
        if found is None:
            shutil.rmtree(folder, ignore_errors=True)
            began = time.monotonic()
            lines, in_time = in_child(
                lambda: iter([import_change(change, folder, self.workspace)]),
                kept.with_suffix(f".{os.getpid()}.part"),
                LIMIT_S,
            )
            if lines and _BROKEN not in lines[0]:
                found = lines[0]
            else:
                found = _lost(time.monotonic() - began, lines[0] if lines else {}, in_time=in_time)
            _write(kept, found)
        refusals = tuple(Refusal(**each) for each in found.get("refusals", ()))
        return Import(**found | {"refusals": refusals, "texts": tuple(found.get("texts", ()))})

    def carry(self, change: Change, imported: Import, goals: Sequence[Goal]) -> list[Carried]:
        """Apply an imported patch on each of the commits.

        If the files that it touches are equal on two of them, it is applied on one only, and the other result
        has ``again`` set: other files that are read there are headers.
        """
        name = Path(imported.folder).stem
        while True:
            found = [self._known(name, goal) for goal in goals]
            open_ones: dict[str, Goal] = {}
            for goal, known in zip(goals, found, strict=True):
                if known is None:
                    open_ones.setdefault(goal.touched, goal)
            if not open_ones:
                return [each for each in found if each is not None]
            wanted = list(open_ones.values())
            began = time.monotonic()
            lines, in_time = in_child(
                lambda wanted=wanted: place_again(change, imported, wanted, self.workspace),  # type: ignore[misc]
                self.work / "placed" / f"{name[:16]}-{os.getpid()}.part",
                LIMIT_S,
            )
            broken = lines.pop() if lines and _BROKEN in lines[-1] else {_BROKEN: "the process ended"}
            for goal, line in zip(wanted, lines, strict=False):
                _write(self._kept(name, goal.tree), line)
                # A result in another file is not valid for a target where that file differs.
                if line["found"] in ("clean", "moved") and goal.paths.issuperset(line["files"] or ()):
                    _write(self._kept(name, goal.touched), line)
            if len(lines) < len(wanted):  # the goal during which the process ended
                failure = {"found": "broken" if in_time else "over time", "why": broken[_BROKEN]}
                _write(
                    self._kept(name, wanted[len(lines)].tree), failure | {"seconds": time.monotonic() - began}
                )

    def _kept(self, name: str, on: str) -> Path:
        return self.work / "placed" / self.code[:12] / f"{_digest('3', self.code, name, on)}.json"

    def _known(self, name: str, goal: Goal) -> Carried | None:
        whole = _read(self._kept(name, goal.tree))
        if whole is not None:
            return Carried(**whole)
        part = _read(self._kept(name, goal.touched))
        return Carried(**part | {"again": True}) if part is not None else None


def import_change(change: Change, folder: Path, workspace: Workspace) -> dict[str, Any]:
    """Import one change into a new series at ``folder``; returns the fields of an :class:`Import`."""
    began = time.monotonic()
    series = empty_series(folder, workspace)
    inside = replace(workspace, series=series)
    try:
        with open_pipeline(inside) as pipeline:
            files = compare_commits(change.base, change.after, change.title, pipeline.repository)
            found = Changeset(build=change.build, base=change.base, name=f"b{change.build}", files=files)
            done = pipeline.make(found, PatchOptions(guard=change.guard), change.title)
    except PatchkitError as error:
        refusals = [_refusal(each) for each in _members(error)]
        return {"seconds": _used(), "wall": time.monotonic() - began, "refusals": refusals}
    return {
        "seconds": _used(),
        "wall": time.monotonic() - began,
        "edits": len(done.patch.body.edits),
        "files": len(done.patch.body.files),
        "texts": list(done.hunks.values()),
        "folder": str(folder),
        "same": done.same.startswith("byte for byte" if change.guard == "none" else "token for token"),
    }


def place_again(
    change: Change, imported: Import, goals: Sequence[Goal], workspace: Workspace
) -> Iterator[dict[str, Any]]:
    """Apply the patch of a series on other commits like ``bump``; yields the fields of :class:`Carried`."""
    series = SeriesDir(root=Path(imported.folder), origin="named")
    inside = replace(workspace, series=series)
    loaded = load_series(series.patches)
    profiles = load_profiles(series.profiles, [ARCH])
    (patch,) = loaded.patches
    selected = Selected(patch=patch, targets=profiles, reason="")
    cache = open_cache(workspace.cache_root)
    repository = cache.peek(workspace.reporter)
    if repository is None:
        raise RuntimeError("the cache has no repository")

    def read(commit: str) -> UpstreamFiles:
        return read_upstream(repository, commit, loaded.read)

    def write(commit: str, placed: PlacedPatch) -> str:
        return write_commits(repository, commit, [commit_of(placed)], date=DATE)[-1].commit

    last: Rendering = render_patch(selected, read(change.base), series)
    known = {patch.id: last} if last.placed is not None else {}
    made_there = write(change.base, last.placed) if last.placed is not None else change.base
    faithful = change.guard != "none" or repository.tree_of(made_there) == repository.tree_of(change.after)
    for goal in goals:
        began = _used()
        comparison = Comparison(
            workspace=inside, build=goal.build, chosen=(selected,), files=read(goal.commit), last=known
        )
        (verdict,), renderings = classify_series(comparison)
        made: dict[str, list[str]] | None = None
        if renderings and renderings[0].placed is not None:
            commit = write(goal.commit, renderings[0].placed)
            changes = repository.git.changes(goal.commit, commit)
            made = {each.path: [each.modes[1], each.ids[1]] for each in changes}
        elif verdict.patch_class == "upstreamed":
            made = {}
        first = verdict.problems[0] if verdict.problems else None
        yield {
            "found": verdict.patch_class,
            "files": made,
            "why": first.message if first is not None else verdict.reason,
            "code": first.code if first is not None else "",
            "faithful": faithful,
            "seconds": _used() - began,
        }


def commit_of(placed: PlacedPatch, message: str = "bench") -> NewCommit:
    """The commit of a placed patch, with removed files and modes."""
    return NewCommit(message=message, changes=placed.changes, gone=placed.gone, modes=placed.modes)


def _used() -> float:
    """CPU seconds of this process and its ended children, with all threads."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in both)


def _used_by(process: int) -> float:
    """CPU seconds of another process, 0.0 if it has ended; Linux only."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def empty_series(folder: Path, workspace: Workspace, also: Sequence[int] = ()) -> SeriesDir:
    """A series with one GPU and no patch, with the pins of the lock and of the builds ``also``."""
    own = SeriesDir(root=folder, origin="named")
    own.patches.mkdir(parents=True)
    own.templates.mkdir()
    source = workspace.series
    shutil.copytree(source.profiles, own.profiles)
    for name in list_profiles(own.profiles):
        path = own.profiles / f"{name}.toml"
        if name != ARCH:
            path.unlink()
            continue
        document = tomlkit.parse(path.read_text("utf-8"))
        document["patches"] = tomlkit.table()
        path.write_text(tomlkit.dumps(document), "utf-8")
    own.patches.joinpath("series.toml").write_text(
        'folders = ["ggml/src/ggml-cuda/"]\n\n[gates]\nrequired = ["anchors"]\nwhy = "a bench"\n', "utf-8"
    )
    lock = load_lock(source.lock)
    known = {pin.build: pin for pin in catalogue_pins(source.patches / "upstreams.toml")}
    more = [known[build] for build in also if build in known and build not in {p.build for p in lock.pins}]
    write_lock(own.lock, replace(lock, pins=(*lock.pins, *more), results=()))
    return own


def _members(error: PatchkitError) -> tuple[PatchkitError, ...]:
    return tuple(error.errors) if isinstance(error, ErrorGroup) else (error,)


def _refusal(error: PatchkitError) -> dict[str, str]:
    where = error.where[0] if error.where else None
    return {
        "code": error.code,
        "message": error.message,
        "where": f"{where.path}:{where.line}" if where is not None and where.line else "",
        "why": error.why or "",
    }


def _lost(seconds: float, error: Mapping[str, str], *, in_time: bool) -> dict[str, Any]:
    failure = {"code": "OVER_TIME", "message": f"over {LIMIT_S:.0f} s"}
    if in_time:
        message = error.get(_BROKEN, "the process ended without an error message")
        failure = {"code": "BROKEN", "message": message, "where": error.get("where", "")}
    return {"seconds": LIMIT_S if not in_time else seconds, "wall": seconds, "refusals": [failure]}


def in_child(
    work: Callable[[], Iterator[dict[str, Any]]], part: Path, limit: float
) -> tuple[list[dict[str, Any]], bool]:
    """The results of ``work`` in its own process, each within ``limit`` CPU seconds.

    The second value is False after a timeout. The process is a fork, so patchkit is already imported.
    """
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_text("", "utf-8")
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _be_child(work, part)
    size, since, used, in_time = 0, time.monotonic(), 0.0, True
    try:
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            time.sleep(_POLL_S)
            now = part.stat().st_size
            if now != size:
                size, since, used = now, time.monotonic(), _used_by(child)
            elif _used_by(child) - used > limit or time.monotonic() - since > _PATIENCE * limit:
                in_time = False
                break
    except BaseException:
        _end(child)
        raise
    if not in_time:
        _end(child)
    lines = [line for line in part.read_text("utf-8").split("\n") if line]
    part.unlink()
    return [json.loads(line) for line in lines], in_time


def _be_child(work: Callable[[], Iterator[dict[str, Any]]], part: Path) -> None:
    """Do the work and exit the process without running the parent's exit handlers."""
    os.setsid()
    status = 0
    try:
        with part.open("a", encoding="utf-8") as stream:
            for each in work():
                stream.write(json.dumps(each) + "\n")
                stream.flush()
    except BaseException as error:  # noqa: BLE001  # every error is reported
        traceback.print_exc()
        frame = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__}: {error}"
        with part.open("a", encoding="utf-8") as stream:
            stream.write(
                json.dumps({_BROKEN: message, "where": f"{Path(frame.filename).name}:{frame.lineno}"})
            )
        status = 1
    finally:
        sys.stderr.flush()
        os._exit(status)


def _end(child: int) -> None:
    """Kill the process and its git commands."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)


def code_digest() -> str:
    """Digest of everything in patchkit that importing and applying depend on."""
    package = Path(patchkit.__file__).parent
    texts = find_series_dir(None).templates / "patchkit"
    files = [path for part in _PARTS for path in sorted((package / part).rglob("*"))]
    files += sorted(texts.rglob("*"))
    wanted = [path for path in files if path.is_file() and path.suffix != ".pyc"]
    return _digest(*(hashlib.sha256(path.read_bytes()).hexdigest() for path in wanted))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _read(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text("utf-8")) if path.is_file() else None


def _write(path: Path, found: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.draft")
    draft.write_text(json.dumps(found), "utf-8")
    draft.rename(path)


def make_cache(folder: Path, like: Path, objects: Sequence[Path]) -> Path:
    """Create the benchmark's cache folder, with the refs of another one and its objects as alternates.

    patchkit locks its cache during an import. Each version of patchkit has its own cache, so two benchmarks
    can run at once.
    """
    repository, source = folder / "upstream.git", like / "upstream.git"
    if not repository.is_dir():
        draft = folder.with_name(f"{folder.name}.{os.getpid()}")
        skipped = str(source)
        shutil.copytree(
            source, draft / "upstream.git", ignore=lambda place, _: ["objects"] if place == skipped else []
        )
        (draft / "upstream.git" / "objects" / "info").mkdir(parents=True)
        (draft / "upstream.git" / "objects" / "pack").mkdir()
        with contextlib.suppress(OSError):  # another benchmark created it first
            draft.rename(folder)
    text = "".join(f"{path.resolve()}\n" for path in objects)
    alternates = repository / "objects" / "info" / "alternates"
    if (
        not alternates.is_file() or alternates.read_text("utf-8") != text
    ):  # another benchmark may be reading it
        alternates.write_text(text, "utf-8")
    return folder


def pins(cache: Path) -> dict[int, str]:
    """The commits of the pins in a cache folder, by build."""
    opened: Cache = open_cache(cache)
    repository = opened.peek(NullReporter())
    if repository is None:
        return {}
    known = catalogue_pins(find_series_dir(None).patches / "upstreams.toml")
    names = {pin.build: f"refs/patchkit/pin/{pin.name}" for pin in known}
    found = repository.resolve(*names.values())
    return {build: sha for build, sha in zip(names, found, strict=True) if sha is not None}
