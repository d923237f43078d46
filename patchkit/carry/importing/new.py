"""``patchkit new``: make a patch with one change that is given by options instead of a diff."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from patchkit.base.errors import AnchorError, Location, UsageError
from patchkit.base.series_folder import refuse_installed
from patchkit.base.source import SourceText
from patchkit.base.text import near_miss
from patchkit.base.workspace import Workspace
from patchkit.carry.cpp.scopes import is_code, parse_scopes
from patchkit.carry.lifting.change import Changeset, FileChange
from patchkit.carry.lifting.pipeline import PatchOptions, Written, guard_profiles, open_pipeline
from patchkit.carry.placing.plain import expand_plain
from patchkit.carry.placing.resolve import resolve_anchor
from patchkit.carry.series.lock import Pin, PinWanted
from patchkit.carry.series.patch import Edit
from patchkit.carry.series.selector import Selector
from patchkit.carry.upstream.pin import find_pinned, obtain
from patchkit.carry.upstream.repository import Repository

NewVerb = Literal["change_to", "insert_before", "insert_after", "remove"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRequest:
    """One change: ``text`` at the tokens ``at`` of a function, or of the file if no function is given."""

    topic: str
    wanted: PatchOptions
    file: str
    at: str
    verb: NewVerb
    text: str = ""
    function: str | None = None
    parameters: str | None = None
    upstream: PinWanted = None


def run_new(request: NewRequest, workspace: Workspace) -> Written:
    """Make a patch with one change and put it into the series.

    Raises:
        NEW_FILE_UNKNOWN: upstream has no such file.
        ENTITY_NOT_FOUND, ANCHOR_NOT_FOUND, ANCHOR_AMBIGUOUS, ...: the place, as in a patch.toml.
        PatchkitError: as :meth:`patchkit.carry.lifting.pipeline.Pipeline.make`.

    After any exception the series is unchanged.
    """
    refuse_installed(workspace.series)
    guard_profiles(request.wanted.guard, workspace.series.profiles)  # report a misspelt name before fetching
    with open_pipeline(workspace) as pipeline:
        lock, repository = pipeline.lock, pipeline.repository
        cached = [pin for pin in lock.pins if find_pinned(repository, pin) is not None]
        newest = max(cached, key=lambda pin: pin.build, default=lock.pin(None))
        pin = lock.pin(request.upstream) if request.upstream is not None else newest
        base = obtain(pin, cache=pipeline.cache, reporter=workspace.reporter)
        before = _read(request, repository, base, pin)
        after = _changed(request, SourceText(request.file, before))
        change = Changeset(
            build=pin.build,
            base=base,
            name=pin.name,
            files=(FileChange(path=request.file, before=before, after=after),),
            how="written on",
        )
        wanted = replace(request.wanted, id=request.topic)
        return pipeline.make(change, wanted, request.topic.replace("-", " "))


def _read(request: NewRequest, repository: Repository, base: str, pin: Pin) -> bytes:
    found = repository.find_entries(base, [request.file]).get(request.file)
    if found is None or not found.mode.startswith("100"):
        names = [entry.path for entry in repository.list_files(base)]
        last = request.file.rpartition("/")[2]
        same = [name for name in names if name.rpartition("/")[2] == last]
        raise UsageError(
            f"{pin.name} has no file {request.file}",
            code="NEW_FILE_UNKNOWN",
            hint=" or ".join(f"--file {name}" for name in same) or near_miss(request.file, names),
        )
    return repository.read_blobs(base, [request.file])[request.file]


def _changed(request: NewRequest, source: SourceText) -> bytes:
    """The file with the change, unguarded; raises what placing the edit raises."""
    code = is_code(source.path)
    selector = Selector(tokens=request.at) if code else Selector(lines=request.at)
    by_line = code and request.verb.startswith("insert") and request.text.rstrip().endswith((";", "}"))
    edit = Edit(
        id=request.topic,
        file=request.file,
        function=request.function,
        parameters=request.parameters,
        at=selector,
        verb=request.verb,
        text=request.text if request.verb != "remove" else None,
        where=Location(path="--at"),
    )
    anchor = resolve_anchor(parse_scopes(source), edit)
    text = request.text
    if by_line:  # put statements on their own lines, indented like the one next to them
        line = source.text(source.line_span(source.line_of(anchor.spans[0].start)))
        indent = line[: len(line) - len(line.lstrip(b" \t"))].decode()
        text = f"{indent}{text.strip()}\n"
    (placement,) = expand_plain(source, anchor, None if request.verb == "remove" else text)
    data = source.data
    changed = data[: placement.span.start] + placement.replacement + data[placement.span.end :]
    if changed == data:
        raise AnchorError(
            "nothing would change: the new text equals the existing one",
            code="IMPORT_NOTHING",
            where=edit.where,
        )
    return changed
