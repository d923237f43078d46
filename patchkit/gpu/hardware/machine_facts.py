"""Facts about a measuring machine for evidence files: names of parts and versions, nothing about its user.

One small shell script reads them on the machine that runs the programs, which may be a remote one. It does
not read host names, serial numbers, user names or paths.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from patchkit.base.digests import sha256
from patchkit.base.evidence import MeasuredMachine, Range
from patchkit.base.files import disk_errors, write_whole
from patchkit.gpu.hardware.gpus import gfx_name
from patchkit.gpu.hardware.runner import Job, Runner

_PATIENCE_S = 30.0

MACHINE_FILE = "machine.json"
"""Name of the file in a folder of measurements that describes the machine."""

# One "name value" per line. Only the numbers of the kernel version are kept, as its suffix may be personal.
_SCRIPT = r"""
echo "kernel $(uname -r)"
echo "cpu $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
[ -r /sys/module/amdgpu/version ] && echo "amdgpu $(cat /sys/module/amdgpu/version)"
for f in "${ROCM_PATH:-/opt/rocm}/.info/version" /opt/rocm/.info/version; do
  [ -r "$f" ] && echo "rocm $(cat "$f")" && break; done
for f in /sys/class/kfd/kfd/topology/nodes/*/properties; do
  [ -r "$f" ] && echo "kfd $(grep -E '^(gfx_target_version|device_id) ' "$f" | cut -d' ' -f2 | tr '\n' ' ')"
done
for f in /sys/class/drm/card*/device/product_name; do [ -r "$f" ] && echo "product $(cat "$f")"; done
command -v nvidia-smi >/dev/null &&
  nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader | sed 's/^/nvidia /'
exit 0
"""

_NUMBERS = re.compile(r"\d{1,6}(\.\d{1,6}){0,4}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9 ()+,.:_-]+")


def read_machine(
    runner: Runner,
    token: str,
    *,
    arch: str,
    backend: Literal["hip", "cuda", "cpu"],
    compiler: str | None = None,
    tag: str = "",
) -> MeasuredMachine:
    """Read the facts on the runner's machine; ``compiler`` built the programs (such as ``clang 22.1.8``).

    If there are several GPUs, the one with ``arch`` is used. Clocks, temperature and power come from the
    rounds.
    """
    job = Job(argv=("sh", "-c", _SCRIPT), tag=f"machine-{tag}", timeout_s=_PATIENCE_S)
    return parse_machine(
        runner.run(job).stdout.decode("utf-8", "replace"),
        token,
        arch=arch,
        backend=backend,
        compiler=compiler,
    )


def parse_machine(
    text: str,
    token: str,
    *,
    arch: str,
    backend: Literal["hip", "cuda", "cpu"],
    compiler: str | None = None,
) -> MeasuredMachine:
    """The machine, parsed from the script's output."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if value.strip():
            found.setdefault(name, []).append(value.strip())

    def first(name: str) -> str | None:
        return next(iter(found.get(name, ())), None)

    cpu = plain_name(first("cpu"))
    gpu, driver, rocm = cpu, None, None
    if backend == "hip":
        ids = [row.split() for row in found.get("kfd", ())]
        mine = [row[1] for row in ids if len(row) > 1 and row[0].isdigit() and gfx_name(int(row[0])) == arch]
        by_id = f"AMD {int(mine[0]):04x}" if mine and mine[0].isdigit() else f"AMD {arch}"
        gpu = plain_name(first("product")) or by_id
        driver, rocm = version_of(first("amdgpu")), version_of(first("rocm"))
    elif backend == "cuda":
        name, number, capability = [*(first("nvidia") or "").split(", "), "", ""][:3]
        gpu, driver = plain_name(name) or "NVIDIA", version_of(number)
        arch = f"sm_{capability.replace('.', '')}" if capability else arch
    return MeasuredMachine(
        token=token,
        arch=arch,
        gpu=gpu or "unknown",
        backend=backend,
        cpu=cpu,
        kernel=version_of(first("kernel")),
        driver=driver,
        rocm=rocm,
        compiler=tool_of(compiler),
        clock_mhz=None,
        temperature_c=None,
        power_w=None,
    )


def plain_name(text: str | None) -> str | None:
    """A part's name, with only letters, digits and common punctuation; None if nothing is left."""
    plain = " ".join(_NOT_IN_NAMES.sub(" ", text or "").split())[:100].strip()
    return plain if plain and plain[0].isalnum() else None


def version_of(text: str | None) -> str | None:
    """The leading numbers of a version, without any suffix."""
    found = _NUMBERS.match((text or "").strip())
    return found[0] if found is not None else None


def tool_of(text: str | None) -> str | None:
    """A compiler's name and version, such as ``clang 22.1.8``; None if the text has another form."""
    found = re.search(r"([A-Za-z]{1,20})(?: version)? (\d{1,6}(?:\.\d{1,6}){0,4})", text or "")
    return f"{found[1]} {found[2]}" if found is not None else None


def machine_token(cache_root: Path, runner: Runner) -> str:
    """32 random hex digits that identify a runner's machine, generated once and kept in the cache folder.

    Deleting the cache makes it a new machine. Raises CacheError.
    """
    name = sha256(runner.name)[:16]
    path = cache_root / "machines" / name
    with disk_errors(path, "reading the machine's token"):
        known = path.read_text("ascii", "replace").strip() if path.is_file() else ""
    if re.fullmatch(r"[0-9a-f]{32}", known):
        return known
    token = secrets.token_hex(16)
    write_whole(path, token, "writing the machine's token")
    return token


def ranges_of(looks: Sequence[Mapping[str, str]]) -> dict[str, Range | None]:
    """Ranges of GPU clock, temperature and power over all samples, by the names of evidence files."""
    found: dict[str, Range | None] = {}
    for field, prefix, scale in (
        ("clock_mhz", "clock_Hz:amdgpu", 1e-6),
        ("temperature_c", "temp_mC:amdgpu", 1e-3),
        ("power_w", "power_uW:amdgpu", 1e-6),
    ):
        values = [
            float(value) * scale
            for look in looks
            for name, value in look.items()
            if name.startswith(prefix) and re.fullmatch(r"\d{1,15}", value)
        ]
        found[field] = Range(low=round(min(values), 1), high=round(max(values), 1)) if values else None
    return found
