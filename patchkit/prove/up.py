"""``patchkit up``: build the candidate, check it on the GPU, and install it next to earlier builds.

Each build has a folder of its own below the prefix, which never changes after it is complete. The link
``current`` names the one in use, and ``previous`` the one before it. Both are replaced by a rename, so a
process that is stopped at any point leaves the last good build in use.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from patchkit.base.digests import key_of
from patchkit.base.errors import Location, ToolchainError, UsageError
from patchkit.base.files import (
    disk_errors,
    open_regular,
    replace_link,
    temporary_folder,
    whole_folder,
    write_whole,
)
from patchkit.base.locks import locked
from patchkit.base.reporter import Reporter
from patchkit.base.text import counted
from patchkit.base.upstreams import build_name, llama_cpp
from patchkit.base.workspace import Workspace, default_data_root
from patchkit.carry.candidate.decision import Wish
from patchkit.carry.candidate.record import Candidate
from patchkit.carry.series.lock import Pin, PinWanted
from patchkit.carry.series.trust import Level
from patchkit.gpu.emulated.models import check_gguf
from patchkit.gpu.hardware.backend_ops import Choice, make_stage
from patchkit.gpu.hardware.program import RunContext, run_program
from patchkit.prove.build import (
    Machine,
    build_tree,
    check_programs,
    missing_gpu,
    prepare_subject,
    run_operations,
)
from patchkit.prove.serving import (
    SERVER,
    ServerFlags,
    Service,
    ServiceKind,
    make_service,
    server_flags,
    service_path,
    usable_memory,
    write_service,
)
from patchkit.prove.subject import Subject
from patchkit.toolchain.hip import ToolchainMissing
from patchkit.toolchain.parts import OPERATION_TESTS, BackendName
from patchkit.toolchain.sides import BuiltSide, put_file

PROGRAMS = (SERVER, "llama-cli", llama_cpp().programs.bench)
"""The programs that are installed by default."""

_MANIFEST = "patchkit.json"
_MOST_BYTES = 1 << 20  # of a manifest: a few KiB are usual
_CURRENT, _PREVIOUS = "current", "previous"
_DOING = "installing a build"
_ELSEWHERE = "choose another folder with --prefix"
# A small sample of the operations that every model runs: matmuls of all types, norms, RoPE, attention. The
# CPU computes each case, too: on an H200 with 16 cores all matmuls took longer than two minutes.
_CHECKED = (
    Choice(
        ops=("MUL_MAT",),
        pattern=r"type_b=f32,m=(16,n=\d+,k=256,bs=\[1,1\],nr=\[1,1\]|\d+,n=(17|32|64|512),)",
    ),
    Choice(ops=("MUL_MAT_ID",), pattern=r"n_used=2,b=0,m=512,"),
    Choice(ops=("GET_ROWS",), pattern="n=256,m=5,r=4,be1=1,"),
    Choice(ops=("RMS_NORM", "ROPE", "SOFT_MAX")),
    Choice(ops=("FLASH_ATTN_EXT",), pattern=r"hsk=(64|128),.*kv=512,nb=(1|35),.*type_K(V)?=f16"),
)
_CHECK_S, _PROMPT_S = 600.0, 600.0
_NO_CHECK = "--no-check installs it without running operations on a GPU"
_INSTALL_ROCM = "install ROCm (patchkit doctor lists the packages), or build for the CPU with --backend cpu"
_SHOWN = 8


class AskedPatches(BaseModel):
    """The options that selected the patches of a build, as in :class:`Wish`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    with_: tuple[str, ...] = ()
    trust: Level | None = None

    @property
    def wish(self) -> Wish:
        """The same as a wish."""
        return Wish(only=self.only, without=self.without, with_=self.with_, trust=self.trust)


class Installation(BaseModel):
    """One installed build, as described by the file ``patchkit.json`` in its folder.

    ``checked``: what ran on which device before it was put into use, or why nothing did. ``asked``: what
    ``--update`` asks for again; None in files of earlier versions. ``onto``: it is of the user's own clone.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = 1
    name: str
    build: int
    branch: str
    commit: str
    tree: str
    archs: tuple[str, ...]
    patches: tuple[str, ...]
    backend: BackendName
    compiler: str | None
    programs: tuple[str, ...]
    made: str
    checked: str
    asked: AskedPatches | None = None
    onto: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The builds below a prefix, oldest first, and the names of the current and the previous one."""

    json_keys: ClassVar = "prefix builds current previous"

    prefix: Path
    builds: tuple[Installation, ...]
    current: str | None
    previous: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpReport:
    """The build in use. ``is_new``: it was installed by this run. ``replaced``: the one before it.

    ``server`` is the command that starts the server, if that was installed; ``notes`` say where its flags
    come from.
    """

    json_keys: ClassVar = "installation folder is_new replaced server notes service seconds"

    installation: Installation
    folder: Path
    current: Path
    is_new: bool
    replaced: str | None
    seconds: float
    server: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    service: Service | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpRequest:
    """What to install, and where. ``check``: whether to run operations on the GPU before using the build.

    ``service``: the kind of file to write that starts the server with ``model``.
    """

    archs: tuple[str, ...]
    upstream: PinWanted
    wish: Wish
    backend: BackendName
    programs: tuple[str, ...] = PROGRAMS
    prefix: Path | None = None
    model: Path | None = None
    check: bool = True
    service: ServiceKind | None = None

    @property
    def checks_operations(self) -> bool:
        """Whether operations run on the GPU; the CPU backend is what they would be compared with."""
        return self.check and self.backend != "cpu"


def default_prefix() -> Path:
    """The folder of installed builds in the user's data folder."""
    return default_data_root() / "llama.cpp"


def run_up(request: UpRequest, workspace: Workspace, environ: Mapping[str, str]) -> UpReport:
    """Build the candidate, install and check it, and make it the current build.

    Raises:
        USAGE_VALUE: a name is not the name of a program.
        MODEL_MISSING, GGUF_BAD: the model is not a GGUF file.
        UP_WRONG: an operation is wrong on the GPU; the earlier build stays current.
        DEVICE_MISSING: the build finds no GPU.
        UP_REFUSED: there is another folder in the place of the build.
        The errors of building, of running programs, and of the disk. After any exception the current build
        is the same as before.
    """
    began = time.monotonic()
    place = check_options(request.programs, request.prefix, request.model, request.service, environ)
    prefix = _prefix(request.prefix)
    if request.model is not None:  # a service is not started in this folder
        request = replace(request, model=_absolute(request.model))
    try:
        subject, candidate = prepare_subject(
            workspace, request.archs, request.upstream, request.backend, environ, request.wish
        )
    except ToolchainMissing as error:  # patchkit's own SDK compiles, but nothing that it links runs on a GPU
        error.hint = _INSTALL_ROCM
        raise
    programs = (*request.programs, *((OPERATION_TESTS,) if request.checks_operations else ()))
    if subject.toolchain is not None and subject.toolchain.kind == "sdk":
        workspace.reporter.warn(
            "ROCm is not installed: patchkit's SDK compiles the programs, but to run on a GPU they need the "
            "libraries of ROCm (patchkit doctor lists its packages)"
        )
    if request.checks_operations and (why := missing_gpu(request.backend)) is not None:
        workspace.reporter.warn(
            f"{why}: this builds {candidate.branch}, but does not install it; {_NO_CHECK}"
        )
    workspace.reporter.step(f"building {candidate.branch} for {request.backend}")
    subject = replace(subject, label=_label(candidate))
    tree = subject.candidate_tree
    side = build_tree(subject, subject.candidate, tree, request.backend, programs, in_turns=True)
    with locked(prefix / "lock", waiting=_waiting(workspace.reporter), doing=_DOING, elsewhere=_ELSEWHERE):
        name = _name(request, candidate, side)
        known = _read(prefix / name)
        is_new = known is None
        if known is None:
            checked = _check(side, subject, request)
            workspace.reporter.step(f"installing {name}")
            known = _install(prefix / name, side, request, subject, candidate, checked)
        replaced = _use(prefix, name)
        flags = _flags(prefix / _CURRENT / SERVER, request, workspace.reporter, environ)
        model = str(request.model) if request.model is not None else "MODEL.gguf"
        server = (str(prefix / _CURRENT / SERVER), "-m", model, *flags.words) if flags is not None else ()
        service = None
        if place is not None and request.service is not None and request.model is not None:
            service = make_service(request.service, place, server, request.model)
            write_service(service)
    return UpReport(
        installation=known,
        folder=prefix / name,
        current=prefix / _CURRENT,
        is_new=is_new,
        replaced=replaced,
        seconds=round(time.monotonic() - began, 1),
        server=server,
        notes=flags.notes if flags is not None else (),
        service=service,
    )


def check_options(
    programs: Sequence[str],
    prefix: Path | None,
    model: Path | None,
    service: ServiceKind | None,
    environ: Mapping[str, str],
) -> Path | None:
    """Check the options before anything is fetched or built; returns where the service is written, if asked.

    Raises:
        USAGE_VALUE: a name is not the name of a program.
        MODEL_MISSING, GGUF_BAD: the model is not a GGUF file.
        OPTIONS_CONTRADICT: a service without a model, or without the server.
        UP_REFUSED: as :func:`patchkit.prove.serving.service_path`.
    """
    check_programs(programs)
    if model is not None:
        check_gguf(model)
    if service is None:
        return None
    if model is None or SERVER not in programs:
        raise UsageError(
            f"--service requires --model and the program {SERVER}",
            code="OPTIONS_CONTRADICT",
            why="the service starts the server with one model",
            hint="add --model MODEL.gguf" if model is None else f"add --program {SERVER}",
        )
    return service_path(service, _prefix(prefix), _absolute(model), environ)


def _flags(
    server: Path, request: UpRequest, reporter: Reporter, environ: Mapping[str, str]
) -> ServerFlags | None:
    """The flags of the installed server; None if it is not among the programs."""
    if SERVER not in request.programs:
        return None
    memory = None
    if request.model is not None:
        memory = usable_memory(request.backend, request.archs, environ, reporter)
    return server_flags(server, request.model, request.backend, memory, reporter)


def update_request(prefix: Path | None) -> tuple[Installation, Wish]:
    """The current build, and the patches that it was asked with, to install its successor.

    Raises:
        UP_REFUSED: there is no current build, or it is of the user's own clone.
    """
    root = _prefix(prefix)
    known = list_installed(root)
    current = next((each for each in known.builds if each.name == known.current), None)
    if current is None:
        named = _target(root / _CURRENT, None)
        raise UsageError(
            f"{root} has no current build to update",
            code="UP_REFUSED",
            where=Location(path=str(root if named is None else root / named)),
            why=f"its current build has no readable {_MANIFEST}" if named is not None else None,
            hint="install one first: patchkit up"
            if named is None
            else "use another installed build: patchkit up --use NAME, or run patchkit up without --update",
        )
    if current.asked is None or current.onto:
        raise UsageError(
            f"cannot update {current.name} without its options",
            code="UP_REFUSED",
            where=Location(path=str(root / current.name)),
            why="it is of your own clone" if current.onto else "an earlier version of patchkit installed it",
            hint="run patchkit up with the options that you used, without --update",
        )
    return current, current.asked.wish


def list_installed(prefix: Path | None) -> Installed:
    """The builds below the prefix. Folders without a readable description are skipped."""
    root = _prefix(prefix)
    found = [_read(path) for path in sorted(root.iterdir()) if path.is_dir()] if root.is_dir() else []
    builds = sorted((each for each in found if each is not None), key=lambda each: each.made)
    names = {each.name for each in builds}
    current, previous = (_target(root / link, names) for link in (_CURRENT, _PREVIOUS))
    return Installed(prefix=root, builds=tuple(builds), current=current, previous=previous)


def roll_back(prefix: Path | None, name: str | None, reporter: Reporter) -> Installed:
    """Make the previous build current, or the one of that name.

    Raises:
        UP_REFUSED: there is no such build.
        CacheError: the disk reported an error.
    """
    root = _prefix(prefix)
    known = list_installed(root)
    wanted = name if name is not None else known.previous
    if wanted is None or wanted not in {each.name for each in known.builds}:
        what = f"no build '{name}'" if name is not None else "no previous build"
        raise UsageError(
            f"{root} has {what}",
            code="UP_REFUSED",
            where=Location(path=str(root)),
            hint="patchkit up --list shows the installed builds",
        )
    with locked(root / "lock", waiting=_waiting(reporter), doing=_DOING, elsewhere=_ELSEWHERE):
        _use(root, wanted)
    return list_installed(root)


def _prefix(named: Path | None) -> Path:
    return _absolute(named) if named is not None else default_prefix()


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 - keep links


def _waiting(reporter: Reporter) -> Callable[[], None]:
    return lambda: reporter.info("waiting for another patchkit that is installing a build")


def _install(
    folder: Path,
    side: BuiltSide,
    request: UpRequest,
    subject: Subject,
    candidate: Candidate,
    checked: str,
) -> Installation:
    """Copy programs and libraries into a folder that appears complete or not at all."""
    made = Installation(
        format=1,
        name=folder.name,
        build=candidate.build,
        branch=candidate.branch,
        commit=candidate.tip,
        tree=subject.candidate_tree,
        archs=candidate.archs,
        patches=candidate.ids,
        backend=request.backend,
        compiler=_compiler(subject),
        programs=request.programs,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        checked=checked,
        asked=_asked(request.wish),
        onto=isinstance(request.upstream, Pin),
    )
    if os.path.lexists(folder):
        raise UsageError(
            f"{folder} is not a build that patchkit installed",
            code="UP_REFUSED",
            where=Location(path=str(folder)),
            why=f"it has no readable {_MANIFEST}",
            hint="move it away, or choose another folder with --prefix",
        )
    with disk_errors(folder, _DOING, _ELSEWHERE), whole_folder(folder) as partial:
        for path in sorted(side.folder.iterdir()):
            if path.name in request.programs or ".so" in path.name:
                put_file(path, partial / path.name)
        write_whole(partial / _MANIFEST, made.model_dump_json(indent=1) + "\n", _DOING)
    return made


def _asked(wish: Wish) -> AskedPatches:
    return AskedPatches(only=wish.only, without=wish.without, with_=wish.with_, trust=wish.trust)


def _label(candidate: Candidate) -> str:
    """What ``--version`` and the server's ``system_fingerprint`` name: the commit and its patches.

    It has no spaces, because llama.cpp also sends it as the User-Agent of downloads.
    """
    return "+".join((candidate.tip[:9], *candidate.ids))


def _name(request: UpRequest, candidate: Candidate, side: BuiltSide) -> str:
    """Build, GPUs, backend, and a digest of everything that determines the files."""
    digest = key_of({"parts": side.identity, "programs": sorted(request.programs)})[:12]
    return f"{build_name(candidate.build)}-{'+'.join(candidate.archs)}-{request.backend}-{digest}"


def _compiler(subject: Subject) -> str | None:
    chain = subject.toolchain
    return f"HIP {chain.hip_version}, clang {chain.clang_version}" if chain is not None else None


def _check(side: BuiltSide, subject: Subject, request: UpRequest) -> str:
    """Run operations and, with a model, a prompt; returns what ran. Raises UP_WRONG and DEVICE_MISSING."""
    if request.checks_operations and (why := missing_gpu(request.backend)) is not None:
        raise ToolchainError(
            "the build is complete, but not installed: this machine has no GPU to check it on",
            code="DEVICE_MISSING",
            why=why,
            hint=f"run the command on the machine with the GPU; {_NO_CHECK}. Nothing is compiled again here",
        )
    with temporary_folder("up") as folder:
        place = RunContext(folder=folder, reporter=subject.reporter)
        done = [_check_operations(side, subject, request.backend, place)] if request.checks_operations else []
        if request.model is not None:
            done.append(_run_prompt(side, request.model, place))
    if done:
        return "; ".join(done)
    return "nothing ran: it was built for the CPU" if request.check else "nothing ran: --no-check"


def _check_operations(side: BuiltSide, subject: Subject, backend: BackendName, place: RunContext) -> str:
    machine = Machine(backend=backend)
    stage = make_stage(side, side, place.folder / "stage")
    passed, wrong = 0, []
    for number, choice in enumerate(_CHECKED):
        place.reporter.step(f"checking {', '.join(choice.ops)} on the GPU")
        name = f"check-{number}"
        try:
            rows = run_operations(
                stage, machine, subject.archs, choice, name=name, timeout_s=_CHECK_S, place=place
            )
        except ToolchainError as error:
            if error.code == "DEVICE_MISSING":
                error.hint = f"patchkit doctor checks the driver and the groups; {_NO_CHECK}"
            raise
        passed += sum(row.has_passed for row in rows)
        wrong += [row for row in rows if not row.has_passed]
    if wrong:
        raise ToolchainError(
            f"wrong results on this GPU in {len(wrong)} of {counted(len(wrong) + passed, 'operation')}",
            code="UP_WRONG",
            why="\n".join(f"{row.case}: {row.error}" for row in wrong[:_SHOWN]),
            hint="the earlier build stays in use; to find the faulty patch: patchkit verify, or see "
            "docs/guide/find-the-patch.md",
        )
    if not passed:
        raise ToolchainError(
            f"the new build found no GPU ({machine.device}), so nothing was checked",
            code="DEVICE_MISSING",
            hint=f"check the driver, for example with nvidia-smi; {_NO_CHECK}",
        )
    return f"{passed} operations of {OPERATION_TESTS} passed on {machine.device}"


def _run_prompt(side: BuiltSide, model: Path, place: RunContext) -> str:
    """A short prompt and some tokens with the user's model."""
    program = llama_cpp().programs.bench
    if not side.program(program).exists():
        return f"no prompt: {program} is not among the programs"
    place.reporter.step(f"running a prompt with {model.name}")
    argv = [str(side.program(program)), "-m", str(model), "-p", "64", "-n", "16", "-r", "1", "-o", "json"]
    ran = run_program("prompt", argv, place=place, env=dict(side.environment), timeout_s=_PROMPT_S)
    return f"a prompt with {model.name} ran in {ran.seconds:.0f} s"


def _use(prefix: Path, name: str) -> str | None:
    """Make a build current; returns the name of the one that was, if it was another."""
    before = _target(prefix / _CURRENT, None)
    if before == name:
        return None
    with disk_errors(prefix, _DOING, _ELSEWHERE):
        if before is not None:
            replace_link(prefix / _PREVIOUS, before)
        replace_link(prefix / _CURRENT, name)
    return before


def _target(link: Path, names: Sequence[str] | set[str] | None) -> str | None:
    """The name that a link has, None if there is no link or, with ``names``, another name."""
    if not link.is_symlink():
        return None
    name = link.readlink().name
    return name if names is None or name in names else None


def _read(folder: Path) -> Installation | None:
    """The description of a build; None if there is none that can be read, or it is of another folder."""
    try:
        with open_regular(folder / _MANIFEST) as stream:  # a pipe would block
            found = Installation.model_validate_json(stream.read(_MOST_BYTES))
    except (OSError, ValidationError):
        return None
    return found if found.name == folder.name else None
