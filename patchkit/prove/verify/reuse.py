"""Reuse of evidence from an earlier run on a device, as long as nothing that it depends on has changed.

Hardware takes precedence over the emulated GPU: an emulated pass never replaces a pass on hardware, and does
not undo a failure on hardware.
"""

from __future__ import annotations

import datetime as dt
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.base.digests import key_of, sha256
from patchkit.base.errors import GateError, Location, ToolchainError
from patchkit.gpu.hardware.runner import Job, Runner
from patchkit.prove.gates.base import DeviceEvidence, EmulatedOn, Gate, GateResult, Identity
from patchkit.prove.gates.record import GateReport, evidence_file, find_gate
from patchkit.prove.gates.used import read_uses
from patchkit.prove.subject import Subject
from patchkit.toolchain.hip import toolchain_identity

_FORMAT = 3  # of Identity; a new number makes earlier evidence unusable
_PATIENCE_S = 30.0
_OF_CHECKS = frozenset({".py", ".cpp", ".hpp", ".json", ".toml"})
# Codes of what a machine may lack to emulate a GPU: a supported CPU, LLVM's disassembler.
_CANNOT_EMULATE = frozenset({"EMULATOR_CPU_UNKNOWN", "DISASSEMBLER_MISSING"})

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
    """A gate that reuses earlier evidence. ``settings``: its own settings as text.

    ``fresh`` runs it in any case. ``emulated`` is the GPU that is emulated for it, if one is.
    """

    inner: Gate
    runner: Runner
    settings: str
    emulated: EmulatedOn | None = None
    fresh: bool = False
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)

    @property
    def name(self) -> str:
        """Name of the gate."""
        return self.inner.name

    def run(self, subject: Subject) -> GateResult:
        """Return the earlier result or run the gate; raises what the gate raises."""
        earlier = self.earlier(subject)
        if earlier is not None:
            subject.reporter.info(f"gate {self.name}: {earlier.summary}")
            return earlier
        identity, kept, path = self._kept(subject)
        from_hardware = self._from_hardware(kept, identity)
        begun = time.time()
        result = self._run(subject)
        if from_hardware is not None and result.has_passed:
            return from_hardware.after_emulated_pass(path)
        if result.evidence is None:
            return result
        update: dict[str, object] = {
            "identity": identity,
            "run_at": self.now().isoformat(timespec="seconds"),
            "uses": read_uses(path.with_suffix(""), since=begun),
        }
        if self.emulated is not None:
            update["emulated"] = self.emulated
        return replace(result, evidence=result.evidence.model_copy(update=update))

    def earlier(self, subject: Subject) -> GateResult | None:
        """The result of an earlier run if it passed and is still valid. Raises what the runner raises."""
        identity, kept, _ = self._kept(subject)
        from_hardware = self._from_hardware(kept, identity)
        is_valid = kept is not None and (from_hardware is not None or kept.identity == identity)
        if self.fresh or kept is None or not is_valid or not kept.gate.has_passed:
            return None
        return kept.reused(
            "on hardware; same trees, tools" if from_hardware else "same trees, tools, machine"
        )

    def _kept(self, subject: Subject) -> tuple[Identity, _Kept | None, Path]:
        path = evidence_file(subject.cache_root, subject.candidate_tree, self.name)
        return self._identity(subject), _find(subject, self.name), path

    def _from_hardware(self, kept: _Kept | None, identity: Identity) -> _Kept | None:
        return kept if self.emulated is not None and _is_from_hardware(kept, identity) else None

    def _run(self, subject: Subject) -> GateResult:
        """Run the gate; a machine that cannot emulate the GPU does not fail the candidate."""
        try:
            return self.inner.run(subject)
        except ToolchainError as error:
            if self.emulated is None or error.code not in _CANNOT_EMULATE:
                raise
            return GateResult(
                gate=self.name,
                verdict="not run",
                summary=f"needs {self.emulated.gpu}, which cannot be emulated here: {error.message}",
                not_run=(error.hint,) if error.hint else (),
            )

    def _identity(self, subject: Subject) -> Identity:
        toolchain = toolchain_identity(subject.toolchain) if subject.toolchain is not None else "none"
        without = "\nwithout rocWMMA" if subject.is_without_rocwmma else ""
        return Identity(
            format=str(_FORMAT),
            baseline_tree=subject.baseline_tree,
            candidate_tree=subject.candidate_tree,
            toolchain=f"{toolchain}{without}",
            runner=self.runner.name,
            machine=self._machine(),
            settings=self.settings,
        )

    def _machine(self) -> str:
        """Facts that results depend on; of an emulated GPU no driver, but the CPU of the reference."""
        facts = machine_facts(self.runner)
        if self.emulated is None:
            return facts
        return "\n".join([str(self.emulated), *(line for line in facts.splitlines() if line[:4] == "cpu ")])


def machine_facts(runner: Runner) -> str:
    """Kernel, processor, GPUs and drivers of the machine, one per line."""
    tag = f"facts-{dt.datetime.now(dt.UTC):%Y%m%d%H%M%S%f}"  # unique, so that no earlier answer is reused
    job = Job(argv=("sh", "-c", _FACTS), tag=tag, timeout_s=_PATIENCE_S)
    return runner.run(job).stdout.decode("utf-8", "replace").strip()


@functools.cache
def checks_identity() -> str:
    """A digest of the gates and of the drivers and graphs they run: after an update they run again."""
    root = Path(__file__).parents[2]
    folders = (root / "prove" / "gates", root / "gpu" / "hardware")
    files = sorted(path for folder in folders for path in folder.rglob("*") if path.suffix in _OF_CHECKS)
    return key_of({path.relative_to(root).as_posix(): sha256(path.read_bytes()) for path in files})[:16]


def model_identity(model: Path | None) -> str:
    """The user's file by name, size and time of change; patchkit's own models never change."""
    if model is None or not model.is_file():
        return "patchkit's own model"
    state = model.stat()
    return f"{model.name}, {state.st_size} bytes, changed {state.st_mtime_ns}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """The evidence of an earlier run of a gate on a device."""

    gate: GateReport
    evidence: DeviceEvidence
    identity: Identity

    def reused(self, what: str) -> GateResult:
        """The same result; ``what`` has not changed since."""
        summary = self.gate.summary.partition("; evidence of ")[0]
        return self.gate.reused(f"{summary}; evidence of {self.evidence.run_at} reused ({what})")

    def after_emulated_pass(self, path: Path) -> GateResult:
        """The result of hardware, which counts, after the gate has passed on an emulated GPU."""
        if self.gate.has_passed:
            return self.reused("on hardware; the emulated GPU agrees today")
        error = GateError(
            f"gate {self.gate.name} failed on hardware on {self.evidence.run_at}: {self.gate.summary}",
            code="GATE_FAILED_ON_HARDWARE",
            where=Location(path=str(path)),
            why="it passes on the emulated GPU, but the failure on hardware takes precedence",
            hint="run it again on the machine with that GPU",
        )
        return replace(
            GateResult.ended_by(self.gate.name, error), evidence=self.evidence, lines=self.gate.lines
        )


def _find(subject: Subject, name: str) -> _Kept | None:
    """The evidence of an earlier run; None if there is none that can be read, or it is not of a device."""
    gate = find_gate(subject.cache_root, subject.candidate_tree, name)
    evidence = None if gate is None else gate.evidence
    if gate is None or not isinstance(evidence, DeviceEvidence) or evidence.identity is None:
        return None
    return _Kept(gate=gate, evidence=evidence, identity=evidence.identity)


def _is_from_hardware(kept: _Kept | None, identity: Identity) -> bool:
    """Whether it is of hardware that ran the same trees, built by the same tools for the same backend."""
    if kept is None or kept.evidence.emulated is not None or kept.gate.verdict == "not run":
        return False
    return _build_identity(kept.identity) == _build_identity(identity)


def _build_identity(one: Identity) -> tuple[str, ...]:
    backend = one.settings.partition(" ")[0]
    return (one.format, one.baseline_tree, one.candidate_tree, one.toolchain, backend)
