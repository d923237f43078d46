"""The first lines of a report: three answers, what is unproven, and what to do next."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from patchkit.base.report.blocks import Answer, AnswerState, PatchSummary, Step, Unproven
from patchkit.base.series_folder import PLAIN
from patchkit.base.text import counted
from patchkit.base.verdict import EMULATED, MODELLED
from patchkit.prove.gates.base import NOT_SELECTED, SKIPPED
from patchkit.prove.gates.registry import find_entry

if TYPE_CHECKING:
    from patchkit.prove.gates.record import GateReport
    from patchkit.prove.report.run_record import RunPatch, RunRecord

NEEDS_DEVICE = "needs "
"""How the summary of a gate begins that needs a GPU, real or emulated."""

FITS, RIGHT, FASTER = "does it fit?", "is it correct?", "is it faster?"
_ON_CPU = "@cpu"
_SPEED_GATES = ("speed", "bench")
_RIGHT_GATES = ("cpu-tests", "backend-ops", "sanitize", "graphs", "logits", "width", "used")
_OTHERS_UNCHANGED = "code for other GPUs is unchanged"
_DECLARED = "except for plain patches"
_MORE_CHECKS = {"resources": "registers", "launch": "launches"}
_MOST_SOURCES = 3
_PIN = re.compile(r"b[0-9]{1,9}")


def is_skipped(gate: GateReport) -> bool:
    """Whether the gate was not to run in this run."""
    return gate.verdict == "not run" and gate.summary.startswith(SKIPPED)


def why_not_run(gate: GateReport) -> str:
    """``not run: needs the GPU`` or ``skipped: gate compile failed``."""
    return gate.summary if is_skipped(gate) else f"not run: {gate.summary}"


def _question(name: str) -> str:
    """Which question a gate helps to answer; empty for a gate of another version of patchkit."""
    if find_entry(name) is None:
        return ""
    base = name.partition("@")[0]
    return FASTER if base in _SPEED_GATES else RIGHT if base in _RIGHT_GATES else FITS


def make_answers(run: RunRecord) -> tuple[Answer, ...]:
    """Does it fit, is it correct, is it faster; nothing for a candidate without a patch."""
    if run.nothing is not None:
        return ()
    return (_fits(run), _is_right(run), _is_faster(run))


def _fits(run: RunRecord) -> Answer:
    gates = {
        gate.name: gate for gate in run.gates if _question(gate.name) == FITS and _has_subject(run, gate)
    }
    failed = [gate for gate in gates.values() if gate.verdict == "failed"]
    if failed:
        return Answer(question=FITS, text=f"no: {_failures(failed)}", state="no")
    passed = [name for name, gate in gates.items() if gate.has_passed]
    missing = [name for name, gate in gates.items() if not gate.has_passed]
    if not passed:
        return Answer(question=FITS, text="not checked", state="unknown")
    # A candidate has its patches applied; gate anchors checks that each edit is where it belongs.
    count = counted(len(run.patches), "patch", "patches") if run.patches else "all patches"
    text = f"{count} {'applies' if len(run.patches) == 1 else 'apply'}"
    if "compile" in passed:
        text += f" and {_verb(run, 'compile')} for {' and '.join(run.archs)}"
    elif "cpu-build" in passed:
        text += f" and {_verb(run, 'build')} for the CPU"
    if "isolation" in passed:
        declared = gates["isolation"].evidence
        text += f"; {_OTHERS_UNCHANGED}"
        text += f", {_DECLARED}" if declared is not None and declared.outcome else ""
    more = [what for name, what in _MORE_CHECKS.items() if name in passed]
    text += f"; {' and '.join(more)} are as declared" if more else ""
    if missing:
        return Answer(question=FITS, text=f"{text}; not checked: {', '.join(missing)}", state="partly")
    return Answer(question=FITS, text=f"yes: {text}", state="yes")


def _verb(run: RunRecord, verb: str) -> str:
    return f"{verb}s" if len(run.patches) == 1 else verb


def _failures(gates: Iterable[GateReport]) -> str:
    return "; ".join(f"{gate.name} failed ({gate.summary})" for gate in gates)


def _is_right(run: RunRecord) -> Answer:
    gates = [gate for gate in run.gates if _question(gate.name) == RIGHT]
    failed = [gate for gate in gates if gate.verdict == "failed"]
    if failed:
        return Answer(question=RIGHT, text=f"no: {_failures(failed)}", state="no")
    text, state = _right_on_cpu(gates) if run.archs == (PLAIN,) else _right_on_gpu(run, gates)
    return Answer(question=RIGHT, text=text, state=state)


def _right_on_cpu(gates: Sequence[GateReport]) -> tuple[str, AnswerState]:
    passed = [gate for gate in gates if gate.has_passed]
    return (f"yes, on the CPU: {_outcomes(passed)}", "yes") if passed else ("not run on the CPU", "unknown")


def _right_on_gpu(run: RunRecord, gates: Sequence[GateReport]) -> tuple[str, AnswerState]:
    gpus = " or ".join(run.archs)
    own = [gate for gate in gates if not _is_on_cpu(gate)]
    passed = [gate for gate in own if gate.verdict == "passed"]
    emulated = [gate for gate in own if gate.verdict == EMULATED]
    if passed:
        missing = [gate.name for gate in own if not gate.has_passed]
        rest = [f"emulated: {_outcomes(emulated)}"] if emulated else []
        rest += [f"not run: {', '.join(missing)}"] if missing else []
        text = "; ".join((f"on the GPU: {_outcomes(passed)}", *rest))
        # These gates always run on the emulated GPU.
        is_all = not missing and all(gate.name in {"sanitize", "graphs", "used"} for gate in emulated)
        return (f"yes, {text}", "yes") if is_all else (text, "partly")
    if emulated:
        return f"on an emulated {gpus}, not on hardware: {_outcomes(emulated)}", "partly"
    on_cpu = [gate for gate in gates if gate.has_passed and _is_on_cpu(gate)]
    if on_cpu:
        return f"not run on {gpus}; on the CPU backend, without GPU code: {_outcomes(on_cpu)}", "unknown"
    return f"not run: nothing was executed for {gpus}", "unknown"


def _is_on_cpu(gate: GateReport) -> bool:
    return gate.name.endswith(_ON_CPU) or gate.name == "cpu-tests"


def _has_subject(run: RunRecord, gate: GateReport) -> bool:
    """Whether the candidate has something that the gate checks: not all have plain patches."""
    entry = find_entry(gate.name)
    if entry is None or gate.verdict != "not run" or gate.has_broken:
        return True
    return entry.plain is True if run.archs == (PLAIN,) else not entry.plain_only


def _outcomes(gates: Iterable[GateReport]) -> str:
    return ", ".join((gate.evidence.outcome if gate.evidence else "") or gate.name for gate in gates)


def _is_faster(run: RunRecord) -> Answer:
    gates = {gate.name: gate for gate in run.gates}
    bench, speed = gates.get("bench"), gates.get("speed")
    if bench is not None and bench.verdict == "failed":
        return Answer(question=FASTER, text=f"no: measured, {bench.summary}", state="no")
    if speed is not None and speed.verdict == "failed":
        return Answer(question=FASTER, text=f"no: by the timing model, {speed.summary}", state="no")
    parts: list[str] = []
    state: AnswerState = "unknown"
    outcome = bench.evidence.outcome if bench is not None and bench.evidence is not None else ""
    if bench is not None and outcome:
        is_judged = bench.verdict == "passed"
        runner = getattr(bench.evidence, "runner", "this machine")
        open_text = "" if is_judged else ", undecided"
        parts.append(f"measured on {runner}{open_text}: {outcome}")
        state = "yes" if is_judged else "partly"
    else:
        parts.append("not measured in this run")
    known = list(_known_gains(run.patches)) if run.archs != (PLAIN,) else []
    if known:
        parts.append(_by_patch(run, known))
    if speed is not None and speed.verdict == MODELLED and speed.evidence is not None:
        parts.append(f"timing model: {speed.evidence.outcome} (operations that patches name)")
    if state == "unknown" and len(parts) > 1:
        state = "partly"
    return Answer(question=FASTER, text="; ".join(parts), state=state)


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownGains:
    """How many patches have the same kind of evidence for their gain, and its sources."""

    text: str
    patches: int


_KNOWN = {
    "measured": "measured by others",
    "published": "measured by others",
    "indirect": "something similar measured by others",
    "modelled": "modelled",
    "faults": "bug fix, no gain claimed",
}


def _known_gains(patches: Sequence[RunPatch]) -> Iterator[_KnownGains]:
    counts: dict[str, int] = {}
    sources: dict[str, dict[str, None]] = {}
    for patch in patches:
        is_indirect = patch.trust == "published" and not patch.sources
        text = _KNOWN.get("indirect" if is_indirect else patch.trust or "", "no gain known")
        counts[text] = counts.get(text, 0) + 1
        if text == _KNOWN["measured"]:
            sources.setdefault(text, {}).update(dict.fromkeys(patch.sources))
    for text in dict.fromkeys((*_KNOWN.values(), "no gain known")):
        if text in counts:
            names = list(sources.get(text, {}))
            more = f" and {len(names) - _MOST_SOURCES} more" if len(names) > _MOST_SOURCES else ""
            by = f" ({', '.join(names[:_MOST_SOURCES])}{more})" if names else ""
            yield _KnownGains(text=f"{text}{by}", patches=counts[text])


def _by_patch(run: RunRecord, known: Sequence[_KnownGains]) -> str:
    if len(known) == 1:
        return (
            f"{known[0].text}: {'the patch' if len(run.patches) == 1 else f'all {known[0].patches} patches'}"
        )
    return ", ".join(f"{one.text}: {one.patches} of {len(run.patches)}" for one in known)


def patch_summaries(run: RunRecord) -> tuple[PatchSummary, ...]:
    """The patches of the candidate, in order, with their gain and its source."""
    return tuple(PatchSummary(name=one.id, title=one.title, gain=one.gain) for one in run.patches)


def command_line(run: RunRecord, verb: str, *options: str) -> str:
    """A patchkit command for this candidate, as it can be typed."""
    archs = [word for arch in run.archs for word in ("--arch", arch)]
    words = ["patchkit", verb, *(archs if run.arch_options is None else run.arch_options)]
    pin = run.branch.rpartition("/")[2]
    if _PIN.fullmatch(pin):
        words += ["--upstream", pin]
    elif pin.startswith("onto-"):
        words += ["--onto", run.base[:12]]
    return shlex.join([*words, *options])


def group_unproven(run: RunRecord) -> tuple[Unproven, ...]:
    """Everything that was not proven, grouped by what would prove it; what matters most comes first."""
    if run.nothing is not None:
        what = "anything: no gate ran, because the candidate has no patch"
        return (Unproven(what=what, command="", details=()),)
    return tuple(one for one in _groups(run) if one.details)


def _groups(run: RunRecord) -> Iterator[Unproven]:
    skipped = [gate for gate in run.gates if is_skipped(gate)]
    here = [gate for gate in run.gates if not is_skipped(gate) and _has_subject(run, gate)]
    needing = [gate for gate in here if gate.verdict == "not run" and gate.summary.startswith(NEEDS_DEVICE)]
    # With --no-gpu no gate for a device ran; what else was not proven needs no device either.
    on_device = set(_RIGHT_GATES[1:]) & {gate.name for gate in run.gates}  # older reports have fewer
    no_gpu = ("--no-gpu",) if on_device and on_device <= {gate.name for gate in needing} else ()
    pairs = [(gate.name, text) for gate in here for text in gate.not_run]
    remarks = _Remarks(pairs=pairs, emulated=[gate.name for gate in here if gate.verdict == EMULATED])
    gpus = " or ".join(run.archs)
    right = [gate for gate in needing if _question(gate.name) != FASTER]
    speed = [gate for gate in needing if _question(gate.name) == FASTER]
    undecided = [gate for gate in here if gate.verdict == "not run" and gate not in needing]
    yield Unproven(
        what=f"that {gpus} gives correct results ({_names(right)}); emulated if this machine has no {gpus}",
        command=command_line(run, "verify"),
        details=_reasons(right),
    )
    yield Unproven(
        what=f"that {gpus} itself computes what the emulated one did ({', '.join(remarks.emulated)})",
        command=command_line(run, "verify", "--runner", "ssh://HOST"),
        details=remarks.take(lambda gate, text: gate in remarks.emulated and "emulated" in text),
    )
    yield Unproven(
        what=f"that it is faster on {gpus}, measured (bench, on that GPU)",
        command=command_line(run, "verify", "--gate", "bench", "--model", "FILE.gguf"),
        details=(
            *_reasons(speed),
            *_reasons(gate for gate in undecided if gate.name == "bench"),
            *remarks.take(lambda gate, _: gate == "bench"),
        ),
    )
    yield from _skipped_groups(run, skipped, no_gpu)
    full = remarks.take(lambda _, text: "--full" in text)
    yield Unproven(
        what=f"what only a full run covers: {_first(full)}",
        command=command_line(run, "verify", *no_gpu, "--full"),
        details=full,
    )
    yield Unproven(
        what="results with a real model and a real text",
        command=command_line(run, "verify", "--model", "FILE.gguf", "--text", "FILE.txt"),
        details=remarks.take(lambda _, text: "--model" in text),
    )
    yield Unproven(
        what=f"anything about {gpus} by gates that ran on the CPU backend",
        command=command_line(run, "verify"),
        details=(
            *_reasons(gate for gate in undecided if gate.name.endswith(_ON_CPU)),
            *remarks.take(lambda gate, _: gate.endswith(_ON_CPU)),
        ),
    )
    for gate in undecided:
        if gate.name != "bench" and not gate.name.endswith(_ON_CPU):
            remarks.drop(gate.name)  # parts of what did not run at all
            yield Unproven(what=f"{gate.name}: {gate.summary}", command="", details=_reasons([gate]))
    limits = remarks.take(lambda *_: True)
    counts = Counter(gate for gate, _ in limits)
    by_gate = ", ".join(f"{gate} {count}" for gate, count in counts.items())
    yield Unproven(
        what=f"{counted(len(limits), 'limit')} of the gates that ran ({by_gate}), "
        f"for example: {_first(limits[:1])}"
        if len(limits) > 1
        else f"a limit of gate {by_gate.rpartition(' ')[0]}: {_first(limits)}",
        command="",
        details=limits,
    )
    yield Unproven(
        what=f"evidence of another run, ignored: {', '.join(run.strays)}",
        command="",
        details=tuple((name, f"{name}.json next to the report is of another run") for name in run.strays),
    )


@dataclass(slots=True, kw_only=True)
class _Remarks:
    """What gates that ran did not prove, as (gate, text); each is taken by one group only."""

    pairs: list[tuple[str, str]]
    emulated: list[str]

    def take(self, is_wanted: Callable[[str, str], bool]) -> tuple[tuple[str, str], ...]:
        """Remove those that are wanted, and return them."""
        taken = tuple(pair for pair in self.pairs if is_wanted(*pair))
        self.pairs = [pair for pair in self.pairs if pair not in taken]
        return taken

    def drop(self, name: str) -> None:
        """Remove those of one gate."""
        self.pairs = [pair for pair in self.pairs if pair[0] != name]


def _skipped_groups(
    run: RunRecord, skipped: Sequence[GateReport], no_gpu: tuple[str, ...]
) -> Iterator[Unproven]:
    unselected = [gate for gate in skipped if gate.summary == NOT_SELECTED]
    after = [gate for gate in skipped if gate.summary != NOT_SELECTED]
    yield Unproven(
        what=f"gates that --gate did not select: {_names(unselected)}",
        command=command_line(run, "verify", *no_gpu),
        details=_reasons(unselected),
    )
    yield Unproven(
        what=f"gates after the one that ended the run: {_names(after)}",
        command=command_line(run, "verify", *no_gpu),
        details=_reasons(after),
    )


def _names(gates: Iterable[GateReport]) -> str:
    return ", ".join(gate.name for gate in gates)


def _reasons(gates: Iterable[GateReport]) -> tuple[tuple[str, str], ...]:
    return tuple((gate.name, why_not_run(gate)) for gate in gates)


def _first(pairs: Sequence[tuple[str, str]]) -> str:
    """The first text without the command or option at its end, the others counted."""
    if not pairs:
        return ""
    text = re.sub(r" \(--full [^)]*\)$", "", pairs[0][1].partition(": patchkit ")[0])
    return f"{text} (and {len(pairs) - 1} more)" if len(pairs) > 1 else text


def next_steps(run: RunRecord) -> tuple[Step, ...]:
    """What to do now, most useful first."""
    return tuple(_steps(run)) if run.nothing is None else ()


def _steps(run: RunRecord) -> Iterator[Step]:
    failed = [gate.name for gate in run.gates if gate.verdict == "failed"]
    if failed:
        yield Step(
            what=f"Exclude the patch that {' and '.join(failed)} names, then verify again",
            command=command_line(run, "apply", "--without", "ID"),
        )
    elif run.stopped is not None:
        yield Step(what="Run again once the error above is fixed", command=command_line(run, "verify"))
    else:
        ran = {gate.name for gate in run.gates if gate.has_passed}
        if run.archs != (PLAIN,) and not ran & set(_RIGHT_GATES[1:]):
            yield Step(what="Run the kernels, on your GPU or emulated", command=command_line(run, "verify"))
        yield Step(what="Build upstream and candidate", command=command_line(run, "build"))
        if run.archs != (PLAIN,) and "bench" not in ran:
            yield Step(
                what="Measure on the GPU, with your model",
                command=command_line(run, "verify", "--gate", "bench", "--model", "FILE.gguf"),
            )
    yield Step(
        what="Write a page with all tables",
        command=command_line(run, "report", "--format", "markdown", "--out", "report.md"),
    )
