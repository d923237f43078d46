"""The list of gates. Every other module takes their names, order and requirements from here.

Classes are named as ``module:Class`` and imported on demand, so that code which only needs names (the command
line, the series) imports nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from patchkit.base.series_folder import PLAIN

RunsOn = Literal["anywhere", "device", "emulated"]
"""Where a gate runs: on any machine, on the chosen device (GPU or CPU), or only on an emulated GPU."""


CPU_TESTS = "cpu-tests"
"""The gate that a series may skip where upstream has no test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateEntry:
    """One gate.

    ``gate`` is its class, created by ``make(setup)``; ``evidence`` is the model of its evidence.
    ``compiles``: it needs the HIP compiler (on the CPU backend no gate does). ``is_kept``: on a device,
    evidence is reused while trees, tools and machine are the same. ``plain_only``: it checks only
    plain patches, and a series with GPUs need not name it. ``plain``: True if a plain
    candidate must pass it; a text if it is skipped there, with this reason in the report; None if it checks
    GPU code and is not mentioned there.

    The other fields define when a pull request needs the gate again although the candidate's tree did not
    change: ``always`` is a reason that holds every time; ``reads_facts``: when facts of a profile changed;
    ``sees_every_gpu``: when another GPU's profile was added or changed; ``reads``: when the attribute of a
    patch that is its key changed (the value is its name in messages).
    """

    name: str
    runs_on: RunsOn
    gate: str
    evidence: str
    about: str
    compiles: bool = True
    is_kept: bool = True
    plain_only: bool = False
    plain: Literal[True] | str | None = None
    always: str = ""
    reads_facts: bool = False
    sees_every_gpu: bool = False
    reads: Mapping[str, str] = field(default_factory=dict)

    @property
    def needs(self) -> str:
        """Why it cannot run on a machine without a GPU; empty if it can."""
        needed: Mapping[RunsOn, str] = {"device": "needs the GPU", "emulated": "needs the emulated GPU"}
        return needed.get(self.runs_on, "")


REGISTRY: tuple[GateEntry, ...] = (
    GateEntry(
        name="anchors",
        runs_on="anywhere",
        gate="patchkit.prove.gates.anchors:AnchorsGate",
        evidence="patchkit.prove.gates.anchors:AnchorsEvidence",
        about="every edit resolves to its place in the candidate",
        compiles=False,
        plain=True,
        always="commit messages contain text of the series",
    ),
    GateEntry(
        name="isolation",
        runs_on="anywhere",
        gate="patchkit.prove.gates.isolation.gate:IsolationGate",
        evidence="patchkit.prove.gates.isolation.evidence:IsolationEvidence",
        about="the code for CUDA, MUSA and AMD GPUs that no patch targets is unchanged",
        plain="has nothing to check, because no patch of the candidate has a guard",
        sees_every_gpu=True,
        reads={"guard": "[guard]"},
    ),
    GateEntry(
        name="compile",
        runs_on="anywhere",
        gate="patchkit.prove.gates.compile:CompileGate",
        evidence="patchkit.prove.gates.compile:CompileEvidence",
        about="every touched unit compiles without new warnings",
    ),
    GateEntry(
        name="resources",
        runs_on="anywhere",
        gate="patchkit.prove.gates.resources:ResourcesGate",
        evidence="patchkit.prove.gates.resources:ResourcesEvidence",
        about="no kernel spills more or loses occupancy, except as its patch declares",
        reads_facts=True,
        reads={"resources": "[resources]"},
    ),
    GateEntry(
        name="launch",
        runs_on="anywhere",
        gate="patchkit.prove.gates.launch.gate:LaunchGate",
        evidence="patchkit.prove.gates.launch.evidence:LaunchEvidence",
        about="the host code launches the kernels that the patches declare, with valid launch geometry",
        reads_facts=True,
        sees_every_gpu=True,
        reads={"moves": "the kernel moves", "launches": "[launches]"},
    ),
    GateEntry(
        name="cpu-build",
        runs_on="anywhere",
        gate="patchkit.prove.gates.cpu_build:CpuBuildGate",
        evidence="patchkit.prove.gates.cpu_build:CpuBuildEvidence",
        about="files changed by plain patches build for the CPU",
        compiles=False,
        plain_only=True,
        plain=True,
    ),
    GateEntry(
        name=CPU_TESTS,
        runs_on="anywhere",
        gate="patchkit.prove.gates.cpu_tests:CpuTestsGate",
        evidence="patchkit.prove.gates.cpu_tests:CpuTestsEvidence",
        about="upstream's own tests of the files changed by plain patches pass on the CPU",
        compiles=False,
        plain_only=True,
        plain=True,
    ),
    GateEntry(
        name="backend-ops",
        runs_on="device",
        gate="patchkit.prove.gates.backend_ops:BackendOpsGate",
        evidence="patchkit.prove.gates.backend_ops:BackendOpsEvidence",
        about="operations give correct results (upstream's test-backend-ops, and patchkit's attention cases)",
        reads_facts=True,
    ),
    GateEntry(
        name="sanitize",
        runs_on="emulated",
        gate="patchkit.prove.gates.sanitize:SanitizeGate",
        evidence="patchkit.prove.gates.sanitize:SanitizeEvidence",
        about="no kernel has a fault that `patchkit sanitize` detects, unless upstream's has it too",
        reads_facts=True,
    ),
    GateEntry(
        name="graphs",
        runs_on="emulated",
        gate="patchkit.prove.gates.graphs.gate:GraphsGate",
        evidence="patchkit.prove.gates.graphs.evidence:GraphsEvidence",
        about="small graphs, stored and random, give upstream's results",
        reads_facts=True,
        reads={"results": "[results]"},
    ),
    GateEntry(
        name="logits",
        runs_on="device",
        gate="patchkit.prove.gates.logits:LogitsGate",
        evidence="patchkit.prove.gates.logits:LogitsEvidence",
        about="logits of models are as close to the CPU's as upstream's",
    ),
    GateEntry(
        name="width",
        runs_on="device",
        gate="patchkit.prove.gates.width:WidthGate",
        evidence="patchkit.prove.gates.width:WidthEvidence",
        about="a token's result is the same in batches of several sizes, where upstream's is",
        reads={"widths": "[[width]]"},
    ),
    GateEntry(
        name="used",
        runs_on="emulated",
        gate="patchkit.prove.gates.used:UsedGate",
        evidence="patchkit.prove.gates.used:UsedEvidence",
        about="the code of every patch with a run-time switch ran in the gates before it",
        is_kept=False,
    ),
    GateEntry(
        name="speed",
        runs_on="emulated",
        gate="patchkit.prove.gates.speed:SpeedGate",
        evidence="patchkit.prove.gates.speed:SpeedEvidence",
        about="operations named by patches are not slower, by the timing model",
        is_kept=False,
        reads_facts=True,
        reads={"speed": "[speed]"},
    ),
    GateEntry(
        name="bench",
        runs_on="device",
        gate="patchkit.prove.gates.bench:BenchOnDevice",
        evidence="patchkit.prove.gates.bench:BenchEvidence",
        about="llama-bench is not slower",
        reads={"bench": "[bench]"},
    ),
)
"""Every gate, in order of cost."""


NO_LONGER = ("numerics",)
"""Gates of earlier versions: a policy may still name them, and old evidence may be of them."""


def entries(*places: RunsOn) -> tuple[GateEntry, ...]:
    """The gates that run there, or all."""
    return tuple(entry for entry in REGISTRY if not places or entry.runs_on in places)


def plain_names() -> tuple[str, ...]:
    """The gates that a plain candidate must pass, in order of cost."""
    return tuple(entry.name for entry in REGISTRY if entry.plain is True)


def ladder_of(archs: Sequence[str]) -> tuple[str, ...]:
    """The gates that a report lists for a candidate of these GPUs, or of none."""
    is_plain = tuple(archs) == (PLAIN,)
    return tuple(entry.name for entry in REGISTRY if not is_plain or entry.plain is not None)


def gate_names(*places: RunsOn) -> tuple[str, ...]:
    """The names of gates that run there, or of all, in order of cost."""
    return tuple(entry.name for entry in entries(*places))


def cpu_names() -> tuple[str, ...]:
    """The names of gates on the CPU backend, where they prove nothing about the GPU."""
    return tuple(f"{name}@cpu" for name in gate_names("device"))


def find_entry(name: str) -> GateEntry | None:
    """The gate of that name, which may be one of :func:`cpu_names`; None if there is no such gate."""
    return next((entry for entry in REGISTRY if entry.name == name.partition("@")[0]), None)


def load(reference: str) -> Any:  # noqa: ANN401 - a class by its name
    """The class that ``module:Class`` names."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
