"""Holding a result against the lock, and recording it there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from patchkit.base.errors import ConfigError, InternalError, Location
from patchkit.candidate.plan import Plan
from patchkit.series.folder import SeriesDir, is_editors
from patchkit.series.lock import Result
from patchkit.series.profile import ArchProfile

_SHOWN = 8


def read_inputs(plan: Plan, series: SeriesDir) -> dict[str, str]:
    """sha256 of every file the steps of a plan were made from, by path below the series folder.

    Raises LOCK_INPUT_UNUSABLE.
    """
    return hash_inputs(plan.profiles, [selected.patch.folder for selected, _ in plan.steps], series)


def hash_inputs(profiles: Iterable[ArchProfile], folders: Iterable[str], series: SeriesDir) -> dict[str, str]:
    """As :func:`read_inputs`, of profiles and folders of patches: what a result is made of needs no planning.

    Raises LOCK_INPUT_UNUSABLE.
    """
    found = {f"arch_profiles/{entry.path}": entry.sha256 for profile in profiles for entry in profile.inputs}
    files = [series.patches / "series.toml"]
    for folder in folders:
        files += _files_below(series.patches / folder)
    files += _files_below(series.templates)
    for path in files:
        name = path.relative_to(series.root).as_posix()
        found[name] = _sha256(path)
    return dict(sorted(found.items()))


def _files_below(folder: Path) -> list[Path]:
    """Every file a template may include; an editor's are not among them."""
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and not is_editors(path.relative_to(folder))
    )


def _sha256(path: Path) -> str:
    try:
        str(path).encode("utf-8")
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"the name of {str(path)!r} is not UTF-8",
            code="LOCK_INPUT_UNUSABLE",
            where=Location(path=str(path)),
            why="every file beside a patch is an input of the lock, and the lock is text",
            hint="rename it, or move it out of the series",
        ) from error
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}",
            code="LOCK_INPUT_UNUSABLE",
            where=Location(path=str(path)),
            why=f"every file beside a patch is an input of the lock: {error.strerror}",
            hint="make it readable, or move it out of the series",
        ) from error


def make_result(plan: Plan, inputs: Mapping[str, str], *, tree: str, commit: str) -> Result:
    """The record of a result."""
    rendered: dict[str, str] = {}
    entities: dict[str, str] = {}
    for selected, placed in plan.steps:
        rendered |= {f"{selected.patch.id}/{name}": digest for name, digest in placed.rendered.items()}
        # The first patch that edits an entity saw it as upstream has it.
        entities = dict(placed.entities) | entities
    return Result(
        build=plan.pin.build,
        archs=plan.archs,
        patches=tuple(selected.patch.id for selected, _ in plan.steps),
        tree=tree,
        commit=commit,
        inputs=dict(inputs),
        rendered=dict(sorted(rendered.items())),
        entities=dict(sorted(entities.items())),
    )


def check_inputs(plan: Plan, inputs: Mapping[str, str], *, unlocked: bool) -> str:
    """``recorded``, ``not recorded`` or ``unlocked``: how these inputs stand to the lock.

    What is made on a commit of the user's clone stands in no lock.

    Raises LOCK_INPUTS_CHANGED, which lists the files, unless ``unlocked``.
    """
    patches = tuple(selected.patch.id for selected, _ in plan.steps)
    recorded = plan.lock.result(plan.pin.build, plan.archs, patches)
    if recorded is None or plan.pin.clone is not None:
        return "not recorded"
    names = sorted({*inputs, *recorded.inputs})
    changed = [name for name in names if inputs.get(name) != recorded.inputs.get(name)]
    if not changed:
        return "recorded"
    if unlocked:
        return "unlocked"
    archs = " ".join(f"--arch {arch}" for arch in plan.archs)
    raise ConfigError(
        f"{len(changed)} file{'s'[: len(changed) > 1]} differ from what the lock records",
        code="LOCK_INPUTS_CHANGED",
        where=[
            Location(path=name, label=difference(name, inputs, recorded.inputs)) for name in changed[:_SHOWN]
        ],
        why="the lock decides the bytes of a candidate",
        hint=f"after review: patchkit lock {archs} --upstream {plan.pin.name}, and what chose the patches "
        "(--with, --without, --only), or for every result of the lock: patchkit lock --all; "
        "or once, with a trailer in the commits: --unlocked",
    )


def difference(name: str, now: Mapping[str, str], then: Mapping[str, str]) -> str:
    """How an input stands to what is recorded of it; both digests where it has two."""
    if name not in then:
        return "new"
    if name not in now:
        return "gone"
    return f"sha256 {now[name][:12]}, recorded {then[name][:12]}"


def check_result(plan: Plan, result: Result) -> None:
    """Raises LOCK_MISMATCH, naming both hashes, when the lock records another outcome of the same inputs."""
    recorded = plan.lock.result(*result.key)
    if plan.pin.clone is not None or recorded is None or recorded.inputs != result.inputs:
        return
    for what, now, then in (
        ("tree", result.tree, recorded.tree),
        ("commit", result.commit, recorded.commit),
    ):
        if now != then:
            raise InternalError(
                f"the candidate's {what} is {now}, the lock records {then}",
                code="LOCK_MISMATCH",
                where=recorded.where,
                why="the inputs are the recorded ones, so this patchkit renders or commits differently",
                hint="if you changed patchkit itself, review the difference and run patchkit lock --all",
            )
