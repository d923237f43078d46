"""The range proof that a published branch carries, once the same GPUs were published on another pin."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from patchkit.config.series import Series
from patchkit.flow.candidates import Candidate, read_candidate
from patchkit.flow.range_proof import prove_range
from patchkit.flow.verify import Report
from patchkit.vcs.refs import list_refs
from patchkit.vcs.repository import Repository

_PUBLISHED = re.compile(r"refs/heads/patchkit/(?P<archs>[^/]+)/b(?P<build>[0-9]+)(?:-unproven)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedRange:
    """``trailers`` of the seal and ``files`` of the evidence; both empty without another pin."""

    trailers: tuple[str, ...]
    files: dict[str, bytes]


NO_RANGE = CarriedRange(trailers=(), files={})


def carry_range(repository: Repository, series: Series, report: Report, build: int) -> CarriedRange:
    """Prove the step from the pin published before; the nearest older one, else the nearest newer one.

    Raises:
        RangeProofFailed: one of the two differs outside of what its patches declare.
    """
    refs = list_refs(repository, "refs")
    candidate = _candidate(repository, report.archs, build, report.tip, refs)
    before = _nearest(repository, report.archs, build, refs)
    if before is None:
        return NO_RANGE
    proof = prove_range(repository, series, before, candidate)
    document = json.dumps(proof.as_json(), indent=1) + "\n"
    return CarriedRange(
        trailers=(f"Range-Proof: b{before.build} {before.tip}",),
        files={"range-proof.json": document.encode(), "range-diff.txt": proof.range_diff.encode()},
    )


def _nearest(
    repository: Repository, archs: tuple[str, ...], build: int, refs: dict[str, str]
) -> Candidate | None:
    found: dict[int, str] = {}
    for ref in refs:
        name = _PUBLISHED.fullmatch(ref)
        if name is not None and name["archs"] == "+".join(archs) and int(name["build"]) != build:
            # The longer name is the unproven one and sorts behind: the proven one stays.
            found.setdefault(int(name["build"]), ref)
    older = [one for one in found if one < build]
    nearest = max(older) if older else min(found, default=None)
    if nearest is None or f"refs/patchkit/pin/b{nearest}" not in refs:
        return None
    (sealed,) = repository.resolve(f"{found[nearest]}^")  # below the seal lies the candidate
    return _candidate(repository, archs, nearest, sealed, refs) if sealed is not None else None


def _candidate(
    repository: Repository, archs: tuple[str, ...], build: int, tip: str, refs: dict[str, str]
) -> Candidate:
    ref = f"refs/heads/candidate/{'+'.join(archs)}/b{build}"
    return read_candidate(repository, ref, {**refs, ref: tip})
