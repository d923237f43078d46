"""Import a whole queue with one ``patchkit import FOLDER``, and carry its series to later pins.

git is the reference: the files that patchkit imported, applied one after the other with ``git apply`` on the
same pin, must give the tree that the imported series gives.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from carry_git import Store
from carry_patchkit import ARCH, DATE, Patchkit, commit_of, empty_series, in_child
from carry_sets import Entry, Item, Sources, queue_items

from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import SeriesDir
from patchkit.base.workspace import Workspace
from patchkit.carry.judging.classify import Comparison, classify_series
from patchkit.carry.judging.rendering import last_renderings
from patchkit.carry.placing.tree import UpstreamFiles, read_upstream
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.profile import load_profiles
from patchkit.carry.series.selection import Selected
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.commits import write_commits

_LIMIT_S = 3600.0


@dataclass(slots=True, kw_only=True)
class Whole:
    """The result of a queue. ``verdicts`` is patchkit's table, ``refused`` the files that only git applies.

    ``same``: the series gives the same tree as git for the imported files. ``carried``: number of patches by
    class, for each later pin.
    """

    set: str
    files: int
    fair: int
    wall: float
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    same: bool = False
    why: str = ""
    carried: dict[str, dict[str, int]] = field(default_factory=dict)


def import_whole(product: Patchkit, sources: Sources, entry: Entry) -> Whole:
    """Import the folder of a queue with one command and carry the series."""
    items = list(queue_items(replace(sources, seen={}), entry))
    name = str(entry["name"])
    done = Whole(set=name, files=len(items), fair=sum(item.after is not None for item in items), wall=0.0)
    folder = product.work / "whole" / product.code[:12] / name
    shutil.rmtree(folder, ignore_errors=True)
    base, build = sources.base(entry)
    series = empty_series(folder, product.workspace, also=(build,))
    argv = [
        sys.executable, "-m", "patchkit", "import", str(sources.data / str(entry["folder"])),
        "--guard", str(entry.get("guard", "none")), "--upstream", f"b{build}",
        "--series-dir", str(series.root), "--cache-dir", str(product.cache), "--json", "--quiet",
    ]  # fmt: skip
    began = time.monotonic()
    ended = subprocess.run(argv, check=False, capture_output=True, timeout=_LIMIT_S)
    done.wall = time.monotonic() - began
    try:
        report: dict[str, Any] = json.loads(ended.stdout)
    except ValueError:
        report = {}
    if "queue" not in report:
        done.why = (ended.stderr or ended.stdout).decode("utf-8", "replace").strip()[-600:]
        return done
    done.verdicts, done.counts = report["queue"], report["counts"]
    in_it = {Path(str(each["name"])).stem for each in done.verdicts if each["patches"]}
    done.refused = [item.name for item in items if item.after is not None and item.name not in in_it]
    expected = _by_git(sources, [item for item in items if item.name in in_it], entry, base)
    targets = [(base, build), *((each.commit, each.build) for each in items[0].targets)]
    lines, _ = in_child(
        lambda: _place_all(series, product, targets), folder.with_suffix(f".{os.getpid()}.part"), _LIMIT_S
    )
    done.why = str(lines[-1]) if lines and "broken" in lines[-1] else "the series was not applied"
    if lines and "tree" in lines[0]:
        tree = str(lines[0]["tree"])
        done.same = expected == tree
        done.why = "" if done.same else _differing(Store(product.cache / "upstream.git"), expected, tree)
    names = [target.name for target in items[0].targets]
    done.carried = {
        each: line["classes"] for each, line in zip(names, lines[1:], strict=False) if "classes" in line
    }
    return done


def _by_git(sources: Sources, items: Sequence[Item], entry: Entry, base: str) -> str:
    """The tree after git applied these files one after the other, or a message if one does not apply."""
    tip = base
    for item in items:
        data = (sources.data / str(entry["folder"]) / f"{item.name}.patch").read_bytes()
        applied = sources.apply("git apply", data, tip)
        if applied.commit is None:
            return f"git does not apply {item.name} here: {applied.why}"
        tip = applied.commit
    return sources.store.tree_of(tip)


def _differing(store: Store, expected: str, tree: str) -> str:
    if " " in expected:
        return expected
    return f"other bytes in {', '.join(store.paths(expected, tree))}"


def _place_all(
    series: SeriesDir, product: Patchkit, targets: Sequence[tuple[str, int]]
) -> Iterator[dict[str, Any]]:
    """The tree of the series on its own pin, then the number of patches by class on each later pin."""
    cache = open_cache(product.cache)
    repository = cache.peek(NullReporter())
    if repository is None:
        raise RuntimeError("the cache has no repository")
    loaded = load_series(series.patches)
    profiles = load_profiles(series.profiles, [ARCH])
    chosen = tuple(Selected(patch=patch, targets=profiles, reason="") for patch in loaded.patches)

    def read(commit: str) -> UpstreamFiles:
        return read_upstream(repository, commit, loaded.read)

    (base, _), *later = targets
    last = last_renderings(chosen, read(base), series)
    commits = [commit_of(each.placed, name) for name, each in last.items() if each.placed]
    tip = write_commits(repository, base, commits, date=DATE)[-1].commit if commits else base
    yield {"tree": repository.tree_of(tip)}
    workspace = Workspace(series=series, cache_root=product.cache, reporter=NullReporter())
    for commit, build in later:
        comparison = Comparison(
            workspace=workspace, build=build, chosen=chosen, files=read(commit), last=last
        )
        verdicts, _ = classify_series(comparison)
        yield {"classes": dict(Counter(each.patch_class for each in verdicts))}


def whole_table(found: Sequence[Whole]) -> list[str]:
    """The markdown table, one row per queue."""
    heads = (
        "queue", "files", "fair", "lifted", "text", "rejected, fair", "same tree as git's", "wall s",
        "carried",
    )  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for each in found:
        cells = (
            each.set, each.files, each.fair, each.counts.get("lifted", 0), each.counts.get("text", 0),
            len(each.refused), "yes" if each.same else f"no: {' '.join(each.why.split())}",
            f"{each.wall:.0f}", "; ".join(_carried(each)),
        )  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines + [
        f"- {each.set}: git applies it, patchkit rejects it: {name}"
        for each in found
        for name in each.refused
    ]


def _carried(one: Whole) -> Iterator[str]:
    for name, classes in one.carried.items():
        yield f"{name}: {', '.join(f'{count} {kind}' for kind, count in classes.items())}"
