"""The command that starts llama-server with a model on this machine, and files that start it as a service."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from patchkit.base.errors import Location, PatchkitError, UsageError
from patchkit.base.files import disk_errors, write_whole
from patchkit.base.process import run_tool
from patchkit.base.reporter import Reporter
from patchkit.gpu.gguf import load_gguf_parts
from patchkit.gpu.hardware.host.knowledge import load_knowledge
from patchkit.gpu.hardware.host.memory import shared_memory
from patchkit.gpu.hardware.host.read import read_host, this_identity
from patchkit.gpu.hardware.host.root import HostRoot
from patchkit.gpu.modelled.shape import ModelShape, shape_of_header
from patchkit.toolchain.parts import BackendName

SERVER = "llama-server"
ServiceKind = Literal["systemd", "llama-swap"]

_MARK = "# Written by patchkit up --service. Run it again to update this file; it replaces your changes."
_DOING = "writing a service file"
_ELSEWHERE = "move the file away, and run the command again"
_HELP_S = 60.0
_GIB = 1024**3
_F16 = 2  # bytes of a value in the KV cache, llama-server's default type
# Chosen, not measured: memory that the compute buffers, the desktop and other programs need.
_SHARE, _BUFFERS = 0.9, 2 * _GIB
_HERE = HostRoot()
_STEP = 1024  # of a context that does not reach the model's own
_BATCH = 512  # llama-server's default micro-batch, which sliding-window layers hold besides their window


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFlags:
    """The arguments of llama-server after ``-m MODEL``, and the reasons for them."""

    words: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory that a model and its KV cache may use, in bytes, and a phrase that names it (``of RAM``)."""

    size: int
    what: str


def usable_memory(
    backend: BackendName,
    archs: Sequence[str],
    environ: Mapping[str, str],
    reporter: Reporter,
    root: HostRoot = _HERE,
) -> Memory | None:
    """The memory of this machine's GPU, or its RAM for the CPU backend; None if it cannot be read.

    An integrated AMD GPU allocates from GTT or from what the BIOS reserves, whichever is larger. For CUDA it
    is the memory of the first GPU that nvidia-smi lists.
    """
    if backend == "cuda":
        return _nvidia_memory(reporter)
    known = load_knowledge()
    host = read_host(root, known, environ=environ, identity=this_identity())
    if backend == "cpu":
        return None if host.memory is None else Memory(size=host.memory, what="of RAM")
    gpu = next((gpu for gpu in host.gpus if gpu.arch in archs), None)
    if gpu is None or gpu.vram is None:
        return None
    shared = shared_memory(gpu, host, known) if gpu.arch in known.memory.archs else 0
    return Memory(size=max(gpu.vram, shared), what=f"for {gpu.arch}")


def _nvidia_memory(reporter: Reporter) -> Memory | None:
    query = ["nvidia-smi", "--query-gpu=memory.total,name", "--format=csv,noheader,nounits"]
    try:
        done = run_tool(query, timeout_s=_HELP_S, check=False, reporter=reporter)
    except PatchkitError:
        return None
    found = re.match(r"(\d{1,9}), ([ -~]{1,60})\n", done.stdout.decode("utf-8", "replace"))  # MiB
    return Memory(size=int(found[1]) * 1024**2, what=f"for {found[2]}") if found else None


def server_flags(
    program: Path, model: Path | None, backend: BackendName, memory: Memory | None, reporter: Reporter
) -> ServerFlags:
    """The flags for a build of llama-server, by its ``--help``, and for a model, by its GGUF header."""
    known = _help_of(program, reporter)
    words: list[str] = []
    notes: list[str] = []
    if backend != "cpu":
        words += ["-ngl", "999"]
        if "--load-mode" in known:
            words += ["-lm", "none"]
        elif "--no-mmap" in known:
            words += ["--no-mmap"]
    words += ["-fa", "on"] if re.search(r"--flash-attn\b.*\bauto\b", known) or not known else ["-fa"]
    if model is not None:
        more = _context(model, memory)
        words += more.words
        notes += more.notes
    return ServerFlags(words=tuple(words), notes=tuple(notes))


def _help_of(program: Path, reporter: Reporter) -> str:
    """The program's help; empty if it cannot be run here, for example without the libraries of ROCm."""
    try:
        done = run_tool([str(program), "--help"], timeout_s=_HELP_S, check=False, reporter=reporter)
    except PatchkitError:
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def _context(model: Path, memory: Memory | None) -> ServerFlags:
    """``-c`` for the largest context that fits, up to the one that the model was trained with."""
    try:
        header = load_gguf_parts(model)
        shape = shape_of_header(header, model)
    except PatchkitError as error:
        return ServerFlags(words=(), notes=(f"no -c: {error.message}",))
    trained = header.metadata.get(f"{header.metadata.get('general.architecture')}.context_length")
    if not isinstance(trained, int) or isinstance(trained, bool) or trained <= 0:
        return ServerFlags(words=(), notes=("no -c: the model file has no context length",))
    if memory is None:
        return ServerFlags(words=(), notes=("no -c: the memory of the GPU cannot be read here",))
    return fit_context(shape, trained, memory)


def fit_context(shape: ModelShape, trained: int, memory: Memory) -> ServerFlags:
    """The largest context in tokens that fits in ``memory`` with the weights, at most ``trained``."""
    per_token, held = 0.0, 0
    for layer in shape.layers:
        row = 0 if layer.reuses_kv else layer.values_per_row * _F16
        if layer.window is None:
            per_token += row
        else:
            held += row * (layer.window + _BATCH)
        if layer.compressed is not None:
            per_token += row / layer.compressed
    left = int(memory.size * _SHARE) - _BUFFERS - shape.bytes - held
    sizes = (
        f"weights {shape.bytes / _GIB:.1f} GiB, KV cache {per_token / 1024:.4g} KiB per token, "
        f"{memory.size / _GIB:.1f} GiB {memory.what}"
    )
    fits = trained if per_token == 0 and left >= 0 else int(max(0, left) // max(per_token, 1))
    if fits >= trained:
        return ServerFlags(words=("-c", str(trained)), notes=(f"-c is the model's context: {sizes}",))
    if fits < _STEP:
        return ServerFlags(words=(), notes=(f"the model does not fit: {sizes}",))
    context = fits // _STEP * _STEP
    return ServerFlags(
        words=("-c", str(context)),
        notes=(f"-c is the largest context that fits; the model's is {trained}: {sizes}",),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A file that starts the server. ``commands``: what to type to use it."""

    kind: ServiceKind
    path: Path
    text: str
    commands: tuple[str, ...]


def service_path(kind: ServiceKind, prefix: Path, model: Path, environ: Mapping[str, str]) -> Path:
    """Where the service of a model is written.

    Raises:
        UP_REFUSED: another file is there, which patchkit did not write, or a path has control characters.
    """
    _check_words((str(prefix), str(model)))
    if kind == "systemd":
        config = environ.get("XDG_CONFIG_HOME") or str(
            Path(environ.get("HOME", "~")).expanduser() / ".config"
        )
        path = Path(config) / "systemd" / "user" / f"{SERVER}.service"
    else:
        path = prefix / "llama-swap" / f"{_name_of(model)}.yaml"
    if os.path.lexists(path) and not _is_ours(path):
        raise UsageError(
            f"{path} was not written by patchkit",
            code="UP_REFUSED",
            where=Location(path=str(path)),
            why="--service replaces only files of its own",
            hint=_ELSEWHERE,
        )
    return path


def make_service(kind: ServiceKind, path: Path, command: Sequence[str], model: Path) -> Service:
    """The service that runs ``command``. Raises UP_REFUSED for a path with control characters."""
    _check_words(command)
    if kind == "systemd":
        program, *arguments = (word.replace("%", "%%") for word in command)
        words = (program, *(word.replace("$", "$$") for word in arguments))  # the program is not expanded
        text = _UNIT.format(mark=_MARK, command=" ".join(map(_systemd_word, words)))
        commands = ["systemctl --user daemon-reload", f"systemctl --user enable --now {SERVER}"]
    else:
        line = f"{shlex.join(command)} --port ${{PORT}}"
        text = f"{_MARK}\nmodels:\n  {json.dumps(_name_of(model))}:\n    cmd: {json.dumps(line)}\n"
        commands = [shlex.join(["llama-swap", "--config", str(path)])]
    return Service(kind=kind, path=path, text=text, commands=tuple(commands))


def _check_words(words: Sequence[str]) -> None:
    odd = next((word for word in words if not word.isprintable()), None)
    if odd is not None:
        raise UsageError(
            f"cannot write a service for {odd!r}",
            code="UP_REFUSED",
            why="the path has characters that are not printable",
            hint="rename the file or folder",
        )


def write_service(service: Service) -> None:
    """Write the file, in one step. Raises CacheError."""
    with disk_errors(service.path, _DOING, _ELSEWHERE):
        write_whole(service.path, service.text, _DOING, _ELSEWHERE)


_UNIT = """\
{mark}
[Unit]
Description=llama-server with the patches of patchkit

[Service]
ExecStart={command}
Restart=on-failure

[Install]
WantedBy=default.target
"""


def _systemd_word(word: str) -> str:
    """A word of ExecStart, in double quotes if needed (systemd.service(5), "Command lines")."""
    if re.fullmatch(r"[\w./+,:=@%$-]+", word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _name_of(model: Path) -> str:
    return model.name.removesuffix(".gguf")


def _is_ours(path: Path) -> bool:
    try:
        return path.is_file() and path.read_bytes().startswith(_MARK.encode())
    except OSError:
        return False
