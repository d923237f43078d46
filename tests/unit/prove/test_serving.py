"""Flags of llama-server for a machine and a model, and service files."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from host_machines import DEVICE, GIB, write_machine
from refusing import refused

from patchkit.base.reporter import NullReporter
from patchkit.gpu.emulated.models import SmallModel
from patchkit.gpu.gguf import tensor_kinds_by_name
from patchkit.gpu.hardware.host.root import HostRoot
from patchkit.gpu.modelled.shape import Layer, ModelShape, Weight
from patchkit.prove.serving import (
    Memory,
    ServiceKind,
    fit_context,
    make_service,
    server_flags,
    service_path,
    usable_memory,
    write_service,
)

NEW = "-fa,   --flash-attn [on|off|auto]  set\n-lm,   --load-mode MODE  model loading mode\n"
OLD = "-fa,   --flash-attn [on|off|auto]  set\n--no-mmap  do not memory-map model\n"


def shape(gib: float, layers: int, window: int | None = None) -> ModelShape:
    """A model of that size whose layers store 4 KiB per token: 8 KV heads of 128 values, K and V, f16."""
    kind = tensor_kinds_by_name()["Q8_0"]
    weight = Weight(name="w", shape=(32, round(gib * GIB / 34)), kind=kind, role="matrix")
    layer = Layer(heads=32, kv_heads=8, head_size_k=128, head_size_v=128, window=window)
    return ModelShape(name="m", source="test", layers=(layer,) * layers, weights=(weight,))


def program(folder: Path, text: str, status: int = 0) -> Path:
    path = folder / "llama-server"
    path.write_text(f"#!/bin/sh\ncat <<'E'\n{text}\nE\nexit {status}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("gib", "total", "words"),
    [
        (4.0, 128, ("-c", "131072")),  # 32 layers: 128 KiB per token, so 131072 tokens are 16 GiB
        (20.0, 32, ("-c", "55296")),  # 0.9 * 32 - 2 - 20 = 6.8 GiB for the cache, in steps of 1024
        (40.0, 32, ()),
    ],
)
def test_the_context_is_the_models_or_what_fits(gib: float, total: int, words: tuple[str, ...]) -> None:
    found = fit_context(shape(gib, 32), 131072, Memory(size=total * GIB, what="of RAM"))
    assert found.words == words


def test_windows_do_not_grow_with_the_context() -> None:
    memory = Memory(size=8 * GIB, what="of RAM")
    assert fit_context(shape(4.0, 32), 131072, memory).words == ("-c", "9216")
    assert fit_context(shape(4.0, 32, window=1024), 131072, memory).words == ("-c", "131072")
    assert fit_context(shape(6.0, 32, window=1024), 131072, memory).words == ()


def test_layers_without_a_cache_of_their_own_need_no_memory() -> None:
    memory = Memory(size=8 * GIB, what="of RAM")
    whole = shape(4.0, 32)
    reusing = replace(
        whole, layers=(*whole.layers[:16], *(replace(each, reuses_kv=True) for each in whole.layers[16:]))
    )
    assert fit_context(whole, 131072, memory).words == ("-c", "9216")
    assert fit_context(reusing, 131072, memory).words == ("-c", "19456")
    compressed = replace(
        whole, layers=tuple(replace(each, window=128, compressed=4) for each in whole.layers)
    )
    assert fit_context(compressed, 131072, memory).words == ("-c", "35840")  # (9830 - 640) * 4


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({}, 100 * GIB),
        ({f"{DEVICE}/mem_info_vram_total": f"{96 * GIB}\n", f"{DEVICE}/mem_info_gtt_total": "1\n"}, 96 * GIB),
        ({"sys/module/ttm/parameters/pages_limit": f"{60 * GIB // 4096}\n"}, 60 * GIB),
        ({f"{DEVICE}/mem_info_vram_total": "many\n"}, None),
    ],
)
def test_memory_of_an_integrated_gpu(tmp_path: Path, changes: dict[str, object], size: int | None) -> None:
    write_machine(tmp_path, changes)
    found = usable_memory("hip", ("gfx1151",), {}, NullReporter(), HostRoot(path=tmp_path))
    assert (found and found.size) == size


def test_memory_of_other_machines(tmp_path: Path) -> None:
    write_machine(tmp_path)
    root = HostRoot(path=tmp_path)
    assert usable_memory("hip", ("gfx1100",), {}, NullReporter(), root) is None
    found = usable_memory("cpu", ("gfx1151",), {}, NullReporter(), root)
    assert found is not None
    assert found.size == 131023872 * 1024


@pytest.mark.parametrize(
    ("answer", "size"),
    [
        ("143771, NVIDIA H200\n81559, NVIDIA H100 80GB HBM3\n", 143771 * 1024**2),
        ("[N/A], NVIDIA GB10\n", None),
        ("", None),
    ],
)
def test_memory_of_an_nvidia_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, size: int | None
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nprintf '%s' {shlex.quote(answer)}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = usable_memory("cuda", ("gfx1151",), {}, NullReporter())
    assert (found and found.size) == size


@pytest.mark.parametrize(
    ("text", "status", "backend", "words"),
    [
        (NEW, 0, "hip", ("-ngl", "999", "-lm", "none", "-fa", "on")),
        (OLD, 0, "hip", ("-ngl", "999", "--no-mmap", "-fa", "on")),
        (NEW, 0, "cpu", ("-fa", "on")),
        ("", 1, "hip", ("-ngl", "999", "-fa", "on")),
    ],
)
def test_flags_are_those_of_the_build(
    tmp_path: Path, text: str, status: int, backend: str, words: tuple[str, ...]
) -> None:
    found = server_flags(program(tmp_path, text, status), None, backend, None, NullReporter())  # type: ignore[arg-type]
    assert found.words == words


def test_a_real_model_gets_its_context(tmp_path: Path) -> None:
    model = tmp_path / "tiny.gguf"
    SmallModel(head_size=64).write(model)
    found = server_flags(
        program(tmp_path, NEW), model, "hip", Memory(size=64 * GIB, what="for gfx1151"), NullReporter()
    )
    assert found.words[-2] == "-c"
    assert int(found.words[-1]) > 0
    model.write_bytes(b"not a model")
    found = server_flags(program(tmp_path, NEW), model, "hip", None, NullReporter())
    assert found.words == ("-ngl", "999", "-lm", "none", "-fa", "on")
    assert found.notes[0].startswith("no -c: ")


HARD = Path('/m/a "b" $HOME 100% \\x.gguf')


def test_words_of_a_systemd_unit(tmp_path: Path) -> None:
    made = make_service("systemd", tmp_path / "s", ("/p $x 1%/llama-server", "-m", str(HARD)), HARD)
    line = next(line for line in made.text.splitlines() if line.startswith("ExecStart="))
    assert line == 'ExecStart="/p $x 1%%/llama-server" -m "/m/a \\"b\\" $$HOME 100%% \\\\x.gguf"'
    with refused("UP_REFUSED"):
        make_service("systemd", tmp_path / "s", ("/p/llama-server", "-m", "/m/a\nExecStart=/bin/sh"), HARD)


def test_an_entry_of_llama_swap_is_valid(tmp_path: Path) -> None:
    made = make_service("llama-swap", tmp_path / "s", ("/p/llama-server", "-m", str(HARD)), HARD)
    *_, name, command = made.text.splitlines()
    assert json.loads(name.strip().removesuffix(":")) == HARD.name.removesuffix(".gguf")
    words = shlex.split(json.loads(command.partition("cmd: ")[2]))
    assert words == ["/p/llama-server", "-m", str(HARD), "--port", "${PORT}"]


@pytest.mark.parametrize("kind", ["systemd", "llama-swap"])
def test_only_our_own_file_is_replaced(tmp_path: Path, kind: ServiceKind) -> None:
    model, environ = Path("/m/tiny.gguf"), {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    path = service_path(kind, tmp_path / "prefix", model, environ)
    assert not path.exists()
    write_service(make_service(kind, path, ("/one/llama-server",), model))
    assert service_path(kind, tmp_path / "prefix", model, environ) == path
    write_service(replace(make_service(kind, path, ("/two/llama-server",), model)))
    assert "/two/llama-server" in path.read_text()
    for text in ("[Service]\n", "", "\n# Written by patchkit up --service."):
        path.write_text(text)
        with refused("UP_REFUSED"):
            service_path(kind, tmp_path / "prefix", model, environ)
        assert path.read_text() == text
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    with refused("UP_REFUSED"):
        service_path(kind, tmp_path / "prefix", model, environ)


@pytest.mark.parametrize("kind", ["systemd", "llama-swap"])
@pytest.mark.parametrize(("prefix", "model"), [("/p\n", "/m/a.gguf"), ("/p", "/m/\x1b[31m.gguf")])
def test_an_odd_path_is_refused_before_anything_is_built(
    tmp_path: Path, kind: ServiceKind, prefix: str, model: str
) -> None:
    with refused("UP_REFUSED"):
        service_path(kind, Path(prefix), Path(model), {"XDG_CONFIG_HOME": str(tmp_path)})
