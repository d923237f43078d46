"""The one list of gates: every other module reads their names, order and needs from here.

Classes are named as ``module:Class`` and imported when they are needed, so that whoever asks for names alone
(the command line, the series) imports nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from patchkit.base.series_folder import PLAIN

Place = Literal["anywhere", "device", "emulated"]
"""Where a gate runs: on any machine, on the device asked for (GPU or CPU), or on an emulated GPU only."""


CPU_TESTS = "cpu-tests"
"""The gate that a series need not pass where upstream has no test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One gate.

    ``gate`` is its class, which ``make(setup)`` makes ready, ``evidence`` the model of what it finds.
    ``compiles``: it needs the HIP compiler (on the CPU backend no gate does). ``is_kept``: on a device,
    evidence of the same trees, tools and machine is taken again. ``plain_only``: it looks at plain patches
    alone, and a series with GPUs need not name it. ``plain``: whether a candidate that is for no GPU is asked
    for it, or why it is not, where that is told; None: it looks at code for a GPU, and is not named there.

    The rest says when a pull request needs the gate again although the candidate's tree is as it was:
    ``always`` is why in any case; ``reads_facts``: when facts of a profile changed; ``sees_every_gpu``: when
    another GPU's profile came or changed; ``reads``: when that attribute of a patch changed, by the words for
    it.
    """

    name: str
    place: Place
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
        """Why it cannot run on a machine without a GPU; empty when it can."""
        needed: Mapping[Place, str] = {"device": "needs the GPU", "emulated": "needs the emulated GPU"}
        return needed.get(self.place, "")


REGISTRY: tuple[Entry, ...] = (
    Entry(
        name="anchors",
        place="anywhere",
        gate="patchkit.prove.gates.anchors:AnchorsGate",
        evidence="patchkit.prove.gates.anchors:AnchorsEvidence",
        about="every edit resolves to the place where the candidate has it",
        compiles=False,
        plain=True,
        always="the commits say what the series says",
    ),
    Entry(
        name="isolation",
        place="anywhere",
        gate="patchkit.prove.gates.isolation.gate:IsolationGate",
        evidence="patchkit.prove.gates.isolation.evidence:IsolationEvidence",
        about="nothing changes for CUDA, MUSA and GPUs that no patch is for",
        plain="has nothing to ask of a plain candidate, which is for every build",
        sees_every_gpu=True,
        reads={"guard": "[guard]"},
    ),
    Entry(
        name="compile",
        place="anywhere",
        gate="patchkit.prove.gates.compile:CompileGate",
        evidence="patchkit.prove.gates.compile:CompileEvidence",
        about="every touched unit compiles, without a new warning",
    ),
    Entry(
        name="resources",
        place="anywhere",
        gate="patchkit.prove.gates.resources:ResourcesGate",
        evidence="patchkit.prove.gates.resources:ResourcesEvidence",
        about="no kernel variant spills more or loses waves, but as its patch says",
        reads_facts=True,
        reads={"resources": "[resources]"},
    ),
    Entry(
        name="launch",
        place="anywhere",
        gate="patchkit.prove.gates.launch.gate:LaunchGate",
        evidence="patchkit.prove.gates.launch.evidence:LaunchEvidence",
        about="the host code launches the kernels that the patches say, with a geometry they can run",
        reads_facts=True,
        sees_every_gpu=True,
        reads={"moves": "the kernel moves", "launches": "[launches]"},
    ),
    Entry(
        name="cpu-build",
        place="anywhere",
        gate="patchkit.prove.gates.cpu_build:CpuBuildGate",
        evidence="patchkit.prove.gates.cpu_build:CpuBuildEvidence",
        about="what plain patches change builds for the CPU",
        compiles=False,
        plain_only=True,
        plain=True,
    ),
    Entry(
        name=CPU_TESTS,
        place="anywhere",
        gate="patchkit.prove.gates.cpu_tests:CpuTestsGate",
        evidence="patchkit.prove.gates.cpu_tests:CpuTestsEvidence",
        about="upstream's own tests of what plain patches change pass on the CPU",
        compiles=False,
        plain_only=True,
        plain=True,
    ),
    Entry(
        name="backend-ops",
        place="device",
        gate="patchkit.prove.gates.backend_ops:BackendOpsGate",
        evidence="patchkit.prove.gates.backend_ops:BackendOpsEvidence",
        about="upstream's test-backend-ops, and patchkit's own cases of attention",
        reads_facts=True,
    ),
    Entry(
        name="sanitize",
        place="emulated",
        gate="patchkit.prove.gates.sanitize:SanitizeGate",
        evidence="patchkit.prove.gates.sanitize:SanitizeEvidence",
        about="no kernel does what the checks of `patchkit sanitize` find, but where upstream's does",
        reads_facts=True,
    ),
    Entry(
        name="logits",
        place="device",
        gate="patchkit.prove.gates.logits:LogitsGate",
        evidence="patchkit.prove.gates.logits:LogitsEvidence",
        about="what models answer, against the CPU",
    ),
    Entry(
        name="speed",
        place="emulated",
        gate="patchkit.prove.gates.speed:SpeedGate",
        evidence="patchkit.prove.gates.speed:SpeedEvidence",
        about="by the timing model, the operations that patches name are not slower",
        is_kept=False,
        reads_facts=True,
        reads={"speed": "[speed]"},
    ),
    Entry(
        name="bench",
        place="device",
        gate="patchkit.prove.gates.bench:BenchOnDevice",
        evidence="patchkit.prove.gates.bench:BenchEvidence",
        about="llama-bench is not slower",
        reads={"bench": "[bench]"},
    ),
)
"""Every gate, in order of cost."""


NO_LONGER = ("numerics",)
"""Names of gates that earlier versions had: a policy may still name them, and evidence be of them."""


def entries(*places: Place) -> tuple[Entry, ...]:
    """The gates that run at these places, or all."""
    return tuple(entry for entry in REGISTRY if not places or entry.place in places)


def plain_names() -> tuple[str, ...]:
    """The gates that a candidate is asked for that is for no GPU, in order of cost."""
    return tuple(entry.name for entry in REGISTRY if entry.plain is True)


def ladder_of(archs: Sequence[str]) -> tuple[str, ...]:
    """The gates that a report names for a candidate of these GPUs, or of none."""
    is_plain = tuple(archs) == (PLAIN,)
    return tuple(entry.name for entry in REGISTRY if not is_plain or entry.plain is not None)


def gate_names(*places: Place) -> tuple[str, ...]:
    """Their names, in order of cost."""
    return tuple(entry.name for entry in entries(*places))


def cpu_names() -> tuple[str, ...]:
    """The names under which gates run on the CPU backend, which proves nothing of the GPU."""
    return tuple(f"{name}@cpu" for name in gate_names("device"))


def find_entry(name: str) -> Entry | None:
    """The gate of that name, which may be one of :func:`cpu_names`; None for a name that is no gate's."""
    return next((entry for entry in REGISTRY if entry.name == name.partition("@")[0]), None)


def load(reference: str) -> Any:  # noqa: ANN401 - a class by its name
    """The class that ``module:Class`` names."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
