"""Check the places that git's merge gives to edits, with changes of upstream's history as the reference.

    python benchmarks/carry_merged.py CLONE --range b6900..b8191 --back 200 --every 3 --json FILE

CLONE is a bare clone of upstream. Each file that a commit of the range changes is taken back by --back
commits: git merges the change into the older version. If that has no conflict, the older version with and
without the change is imported as edits of whole lines, and these are carried to the commit's own parent.
There the result must be the file of the commit, byte for byte. Each file is one of:

placed      every edit fits by its own lines
merged      at least one edit does not, and all are placed by git's merge (patchkit/carry/judging/merged.py)
conflict    at least one edit has no place

`other` results differ from upstream's file; they are listed, because they may be wrong placements.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from carry_git import Store

from patchkit.base.errors import PatchkitError
from patchkit.base.reporter import NullReporter
from patchkit.base.source import SourceText
from patchkit.carry.cpp.scopes import parse_scopes
from patchkit.carry.judging.derive import merge_file
from patchkit.carry.judging.merged import follow_edit
from patchkit.carry.lifting.draft import NotLifted
from patchkit.carry.lifting.lines import lift_lines
from patchkit.carry.placing.expand import Placement, apply_placements
from patchkit.carry.placing.plain import expand_plain
from patchkit.carry.placing.resolve import resolve_anchor
from patchkit.carry.series.patch import Edit


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One file of a commit: placed, merged or conflict, and whether the result is upstream's file."""

    commit: str
    path: str
    edits: int
    state: str
    same: bool
    note: str = ""


def main() -> int:
    """Return 1 if a result differs from upstream's file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clone", type=Path)
    parser.add_argument("--range", required=True, help="arguments of git rev-list")
    parser.add_argument("--path", default="ggml/src", help="only files below this folder")
    parser.add_argument("--back", type=int, default=200, help="commits between the import and the carrying")
    parser.add_argument("--every", type=int, default=1, help="only each n-th commit")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    store = Store(options.clone)
    listed = store.text("rev-list", "--reverse", "--no-merges", options.range, "--", options.path).split()
    found = [
        each
        for commit in listed[:: options.every]
        for each in carried(store, commit, options.path, options.back)
    ]
    counts = Counter((each.state, each.same) for each in found)
    for (state, same), count in sorted(counts.items()):
        print(f"{count:6} {state}, {'the same as upstream' if same else 'other'}")
    for each in found:
        if each.state != "conflict" and not each.same:
            print(f"{each.commit[:12]} {each.path}: {each.state} {each.note}")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n", "utf-8")
    return int(any(each.state != "conflict" and not each.same for each in found))


def carried(store: Store, commit: str, path: str, back: int) -> Iterator[Found]:
    """Each changed file of a commit that can be imported on an older tree."""
    parent, old = store.commit_of(f"{commit}^"), store.commit_of(f"{commit}~{back}")
    if parent is None or old is None:
        return
    for name in store.paths(parent, commit):
        if not name.startswith(f"{path}/"):
            continue
        before, after, base = (store.read(each, [name]).get(name) for each in (parent, commit, old))
        if before is None or after is None or base is None or b"\0" in before + after + base:
            continue
        patched, conflicts = merge_file(after, before, base, NullReporter())
        if conflicts or patched == base:
            continue
        try:
            edits = edits_of(name, base, patched)
        except (NotLifted, PatchkitError):
            continue
        yield carry_file(commit, name, edits, (base, before, after))


def edits_of(path: str, old: bytes, new: bytes) -> list[Edit]:
    """The edits that an import makes of a change."""
    return [
        Edit(
            id=f"e{number}",
            file=path,
            function=draft.function,
            parameters=draft.parameters,
            at=draft.selector,
            verb=draft.verb,
            text=(draft.rows or b"").decode() if draft.verb != "remove" else None,
        )
        for number, draft in enumerate(lift_lines(path, old, new))
    ]


def carry_file(commit: str, path: str, edits: Sequence[Edit], files: tuple[bytes, bytes, bytes]) -> Found:
    """Carry edits of the first file to the second one; the third one must result."""
    old, new = (parse_scopes(SourceText(path, data)) for data in files[:2])
    placements: list[Placement] = []
    state, note = "placed", ""
    for edit in edits:
        chosen: Edit | None = edit
        try:
            expand_plain(new.source, resolve_anchor(new, edit), edit.text)
        except PatchkitError as error:
            state, note = "merged", f"{note} {error.code}".strip()
            followed = follow_edit(edit, edit, edit.text, (old, new), NullReporter())
            chosen = followed[0] if followed is not None else None
        if chosen is None:
            return Found(commit=commit, path=path, edits=len(edits), state="conflict", same=False, note=note)
        placements += expand_plain(new.source, resolve_anchor(new, chosen), chosen.text)
    try:
        result = apply_placements(new.source, placements).after.data
    except PatchkitError as error:
        return Found(
            commit=commit, path=path, edits=len(edits), state="conflict", same=False, note=error.code
        )
    return Found(commit=commit, path=path, edits=len(edits), state=state, same=result == files[2], note=note)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.TimeoutExpired as error:
        sys.exit(str(error))
