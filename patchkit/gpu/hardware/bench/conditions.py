"""State of the machine during a measurement: temperatures, clocks, load.

Read by a small shell script through the runner, because the machine may be remote. What the system does not
provide is reported as missing. The figures help to explain a result, but do not change it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from contextlib import suppress

from patchkit.gpu.hardware.runner import Job, Runner

_PATIENCE_S = 20.0

# One "name value" per line. hwmon gives millidegrees; amdgpu's freq1_input is the shader clock in Hz, cpufreq
# is in kHz. Globs without a match stay unexpanded, and are skipped because no such file exists.
_SCRIPT = r"""
for h in /sys/class/hwmon/hwmon*; do
  n=$(cat "$h/name" 2>/dev/null) || continue
  for f in "$h"/temp*_input; do
    [ -r "$f" ] && v=$(cat "$f" 2>/dev/null) && echo "temp_mC:$n:${f##*/} $v"; done
  for f in "$h"/freq1_input; do [ -r "$f" ] && v=$(cat "$f" 2>/dev/null) && echo "clock_Hz:$n $v"; done
  for f in "$h"/power1_average "$h"/power1_input; do
    [ -r "$f" ] && v=$(cat "$f" 2>/dev/null) && echo "power_uW:$n $v"; done
done
for f in /sys/devices/system/cpu/cpu*/cpufreq/scaling_cur_freq; do
  [ -r "$f" ] && v=$(cat "$f" 2>/dev/null) && echo "cpu_kHz:${f%/cpufreq*} $v"; done
for f in /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor; do
  [ -r "$f" ] && echo "governor $(cat "$f")"; done
for f in /sys/class/drm/card*/device/power_dpm_force_performance_level; do
  [ -r "$f" ] && echo "dpm:${f%/device*} $(cat "$f")"; done
[ -r /proc/loadavg ] && echo "load $(cut -d' ' -f1 /proc/loadavg)"
echo "cpus $(getconf _NPROCESSORS_ONLN)"
"""


def read_conditions(runner: Runner, tag: str) -> dict[str, str]:
    """Sample the machine now: values by name in the script's units, words for settings.

    Empty if the system provides nothing.
    """
    done = runner.run(Job(argv=("sh", "-c", _SCRIPT), tag=f"conditions-{tag}", timeout_s=_PATIENCE_S))
    rows = (line.rpartition(" ") for line in done.stdout.decode("utf-8", "replace").splitlines())
    return {name: value for name, _, value in rows if name}


def _numbers(looks: Sequence[Mapping[str, str]], prefix: str) -> list[float]:
    """All figures whose names start with ``prefix``."""
    found = []
    for look in looks:
        for name, value in look.items():
            if name.startswith(prefix):
                with suppress(ValueError):
                    found.append(float(value))
    return found


def summarise(looks: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """Lines for reports: ranges over all samples, and what the machine does not provide."""
    lines = []
    for prefix, what, scale, unit in (
        ("temp_mC:", "temperatures", 1e-3, "degrees C"),
        ("clock_Hz:", "GPU clock", 1e-6, "MHz"),
        ("power_uW:", "power", 1e-6, "W"),
        ("cpu_kHz:", "CPU clock", 1e-3, "MHz"),
    ):
        values = [value * scale for value in _numbers(looks, prefix)]
        if values:
            lines.append(f"{what} {min(values):.0f} to {max(values):.0f} {unit}")
        else:
            lines.append(f"{what}: not available")
    loads, cpus = _numbers(looks, "load"), _numbers(looks, "cpus")
    if loads and cpus:
        lines.append(f"load {min(loads):.1f} to {max(loads):.1f} on {cpus[0]:.0f} CPUs")
        if statistics.median(loads) > cpus[0]:
            lines.append("the load was higher than the number of CPUs: expect wide intervals")
    words = {
        f"{name.partition(':')[0]} {value}"
        for look in looks
        for name, value in look.items()
        if name.startswith(("governor", "dpm"))
    }
    return (*lines, *sorted(words))
