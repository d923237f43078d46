"""The files of a proposal, besides its commits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.digests import sha256
from patchkit.base.files import disk_errors, whole_folder
from patchkit.base.report.blocks import was_is
from patchkit.base.report.markdown import cell
from patchkit.base.upstreams import build_name, upstream_of
from patchkit.carry.candidate.upstream_form import device_macro, host_macro
from patchkit.carry.placing.templates import written_text
from patchkit.carry.series.lock import Pin
from patchkit.carry.series.measured import PatchMeasured
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.profile import ArchProfile
from patchkit.carry.upstream.git import IDENTITY_EMAIL
from patchkit.gpu.emulated.kernel_labels import label_kernel
from patchkit.prove.gates.resources import KernelRow
from patchkit.prove.propose.compiled import Compiled
from patchkit.toolchain.hip import Toolchain

_FIGURES = {
    "VGPRs": "vgprs",
    "spilled": "vgpr_spills",
    "scratch": "scratch_bytes",
    "waves": "waves",
    "LDS": "lds_bytes",
    "SGPRs": "sgprs",
}
_TEXTS = ("README.md", "gpus.md", "measurements.md", "spills.md", "sweep.sh", "check.sh")
_CHANGED = " (changed since: the summary below may be wrong)"
_BLANK = "<!-- YES: describe how AI was used, in your own words -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The data for the files. ``root`` is the tree of the base, ``cases`` the patch with test cases.

    ``family`` is None if the change is for all GPUs; ``gpus`` are the profiles of those that it is for.
    """

    patch: Patch
    cases: Patch | None
    pin: Pin
    base: str
    root: Path
    family: str | None
    gpus: tuple[ArchProfile, ...]
    compiled: Compiled
    compiled_for: tuple[str, ...]
    toolchain: Toolchain
    measured: tuple[PatchMeasured, ...]


def write_folder(
    directory: Path, facts: Facts, patches: Mapping[str, bytes]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write all files, or none; returns their names, and upstream's rules that changed since they were read.

    Raises CacheError, and SERIES_DIR_MISSING if patchkit's own texts are missing.
    """
    changed = tuple(_changed_rules(facts.root))
    files = {**patches, "pull-request.md": _form(facts.root).encode()}
    values = _values(facts, changed)
    files |= {name: written_text(f"propose/{name}.jinja", **values).encode() for name in _TEXTS}
    with disk_errors(directory, "writing the proposal"):
        if directory.is_dir():
            directory.rmdir()  # empty: a folder can only be renamed to a name that is free
        with whole_folder(directory) as partial:
            for name, data in files.items():
                (partial / name).write_bytes(data)
    return tuple(sorted(files)), changed


def _values(facts: Facts, changed: tuple[str, ...]) -> dict[str, object]:
    rules = upstream_of(facts.root).rules
    known = rules.sha256 if rules is not None else {}
    claims = facts.patch.claims
    return {
        "patch": facts.patch,
        "cases": facts.cases,
        "build": build_name(facts.pin.build) if facts.pin.clone is None else facts.base[:12],
        "arch": facts.compiled_for[0],
        "rules": "\n".join(f"- `{path}`{_CHANGED if path in changed else ''}" for path in known),
        "rules_at": rules.read_at if rules is not None else "",
        "family": facts.family,
        "host_macro": host_macro(facts.family or ""),
        "device_macro": device_macro(facts.family or ""),
        "gpus": [_gpu(profile, facts.patch) for profile in facts.gpus],
        "measured": [_measured(one) for one in facts.measured],
        "claims": [
            {
                "kind": "measured" if claim.kind == "hardware" else claim.kind,
                "gpus": ", ".join(claim.archs),
                "who": claim.who,
                "figure": claim.figure,
                "link": claim.link,
            }
            for claim in claims
        ],
        "hardware": any(claim.kind == "hardware" for claim in claims),
        "kernels": "\n".join(_kernels(facts.compiled.rows)),
        "units": facts.compiled.units,
        "skipped": facts.compiled.skipped,
        "archs": facts.compiled_for,
        "compiler": f"clang {facts.toolchain.clang_version}, HIP headers {facts.toolchain.hip_version}",
        "email": IDENTITY_EMAIL,
    }


def _kernels(rows: Sequence[KernelRow]) -> Iterator[str]:
    """The lines of a table, kernels with more spills or fewer waves first; none without a kernel."""
    if rows:
        yield f"| GPU | kernel | {' | '.join(_FIGURES)} | file |"
        yield f"|---|---|{'--:|' * len(_FIGURES)}---|"
    for row in sorted(rows, key=lambda row: (-row.more_spills, -row.fewer_waves, row.arch, row.variant)):
        sides = (row.was, row.now)
        figures = [
            was_is(*("-" if one is None else getattr(one, name) for one in sides))
            for name in _FIGURES.values()
        ]
        cells = [row.arch, label_kernel(row.variant), *figures, row.unit.rpartition("/")[2]]
        yield f"| {' | '.join(cell(each) for each in cells)} |"


def _gpu(profile: ArchProfile, patch: Patch) -> dict[str, str]:
    part = profile.facts.report("part")
    mine = [claim for claim in patch.claims if profile.arch in claim.archs]
    kinds = dict.fromkeys("measured" if claim.kind == "hardware" else claim.kind for claim in mine)
    return {
        "arch": profile.arch,
        "part": str(part.value) if part is not None else "",
        "figures": ", ".join(kinds) or "none",
    }


def _measured(one: PatchMeasured) -> dict[str, object]:
    return {
        "machine": f"{one.file.machine.gpu} ({one.file.machine.arch}), {one.file.who}",
        "model": one.test.model,
        "text": one.text,
        "arms": f"{one.verdict.of} against {one.verdict.against}",
        "rounds": one.verdict.rounds,
    }


def _changed_rules(root: Path) -> Iterator[str]:
    """Texts of upstream's rules that are not those that patchkit knows."""
    rules = upstream_of(root).rules
    for path, known in (rules.sha256 if rules is not None else {}).items():
        file = root / path
        if not file.is_file() or sha256(file.read_bytes()) != known:
            yield path


def _form(root: Path) -> str:
    """Upstream's form of a description, with nothing filled in but that the use of AI is to be described."""
    rules = upstream_of(root).rules
    if rules is None or not (root / rules.template).is_file():
        return ""
    blank = f"{rules.disclosure} {_BLANK}"
    lines = (root / rules.template).read_text("utf-8").splitlines()
    return "".join(f"{blank if line.startswith(rules.disclosure) else line}\n" for line in lines)
