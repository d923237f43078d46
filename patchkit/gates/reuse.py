"""Evidence of an earlier run on hardware, taken again when nothing that it rests on changed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.build.toolchain import toolchain_identity
from patchkit.candidate.subject import Subject
from patchkit.device.runner import Job, Runner
from patchkit.gates.base import DeviceEvidence, Gate, GateResult, Identity
from patchkit.gates.document import EvidenceMalformed, EvidenceUnreadable
from patchkit.gates.record import read_gate

_FORMAT = 1  # of what a gate looks at; a change makes earlier evidence unusable
_PATIENCE_S = 30.0

# Kernel, processor, AMD's and NVIDIA's drivers, and the GPUs that AMD's driver knows. One fact a line.
_FACTS = r"""
echo "kernel $(uname -srm)"
echo "cpu $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(getconf _NPROCESSORS_ONLN)"
for f in /sys/module/amdgpu/version /opt/rocm/.info/version; do [ -r "$f" ] && echo "$f $(cat "$f")"; done
for f in /sys/class/kfd/kfd/topology/nodes/*/properties; do
  [ -r "$f" ] && echo "gpu $(grep -E '^(gfx_target_version|device_id|simd_count|fw_version) ' "$f" |
    tr '\n' ' ')"
done
[ -r /proc/driver/nvidia/version ] && echo "nvidia $(head -n 1 /proc/driver/nvidia/version)"
for f in /proc/driver/nvidia/gpus/*/information; do [ -r "$f" ] && echo "nvidia $(grep Model "$f")"; done
exit 0
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reusing:
    """A gate that takes earlier evidence. ``settings`` are its own, as text; ``fresh`` runs it anyway."""

    inner: Gate
    runner: Runner
    settings: str
    fresh: bool = False
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)

    @property
    def name(self) -> str:
        """The gate's own name."""
        return self.inner.name

    def run(self, subject: Subject) -> GateResult:
        """Give the earlier result, or run the gate; raises what the gate raises."""
        identity = self._identity(subject)
        path = subject.cache_root / "evidence" / subject.candidate_tree / f"{self.name}.json"
        if not self.fresh:
            earlier = _earlier(path, self.name, identity)
            if earlier is not None:
                subject.reporter.info(f"gate {self.name}: {earlier.summary}")
                return earlier
        result = self.inner.run(subject)
        if result.evidence is None:
            return result
        when = self.now().isoformat(timespec="seconds")
        return replace(
            result, evidence=result.evidence.model_copy(update={"identity": identity, "run_at": when})
        )

    def _identity(self, subject: Subject) -> Identity:
        toolchain = subject.toolchain
        return Identity(
            format=str(_FORMAT),
            baseline_tree=subject.baseline_tree,
            candidate_tree=subject.candidate_tree,
            toolchain=toolchain_identity(toolchain) if toolchain is not None else "none",
            runner=self.runner.name,
            machine=machine_facts(self.runner),
            settings=self.settings,
        )


def machine_facts(runner: Runner) -> str:
    """Kernel, processor, GPUs and drivers of the machine, one a line."""
    tag = f"facts-{dt.datetime.now(dt.UTC):%Y%m%d%H%M%S%f}"  # never the answer of an earlier day
    job = Job(argv=("sh", "-c", _FACTS), tag=tag, timeout_s=_PATIENCE_S)
    return runner.run(job).stdout.decode("utf-8", "replace").strip()


def model_identity(model: Path | None) -> str:
    """A file of the user's by name, size and time of change; a model of patchkit's own never changes."""
    if model is None or not model.is_file():
        return "patchkit's own model"
    state = model.stat()
    return f"{model.name}, {state.st_size} bytes, changed {state.st_mtime_ns}"


def _earlier(path: Path, name: str, identity: Identity) -> GateResult | None:
    """The result that was kept, when it passed and rests on the same; None for what cannot be read."""
    try:
        kept = read_gate(path.read_bytes(), str(path))
    except (OSError, EvidenceUnreadable, EvidenceMalformed):
        return None
    evidence = kept.evidence
    if (kept.name, kept.verdict) != (name, "passed") or not isinstance(evidence, DeviceEvidence):
        return None
    if evidence.identity != identity:
        return None
    summary = kept.summary.partition("; evidence of ")[0]
    return GateResult(
        gate=name,
        verdict="passed",
        summary=f"{summary}; evidence of {evidence.run_at} taken again (same trees, tools, machine)",
        evidence=evidence,
        not_run=kept.not_run,
        lines=kept.lines,
    )
