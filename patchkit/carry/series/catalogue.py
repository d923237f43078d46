"""The patches folder as a whole: series.toml and every NNNN-topic/patch.toml, with checks across files."""

from __future__ import annotations

import itertools
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field

from patchkit.base.errors import ConfigError, ErrorGroup, Location, PatchkitError, UsageError, members_of
from patchkit.base.evidence import load_evidence_folder
from patchkit.base.series_folder import EVIDENCE
from patchkit.base.text import near_miss
from patchkit.base.toml import NOWHERE, Document, NotInFile, Several, TomlTable, load_toml, validate
from patchkit.base.upstreams import build_name
from patchkit.carry.series.fault import Fault
from patchkit.carry.series.lock import load_lock
from patchkit.carry.series.measured import claims_of, codes_of
from patchkit.carry.series.patch import Edit, GuardMacros, NewFile, Patch, is_for, parse_patch
from patchkit.carry.series.trust import TWO_AND_TWO, Claim, ClaimFile, TrustRules


def _with_slash(folder: str) -> str:
    return folder if folder.endswith("/") else folder + "/"


_FOLDER = re.compile(r"([0-9]{4})-([a-z0-9]+(?:-[a-z0-9]+)*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series(TomlTable):
    """series.toml, and the patches in order. ``folders`` are the upstream folders of guarded patches.

    ``plain``: the series is GPU-independent, has no profiles, and all its patches are plain.
    ``faults``: known bugs of upstream builds. ``watches``: forks whose commits are reported.
    ``trust``: how many sources make a patch measured, or turn it off by default.
    ``gates`` is read by :mod:`patchkit.prove.verify.policy`.
    """

    plain: Annotated[bool, Field(description="GPU-independent: none of its patches has a guard")] = False
    folders: Annotated[
        Several[Annotated[str, AfterValidator(_with_slash)]],
        Field(description="Folders that guarded patches may touch; a plain series has none"),
    ] = ()
    gates: object = None
    faults: Annotated[Several[Fault], Field(alias="fault")] = ()
    trust: TrustRules = TWO_AND_TWO
    patches: NotInFile[tuple[Patch, ...]] = ()

    def __post_init__(self) -> None:
        if not self.plain and not self.folders:
            raise ValueError("'folders' is missing: the upstream folders that guarded patches may touch")
        if self.plain and self.folders:
            raise ValueError("'folders' is for guarded patches, and a plain series has none")

    @property
    def read(self) -> tuple[str, ...]:
        """The folders that guarded patches may touch, and the files outside them that patches name."""
        named = {path for patch in self.patches for path in patch.touched_files}
        beyond = {path for path in named if f"{path.rpartition('/')[0]}/" not in self.folders}
        return (*self.folders, *sorted(beyond))

    def patch(self, name: str) -> Patch | None:
        """The patch of that id."""
        return next((patch for patch in self.patches if patch.id == name), None)

    def require(self, name: str) -> Patch:
        """The patch of that id; raises UNKNOWN_PATCH."""
        patch = self.patch(name)
        if patch is None:
            known = [each.id for each in self.patches]
            raise UsageError(
                f"the series has no patch '{name}'",
                code="UNKNOWN_PATCH",
                hint=near_miss(name, known) or f"patches: {', '.join(known)}",
            )
        return patch


S = TypeVar("S", bound=Series)


def load_series(folder: Path) -> Series:
    """Read ``folder``/series.toml and every patch below it; raises as :func:`load_series_as`."""
    return load_series_as(folder, Series)


def load_series_as(folder: Path, kind: type[S]) -> S:
    """Read a series with a model of series.toml that has more fields.

    Raises one ErrorGroup with every problem of every file, or a single ConfigError.
    """
    errors: list[PatchkitError] = []
    rules = load_toml(folder / "series.toml")
    series = validate(rules, kind, what="series")
    if series.plain:
        errors.extend(_check_no_profiles(folder, rules))
    patches: list[Patch] = []
    for path in sorted(entry for entry in folder.iterdir() if entry.is_dir()):
        named = _FOLDER.fullmatch(path.name)
        if named is None:
            errors.append(
                ConfigError(
                    f"the folder name '{path.name}' is not of the form NNNN-topic",
                    code="PATCH_BAD",
                    where=Location(path=str(path)),
                    hint="use four digits, a dash and the patch's id, for example 0005-my-topic",
                )
            )
            continue
        try:
            patch = parse_patch(load_toml(path / "patch.toml"), folder=path.name, number=int(named.group(1)))
            patches.append(replace(patch, claims=_load_claims(path)))
        except PatchkitError as exc:
            errors.extend(members_of(exc))
    try:
        patches = _with_measured(patches, folder)
    except PatchkitError as exc:
        errors.extend(members_of(exc))
    series = replace(series, patches=tuple(sorted(patches, key=lambda patch: patch.number)))
    errors.extend(_check(series))
    if errors:
        raise ErrorGroup(f"{folder} is not a valid series", errors)
    return series


def _load_claims(folder: Path) -> tuple[Claim, ...]:
    """The claims in evidence.toml in the folder of a patch, if there is one."""
    path = folder / EVIDENCE
    return validate(load_toml(path), ClaimFile, what="evidence").claims if path.is_file() else ()


def _with_measured(patches: list[Patch], folder: Path) -> list[Patch]:
    """The patches, with the claims from the evidence folder next to ``folder`` added."""
    files = load_evidence_folder(folder.with_name("evidence"))
    if not files:
        return patches
    codes = codes_of(folder, {each.id: each.folder for each in patches})
    claims = claims_of(files, load_lock(folder / "upstream.lock"), codes)
    return [replace(each, claims=(*each.claims, *claims.get(each.id, ()))) for each in patches]


def _check_switches(series: Series) -> Iterator[ConfigError]:
    """The switches' patch prints and counts: the gates choose their cases without its files."""
    found = [patch for patch in series.patches if patch.switches is not None]
    for other in found[1:]:
        yield ConfigError(
            f"two patches have [switches]: '{found[0].id}' and '{other.id}'",
            code="PATCH_BAD",
            where=[found[0].where, other.where],
            hint="keep one; it adds the run-time switches of all patches",
        )
    for patch in found:
        for edit in patch.edits:
            if edit.side != "host":
                yield ConfigError(
                    f"an edit of '{patch.id}' is not of host code, but the patch has [switches]",
                    code="PATCH_BAD",
                    where=edit.where,
                    why="gates choose their cases without the switches' files, so these must not compute",
                    hint="move the edit to a patch of its own",
                )


def _check(series: Series) -> Iterator[ConfigError]:
    yield from _check_switches(series)
    seen: dict[str | int, Patch] = {}
    for patch in series.patches:
        for key in (patch.id, patch.number):
            if key in seen:
                yield ConfigError(
                    f"two patches have the same id or number: {key}",
                    code="PATCH_BAD",
                    where=[patch.where, seen[key].where],
                    hint="give one of them a different number and id",
                )
            seen[key] = patch
        if patch.folder[5:] != patch.id:
            yield ConfigError(
                f"the folder '{patch.folder}' contains the patch '{patch.id}'",
                code="PATCH_BAD",
                where=patch.where,
                hint=f"rename the folder to {patch.folder[:5]}{patch.id}",
            )
        yield from _check_names(series, patch)
        yield from _check_builds(patch)
        yield from _check_turns(patch)
        yield from _check_folders(series, patch)
        if series.plain and isinstance(patch.guard, GuardMacros):
            yield ConfigError(
                f"patch '{patch.id}' has a guard, but the series is plain",
                code="PATCH_BAD",
                where=patch.guard.where,
                why="a guard limits a patch to GPUs, and a plain series has no GPUs",
                hint='set guard = "none" if the patch is for every backend; put patches for GPUs into a '
                "series made with: patchkit init DIR",
            )
    yield from _check_faults(series)


def _check_no_profiles(folder: Path, rules: Document) -> Iterator[ConfigError]:
    profiles = folder.with_name("arch_profiles")
    if profiles.exists():
        yield ConfigError(
            "the series is plain, but has GPU profiles",
            code="SERIES_PLAIN_PROFILES",
            where=[rules.locate(("plain",)), Location(path=str(profiles))],
            why="a plain series has no GPUs",
            hint=f"remove the line plain = true; or the folder: rm -r {shlex.quote(str(profiles))}",
        )


def _check_faults(series: Series) -> Iterator[ConfigError]:
    ids = [fault.id for fault in series.faults]
    known = [patch.id for patch in series.patches]
    for fault in series.faults:
        if ids.count(fault.id) > 1:
            yield ConfigError(
                f"two faults have the id {fault.id}",
                code="FAULT_BAD",
                where=fault.where,
            )
        if fault.patch is not None and fault.patch not in known:
            yield ConfigError(
                f"fault '{fault.id}' names the patch '{fault.patch}', which is not in the series",
                code="PATCH_BAD",
                where=fault.where,
                hint=near_miss(fault.patch, known) or f"patches: {', '.join(known)}",
            )


def _check_names(series: Series, patch: Patch) -> Iterator[ConfigError]:
    ids = [other.id for other in series.patches]
    for requirement in patch.requires:
        if requirement.patch not in ids or requirement.patch == patch.id:
            yield ConfigError(
                f"patch '{patch.id}' requires '{requirement.patch}', which is not another patch of it",
                code="PATCH_BAD",
                where=requirement.where,
                hint=near_miss(requirement.patch, ids) or f"patches: {', '.join(ids)}",
            )
    aliases = [alias.name for alias in patch.aliases]
    edits = [edit.id for edit in patch.edits]
    named = [(name, patch.edits[at].where) for at, name in enumerate(edits) if edits.index(name) == at]
    named += [(alias.name, alias.where) for alias in patch.aliases]
    paths = [file.path for file in patch.files]
    named += [(path, patch.files[at].where) for at, path in enumerate(paths) if paths.index(path) == at]
    count = Counter(name for name, _ in named)
    for name, where in named:
        if count[name] > 1:
            yield ConfigError(
                f"patch '{patch.id}' uses the name '{name}' twice",
                code="PATCH_BAD",
                where=where,
                why="aliases need other names than edits, and each file may be given once",
            )
    for edit in patch.edits:
        if edit.alias is not None and edit.alias not in aliases:
            yield ConfigError(
                f"edit '{edit.id}' uses alias '{edit.alias}', which the patch does not define",
                code="PATCH_BAD",
                where=edit.where,
                hint=near_miss(edit.alias, aliases) or "add an [[alias]] table",
            )


def _check_files(patch: Patch) -> Iterator[ConfigError]:
    """Check that a patch does only one thing to each whole file, and that edits and modes fit it."""
    fates: dict[str, tuple[str, Location]] = {}
    for path, fate, where in _fates(patch):
        if path in fates:
            first, there = fates[path]
            yield ConfigError(
                f"one patch has '{path}' both {first} and {fate}",
                code="PATCH_BAD",
                where=[where, there],
                why="the result would depend on the order of the two",
                hint="to replace a file, use a [[file]] with 'replaces'; to do both, use two patches",
            )
        else:
            fates[path] = (fate, where)
    named = [(edit.file, f"edit '{edit.id}'", edit.where) for edit in patch.edits]
    named += [(mode.path, "a [[mode]]", mode.where) for mode in patch.modes]
    for path, name, where in named:
        fate, there = fates.get(path, ("", NOWHERE))
        if fate not in ("renamed", "") and (fate, name) != ("replaced", "a [[mode]]"):
            yield ConfigError(
                f"{name} is for '{path}', which is {fate} in the same patch",
                code="PATCH_BAD",
                where=[where, there],
                hint="use the upstream path of the file, which is 'from' of the [[rename]]"
                if fate == "a rename target"
                else "put the change into the [[file]] itself, or remove one of the two",
            )
    twice = Counter(mode.path for mode in patch.modes)
    for mode in patch.modes:
        if twice[mode.path] > 1:
            yield ConfigError(f"'{mode.path}' has two modes", code="PATCH_BAD", where=mode.where)


def _fates(patch: Patch) -> Iterator[tuple[str, str, Location]]:
    for removed in patch.removes:
        yield removed.path, "removed", removed.where
    for renamed in patch.renames:
        yield renamed.source, "renamed", renamed.where
        yield renamed.to, "a rename target", renamed.where
    seen = set()
    for file in patch.files:
        if file.path not in seen:  # repetitions are reported by _check_builds
            yield file.path, "added" if file.replaces is None else "replaced", file.where
        seen.add(file.path)


def _check_turns(patch: Patch) -> Iterator[ConfigError]:
    """Check files and pairs for each range of builds; an error of several ranges is reported once."""
    reported = set()
    for build in patch.turns:
        now = patch.for_build(build)
        for error in (*_check_files(now), *_check_pairs(now)):
            if error.message not in reported:
                yield error
            reported.add(error.message)


def _check_builds(patch: Patch) -> Iterator[ConfigError]:
    """Check that edits of one id are for consecutive builds, and that every build has an edit or a file."""
    parts: dict[str, list[Edit | NewFile]] = {}
    for edit in patch.edits:
        parts.setdefault(f"edit '{edit.id}'", []).append(edit)
    for file in patch.files:
        parts.setdefault(f"file '{file.path}'", []).append(file)
    for name, same in parts.items():
        ordered = sorted(same, key=lambda each: each.first_build or 0)
        for one, other in itertools.pairwise(ordered):
            if one.last_build is None and other.first_build is None:
                for each in (one, other):
                    yield ConfigError(
                        f"{name} occurs twice",
                        code="PATCH_BAD",
                        where=each.where,
                        hint="rename one of them, or give their builds: last_build and first_build",
                    )
            elif one.last_build is None or other.first_build != one.last_build + 1:
                until = f"last_build = {one.last_build}" if one.last_build is not None else "no last_build"
                since = f"first_build = {other.first_build}" if other.first_build else "no first_build"
                yield ConfigError(
                    f"the builds of {name} are not consecutive: {until}, then {since}",
                    code="PATCH_BAD",
                    where=(other.where, one.where),
                    why="each build must have exactly one part of that name",
                    hint="start the second at the first's last_build + 1, or rename one of them",
                )
    for build in patch.turns:
        whole = (*patch.removes, *patch.renames, *patch.modes)  # for all builds
        if not whole and not any(is_for(each, build) for each in patch.parts):
            yield ConfigError(
                f"patch '{patch.id}' has no edit and no file for {build_name(build)}",
                code="PATCH_BAD",
                where=patch.where,
                why="the patch's range includes that build, but all its edits and files are for others",
                hint="change first_build or last_build, or end the range: [builds] last",
            )


def _check_pairs(patch: Patch) -> Iterator[ConfigError]:
    for pair in sorted({name for edit in patch.edits for name in edit.pairs}):
        members = [edit for edit in patch.edits if pair in edit.pairs]
        sides = {edit.side for edit in members}
        if sides != {"host", "device"}:
            missing = "device" if "host" in sides else "host"
            yield ConfigError(
                f"pair '{pair}' has no {missing} side",
                code="PATCH_BAD",
                where=[edit.where for edit in members],
                why="a kernel launched with other values than it was compiled for computes wrong results",
                hint=f'add the {missing} edit with pairs = ["{pair}"]',
            )


def _check_folders(series: Series, patch: Patch) -> Iterator[ConfigError]:
    if patch.is_plain or series.plain:
        return  # a plain patch may touch any file
    touched = [(edit.file, edit.where) for edit in patch.edits]
    touched += [(file.path, file.where) for file in patch.files]
    touched += [(alias.file, alias.where) for alias in patch.aliases]
    for path, where in touched:
        if not any(path.startswith(folder) for folder in series.folders):
            yield ConfigError(
                f"patch '{patch.id}' touches {path}",
                code="EDIT_OUTSIDE_FOLDERS",
                where=where,
                why=f"series.toml allows only {', '.join(series.folders)}",
                hint="change the path; or add the folder to series.toml after review; or, if the code is "
                'for every backend, set guard = "none"',
            )
