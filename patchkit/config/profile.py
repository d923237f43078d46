"""Profiles: what patchkit knows about one GPU, from its file and the files of its family.

Vocabulary: an *arch* is an exact gfx id; its *profile* is ``<arch>.toml``; a *family* file holds what
several GPUs share and may itself inherit. The nearest file wins, fact by fact. Patches and tuned
parameters are never inherited: they are right for one exact gfx id only (gfx1151 has 1536 vector
registers per SIMD, gfx1150 of the same family 1024).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from patchkit.config.explain import near_miss
from patchkit.config.facts import REQUIRED, Fact, Facts, FactsModel
from patchkit.config.profile_data import (
    ArchProfile,
    PatchChoice,
    ProfileInput,
    TunedMmq,
    TunedMmvqBatch,
    TunedMmvqWarps,
    TunedTile,
    TunedWmma,
)
from patchkit.config.profile_model import FamilyModel, ProfileModel
from patchkit.config.toml import Document, TomlModel, load_toml, validate
from patchkit.errors import ConfigError, Location, UsageError

Row = TypeVar("Row")

_GENERIC = re.compile(r"gfx\d+(-\d+)*-generic")
_FEATURES = re.compile(r"(gfx[0-9a-f]+)(:[a-z]+[+-])+")


def list_profiles(folder: Path) -> tuple[str, ...]:
    """The archs that have a profile, sorted. PROFILES_NONE when there is none."""
    archs = tuple(sorted(path.stem for path in folder.glob("gfx*.toml")))
    if not archs:
        raise ConfigError(
            f"{folder} holds no GPU profile",
            code="PROFILES_NONE",
            where=Location(path=str(folder)),
            hint="--series-dir names the folder that holds arch_profiles/",
        )
    return archs


def load_profile(folder: Path, arch: str) -> ArchProfile:
    """Read the profile of one GPU and the family files it inherits from.

    Raises:
        ARCH_GENERIC, ARCH_UNKNOWN: the name is not one of :func:`list_profiles`.
        PROFILE_FAMILY_UNKNOWN, PROFILE_CYCLE: the files cannot be put together.
        PROFILE_MISMATCH, PROFILE_DUPLICATE_TUNING, FACT_MISSING: they can, but the result is no profile.
        ErrorGroup: wrong fields in one file, all of them.
    """
    _check_name(folder, arch)
    document = load_toml(folder / f"{arch}.toml")
    model = validate(document, ProfileModel, what="profile")
    documents = [document]
    by_name = _facts_of(document, model.facts)
    families: list[str] = []
    for family_document, family in _families(folder, document, model.inherits):
        families.append(family.family)
        documents.append(family_document)
        by_name = _facts_of(family_document, family.facts) | by_name
    profile = ArchProfile(
        arch=model.arch,
        families=tuple(families),
        note=model.note,
        facts=Facts(profile=document.path, by_name=by_name),
        patches={
            name: PatchChoice(patch=name, where=document.locate(("patches", name)), **choice.model_dump())
            for name, choice in sorted(model.patches.items())
        },
        tuned_wmma=_rows(document, "wmma", model.tuning.wmma, TunedWmma),
        tuned_tile=_rows(document, "tile", model.tuning.tile, TunedTile),
        tuned_mmq=_rows(document, "mmq", model.tuning.mmq, TunedMmq),
        tuned_mmvq_batch=_rows(document, "mmvq_batch", model.tuning.mmvq_batch, TunedMmvqBatch),
        tuned_mmvq_warps=_rows(document, "mmvq_warps", model.tuning.mmvq_warps, TunedMmvqWarps),
        cmake=tuple(model.build.cmake.items()),
        cmake_with_series=tuple(model.build.cmake_with_series.items()),
        build_why=model.build.why,
        inputs=tuple(_input(folder, each) for each in documents),
        where=document.locate(),
    )
    _check_complete(profile)
    _check_agreement(profile, arch, document)
    _check_tuning(profile)
    return profile


def _rows(
    document: Document, table: str, rows: Sequence[TomlModel], kind: Callable[..., Row]
) -> tuple[Row, ...]:
    """The rows of ``[[tuning.<table>]]``, each with its line."""
    return tuple(
        kind(where=document.locate(("tuning", table, index)), **row.model_dump())
        for index, row in enumerate(rows)
    )


def _check_name(folder: Path, arch: str) -> None:
    known = list_profiles(folder)
    if arch in known:
        return
    if _GENERIC.fullmatch(arch):
        raise UsageError(
            f"{arch} is a generic target; patchkit patches exact gfx ids only",
            code="ARCH_GENERIC",
            why="one code object would run on GPUs with different register files, while the host picks "
            "its tables by the exact id: host and device disagree (NaN on gfx1152, llama.cpp issue 25620)",
            hint=f"name the GPUs one by one, for example: --arch {known[0]}",
        )
    features = _FEATURES.fullmatch(arch)
    if features:
        hint = f"leave the feature suffix out: --arch {features[1]}"
    else:
        hint = near_miss(arch, known) or f"known: {', '.join(known)}"
    raise UsageError(
        f"no profile for '{arch}'", code="ARCH_UNKNOWN", where=Location(path=str(folder)), hint=hint
    )


def _families(folder: Path, document: Document, inherits: str | None) -> list[tuple[Document, FamilyModel]]:
    found: list[tuple[Document, FamilyModel]] = []
    seen: list[str] = []
    while inherits is not None:
        where = document.locate(("inherits",))
        if inherits in seen:
            raise ConfigError(
                f"family '{inherits}' inherits from itself",
                code="PROFILE_CYCLE",
                where=where,
                why=" -> ".join([*seen, inherits]),
                hint="take one 'inherits' out",
            )
        path = folder / "families" / f"{inherits}.toml"
        if not path.is_file():
            names = sorted(each.stem for each in (folder / "families").glob("*.toml"))
            raise ConfigError(
                f"there is no family '{inherits}'",
                code="PROFILE_FAMILY_UNKNOWN",
                where=where,
                hint=near_miss(inherits, names) or f"known: {', '.join(names)}",
            )
        document = load_toml(path)
        family = validate(document, FamilyModel, what="family")
        if family.family != inherits:
            raise ConfigError(
                f"the file of family '{inherits}' says it is '{family.family}'",
                code="PROFILE_MISMATCH",
                where=document.locate(("family",)),
                hint=f"write: family = '{inherits}'",
            )
        seen.append(inherits)
        found.append((document, family))
        inherits = family.inherits
    return found


def _facts_of(document: Document, facts: FactsModel) -> dict[str, Fact]:
    return {
        name: Fact(
            name=name,
            value=stated.value,
            source=stated.source,
            confidence=stated.confidence,
            note=stated.note,
            where=document.locate(("facts", name)),
        )
        for name in FactsModel.model_fields
        if (stated := getattr(facts, name)) is not None
    }


def _input(folder: Path, document: Document) -> ProfileInput:
    path = Path(document.path).relative_to(folder).as_posix()
    return ProfileInput(path=path, sha256=hashlib.sha256(document.data).hexdigest())


def _check_complete(profile: ArchProfile) -> None:
    missing = [name for name in REQUIRED if name not in profile.facts.by_name]
    if not {"lds_per_wgp_bytes", "lds_per_cu_bytes"} & set(profile.facts.by_name):
        missing.append("lds_per_wgp_bytes or lds_per_cu_bytes")
    if missing:
        raise ConfigError(
            f"{profile.arch}: neither the profile nor its family states: {', '.join(missing)}",
            code="FACT_MISSING",
            where=profile.where,
            hint="state each under [facts] with value, source and confidence",
        )


def _check_agreement(profile: ArchProfile, arch: str, document: Document) -> None:
    """The name of a GPU is written in four places; a slip in one would aim a guard at another GPU."""
    stated = {
        ("arch",): (profile.arch, arch),
        ("facts", "compute_capability"): (
            profile.facts.by_name["compute_capability"].value,
            int(arch.removeprefix("gfx"), 16),  # all that ggml_cuda_parse_id does with an exact id
        ),
        ("facts", "device_macro"): (profile.facts.by_name["device_macro"].value, f"__{arch}__"),
        ("build", "cmake", "GPU_TARGETS"): (dict(profile.cmake).get("GPU_TARGETS"), arch),
    }
    for keys, (value, expected) in stated.items():
        if value != expected:
            raise ConfigError(
                f"{'.'.join(keys)} of {arch} is {value!r}, not {expected!r}",
                code="PROFILE_MISMATCH",
                where=document.locate(keys),
                hint=f"write {expected!r} there",
            )


def _check_tuning(profile: ArchProfile) -> None:
    """No two rows for the same thing, in any table."""
    named: dict[tuple[object, ...], Location] = {}
    wmma = [(("head size", r.head_size, r.ncols, "columns", r.acc), r.where) for r in profile.tuned_wmma]
    tile = [(("tile", r.head_size_k, r.head_size_v, r.ncols, "columns"), r.where) for r in profile.tuned_tile]
    mmq = [(("mmq from", r.min_j, "columns"), r.where) for r in profile.tuned_mmq]
    batch = [(("mmvq_batch", r.type), r.where) for r in profile.tuned_mmvq_batch]
    warps = [(("mmvq_warps", r.type), r.where) for r in profile.tuned_mmvq_warps]
    for variant, where in (*wmma, *tile, *mmq, *batch, *warps):
        first = named.setdefault(variant, where)
        if first is not where:
            raise ConfigError(
                f"two tuned rows for {' '.join(str(part) for part in variant)}",
                code="PROFILE_DUPLICATE_TUNING",
                where=(where, first),
                hint="keep one of them",
            )
