"""Write the tables of docs/records, of the README and of a guide, and the README's chart, from their data.

    python benchmarks/records.py            # lists the pages that are out of date
    python benchmarks/records.py --write    # updates them

A table is in its page between `<!-- table NAME -->` and `<!-- end -->`. Its data is either in
docs/records/data, written by a benchmark (see `write_record`), or part of patchkit: records of tuning, the
errors of the timing model, and the known faults of upstream's builds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gains import PROMPT, SIDES, TEXT, is_moe, rows_of_all, rows_of_chart
from prompt_chart import PICTURE, draw

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "records"
_ALSO = (ROOT / "README.md", ROOT / "docs" / "guide" / "strix-halo.md")
DATA = PAGES / "data"
_TABLE = re.compile(r"(<!-- table ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_TESTS = (PROMPT, "pp512 @ d16384", TEXT, "tg128 @ d16384", "tg128 x8 @ d0")  # of the table of gains
_NOTICED = 0.5  # percent: repeated runs of the model differ by up to 0.4
_SOME = 2  # fewest models for a mean
_LISTED = 5  # GPUs of a fault that are listed; more are a family, shown by its first and last GPU


def main() -> int:
    """Return 1 if a page is out of date and --write was not given."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    write: bool = parser.parse_args().write
    texts = {page: rendered(page) for page in (*sorted(PAGES.glob("*.md")), *_ALSO)} | {PICTURE: draw()}
    stale = [path for path, text in texts.items() if not path.is_file() or text != path.read_text("utf-8")]
    for path in stale:
        print(path.relative_to(ROOT))
        if write:
            path.write_text(texts[path], "utf-8")
    return int(bool(stale) and not write)


def rendered(page: Path) -> str:
    """The text of a page with its tables updated from their data."""
    return _TABLE.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}", page.read_text("utf-8"))


def write_record(name: str, command: str, found: Mapping[str, object]) -> None:
    """Write a benchmark's results, with the date, the commit and the machine."""
    argv = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
    commit = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    head = {
        "made": datetime.now(UTC).date().isoformat(),
        "commit": commit,
        "machine": f"{os.cpu_count()} cores ({cpu_name()}) with a load of {os.getloadavg()[0]:.0f}",
        "command": command,
    }
    DATA.mkdir(exist_ok=True)
    (DATA / f"{name}.json").write_text(json.dumps({**head, **found}, indent=1) + "\n", "utf-8")


def cpu_name() -> str:
    """The CPU's name in /proc/cpuinfo, or else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0].strip() if names else platform.machine()


def _record(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text("utf-8"))
    return found


def _source_line(record: Mapping[str, Any]) -> str:
    return f"{record['made']}, commit {record['commit']}, {record['machine']}: `{record['command']}`."


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


# The series on the known trees.


def _sweep() -> str:
    record = _record("sweep")
    classes: dict[str, dict[str, str]] = record["classes"]
    alike: dict[tuple[str, ...], list[str]] = {}
    for patch in next(iter(classes.values())):
        alike.setdefault(tuple(classes[build][patch] for build in classes), []).append(patch)
    rows = (
        [", ".join(f"`{name}`" for name in names), *(_short(found) for found in column)]
        for column, names in alike.items()
    )
    return f"{_table(['patch', *classes], rows)}\n\n{_source_line(record)}"


def _short(found: str) -> str:
    return {"out of range": "-", "clean": "in"}.get(found, found)


def _sweep_counts() -> str:
    record = _record("sweep")
    counts: dict[str, int] = {}
    for patches in record["classes"].values():
        for found in patches.values():
            counts[found] = counts.get(found, 0) + 1
    by_count = sorted(counts.items(), key=lambda one: -one[1])
    rows = [
        ["trees", record["trees"]],
        ["patches of the series", len(next(iter(record["classes"].values())))],
        *([name, count] for name, count in by_count),
        ["CPU time of all processes", f"{record['sweep_processor_s']} s"],
        ["wall time", f"{record['sweep_wall_s']} s"],
        ["peak memory of all processes together", f"{record['sweep_peak_mb']:.0f} MB"],
    ]
    return f"{_table(['patchkit sweep', ''], rows)}\n\n{_source_line(record)}"


def _plain_tools() -> str:
    record = _record("sweep")
    series: list[str] = record["series"]
    placed = {
        int(build): sum(found[name] in {"clean", "moved"} for name in series)
        for build, found in record["classes"].items()
    }
    tools = [(one["name"], {int(k): v for k, v in one["taken"].items()}) for one in record["tools"]]
    rows = [
        [
            f"`{name}`" if name != "patchkit" else name,
            sum(count == len(series) for count in taken.values()),
            sum(taken.values()),
            sum(count for build, count in taken.items() if not placed[build]),
        ]
        for name, taken in [*sorted(tools, key=lambda one: sum(one[1].values())), ("patchkit", placed)]
    ]
    head = [
        "tool",
        "trees where the whole series applies",
        f"patches applied, of {len(series) * record['trees']}",
        "of these on trees where patchkit applies none",
    ]
    return f"{_table(head, rows)}\n\n{_source_line(record)}"


# Data that patchkit ships.


def _timing_errors() -> str:
    """The errors in arch_profiles/timing, which gate speed, tune and model use."""
    rows = []
    for path in sorted((ROOT / "arch_profiles" / "timing").glob("*.toml")):
        timing = tomllib.loads(path.read_text("utf-8"))
        whole = [error | {"kind": f"whole model: {error['kind']}"} for error in timing.get("rate_error", [])]
        for error in [*timing.get("error", []), *whole]:
            sizes = error.get("head_sizes")
            rows.append(
                [
                    path.stem,
                    error["kind"] + (f", head size {', '.join(map(str, sizes))}" if sizes else ""),
                    error["points"],
                    _percent(error["median"]),
                    _percent(error["p90"]),
                    error.get("ratios", ""),
                    _percent(error.get("ratio_median")),
                    _percent(error.get("ratio_p90")),
                ]
            )
    ratios = ["ratios", "median", "90th percentile"]
    return _table(["GPU", "kernel", "times", "median error", "90th percentile", *ratios], rows)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share * 100:.1f} %"


def _known_faults() -> str:
    rows = []
    for fault in tomllib.loads((ROOT / "patches" / "series.toml").read_text("utf-8"))["fault"]:
        builds = fault["builds"]
        until = f"{builds['first']} to {builds['last']}" if "last" in builds else f"from {builds['first']}"
        archs: list[str] = fault["archs"]
        gpus = ", ".join(archs) if len(archs) <= _LISTED else f"{archs[0]} to {archs[-1]}"
        fixed_by = f"`{fault['patch']}`" if "patch" in fault else "none"
        row = [f"`{fault['id']}`", until, gpus, fault["title"], fault["does"], fault["seen_on"], fixed_by]
        rows.append(row)
    return _table(["fault", "builds", "GPUs", "what is wrong", "effect", "seen on", "fixed by"], rows)


# Upstream's operations on the emulated GPU.


def _operations() -> str:
    record = _record("emulated-operations")
    builds: list[str] = list(record["builds"])
    found = {build: {one["name"]: one for one in record["builds"][build]} for build in builds}
    names = sorted({name for build in builds for name in found[build]})
    rows = [[name, *(_cases(found[build].get(name)) for build in builds)] for name in names]
    sums = [
        _cases({key: sum(one[key] for one in found[build].values()) for key in ("supported", "run", "right")})
        for build in builds
    ]
    total = [f"all {len(names)}", *sums]
    return _table(["operation", *(f"build {build}" for build in builds)], [total, *rows])


def _cases(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return ""
    text = str(one["supported"])
    if one["run"] < one["supported"]:
        text += f", {one['run']} run"
    if one["right"] < one["run"]:
        text += f", **{one['right']} right**"
    return text


def _operations_wrong() -> str:
    record = _record("emulated-operations")
    rows = [
        [build, f"`{wrong['cases']}`".replace("|", "\\|"), wrong["count"], wrong["why"]]
        for build, wrongs in record["wrong"].items()
        for wrong in wrongs
    ]
    return _table(["build", "wrong", "cases", "cause"], rows)


# Mutants of conditions in the patches' host code.

_FOUND = ("crash", "far", "bits", "emulated")
_BY_OTHERS = ("isolation", "used")
_EQUIVALENT = ("refuses", "implied", "same")
_LEFT = ("gap", "elsewhere")


def _mutant_counts() -> tuple[dict[str, Any], dict[str, dict[str, int]]]:
    """The record, and for each patch how many mutants there are of each kind."""
    record = _record("mutation-conditions")
    kinds = {number: one["kind"] for one in record["judged"] for number in one["mutants"]}
    counts: dict[str, dict[str, int]] = {}
    for one in record["mutants"]:
        of_patch = counts.setdefault(one["patch"], {})
        kind = "emulated" if "emulated" in one else kinds.get(one["number"], one["result"])
        of_patch[kind] = of_patch.get(kind, 0) + 1
    total: dict[str, int] = {}
    for of_patch in counts.values():
        for kind, count in of_patch.items():
            total[kind] = total.get(kind, 0) + count
    return record, {**dict(sorted(counts.items())), "all": total}


def _condition_mutants() -> str:
    record, counts = _mutant_counts()
    rows = []
    for patch, of in counts.items():
        every = sum(of.values())
        needed = every - sum(of.get(kind, 0) for kind in _EQUIVALENT)
        by_graphs = sum(of.get(kind, 0) for kind in _FOUND)
        found = by_graphs + sum(of.get(kind, 0) for kind in _BY_OTHERS)
        cells = [str(of.get(kind, "")) for kind in (*_FOUND, *_BY_OTHERS, *_EQUIVALENT, *_LEFT)]
        name = patch if patch == "all" else f"`{patch}`"
        rows.append([name, every, *cells, f"{by_graphs} of {needed}", f"{found / needed:.0%}"])
    head = [*_FOUND, *_BY_OTHERS, *_EQUIVALENT, *_LEFT]
    table = _table(["patch", "mutants", *head, "found by graphs", "score"], rows)
    return f"{table}\n\n{_source_line(record)}"


def _condition_mutants_left() -> str:
    record = _record("mutation-conditions")
    named = {one["number"]: one for one in record["mutants"]}
    rows = []
    left = [one for one in record["judged"] if one["kind"] in _LEFT]
    for one in sorted(left, key=lambda one: _LEFT.index(one["kind"])):
        places: dict[str, list[str]] = {}
        mutants = [named[number] for number in one["mutants"] if "emulated" not in named[number]]
        for mutant in mutants:
            where = f"{mutant['line']} ({mutant['number']})"
            places.setdefault(mutant["file"].rpartition("/")[2], []).append(where)
        if mutants:
            where = "; ".join(f"`{file}` {', '.join(lines)}" for file, lines in places.items())
            rows.append([one["kind"], len(mutants), where, _plain(one["why"])])
    return _table(["kind", "mutants", "line (number)", "what would show it"], rows)


# Cost of the checks of the emulated GPU.


def _sanitize_cost() -> str:
    record = _record("sanitize-cost")
    mean: dict[str, float] = record["mean"]
    modes = sorted(mean, key=lambda mode: mode != "all")  # all checks first, then each alone
    costs = sorted(record["costs"], key=lambda cost: cost["times"]["all"])
    rows = [[f"`{cost['kernel']}`", *(f"{cost['times'][mode]:.1f}" for mode in modes)] for cost in costs]
    rows.append(["mean (geometric)", *(f"{mean[mode]:.1f}" for mode in modes)])
    return f"{_table(['kernel', *modes], rows)}\n\n{_source_line(record)}"


# Where a model's time is spent, by the launches of upstream's host code.

_SHOWN = 10  # kernels of a test


def _where() -> str:
    record = _record("where-the-time-is")
    parts = [_source_line(record)]
    for model, tests in record["models"].items():
        parts.append(f"### {model}")
        rows = []
        for test, one in tests.items():
            most = [
                f"`{kernel['kernel']}` {kernel['above_us'] / one['us']:.1%}"
                for kernel in one["most"][:_SHOWN]
            ]
            share = one["bound_us"] / one["us"]
            rows.append([test, f"{one['rate']:.1f}", f"{share:.0%}", one["launches"], ", ".join(most)])
        parts.append(_table(["test", "t/s", "of the bound", "launches", "above the bound"], rows))
    return "\n\n".join(parts)


def _with_patches() -> str:
    record = _record("with-patches")
    rows = []
    for model, tests in record["models"].items():
        for test, sides in tests.items():
            after = [sides.get(side) for side in SIDES]
            speeds = [
                "" if one is None else f"{one['rate']:.0f} ({one['share']:.0%})"
                for one in (sides["upstream"], *after)
            ]
            launches = [str(one["launches"]) for one in (sides["upstream"], *after) if one is not None]
            rows.append([model, test, *speeds, " to ".join(launches)])
    head = ["model", "test", "upstream, t/s (of the bound)", *SIDES, "launches"]
    patches = "\n\n".join(
        f"{side.capitalize()}: {', '.join(f'`{name}`' for name in names)}."
        for side, names in record["patches"].items()
    )
    return f"{_source_line(record)}\n\n{patches}\n\n{_table(head, rows)}"


def _with_patches_means() -> str:
    """Means of the shares, and geometric means of the gains, of dense and of MoE models."""
    models: Mapping[str, Mapping[str, Any]] = _record("with-patches")["models"]
    rows = []
    for test in dict.fromkeys(test for tests in models.values() for test in tests):
        for kind in ("dense", "MoE"):
            found = [
                tests[test]
                for model, tests in models.items()
                if "optional" in tests.get(test, {}) and is_moe(model) == (kind == "MoE")
            ]
            if len(found) < _SOME:
                continue
            shares = [
                statistics.mean(one[side]["share"] for one in found) for side in ("upstream", "optional")
            ]
            gains = [one["optional"]["rate"] / one["upstream"]["rate"] for one in found]
            rows.append(
                [
                    test,
                    f"{kind}, {len(found)}",
                    *(f"{share:.0%}" for share in shares),
                    f"{statistics.geometric_mean(gains) - 1:+.1%}",
                    f"{min(gains) - 1:+.1%}",
                ]
            )
    head = ["test", "models", "of the bound", "with all patches", "gain, geometric mean", "smallest gain"]
    return _table(head, rows)


def _gains() -> str:
    head = ["model", "test", "upstream, measured", "modelled, t/s", "default patches", "with optional ones"]
    return _table([*head, "expected with these"], rows_of_all(_TESTS))


def _gains_short() -> str:
    head = ["model", "prompts, default patches", "prompts, with optional ones", "expected with these"]
    return _table([*head, "token generation, with optional ones"], rows_of_chart())


def _each_patch() -> str:
    """By how much decode is slower without a patch (and without those that require it), in percent."""
    record = _record("each-patch")
    models: Mapping[str, Mapping[str, float]] = record["models"]
    rows = [
        ["all of them", *(f"{rates['all'] / rates['upstream'] - 1:+.1%}" for rates in models.values())],
        *(
            [f"`{patch}`", *(_percent_of(rates[patch], rates["all"]) for rates in models.values())]
            for patch in record["patches"]
            if all(patch in rates for rates in models.values())
        ),
    ]
    return f"{_table(['without', *models], rows)}\n\n{_source_line(record)}"


def _percent_of(without: float, with_all: float) -> str:
    lost = round(100 * (1 - without / with_all), 1)
    return f"{lost:.1f} %" if lost >= _NOTICED else ""


def _where_in_order() -> str:
    """Kernels by their share of the time above the bound, mean over the models, prefill and decode apart."""
    models: Mapping[str, Mapping[str, Any]] = _record("where-the-time-is")["models"]
    sums: dict[str, dict[str, float]] = {"prefill": {}, "decode": {}}
    for kind, prefix in (("prefill", "pp"), ("decode", "tg")):
        tests = [one for each in models.values() for test, one in each.items() if test.startswith(prefix)]
        for one in tests:
            for kernel in one["most"]:
                share = kernel["above_us"] / one["us"] / len(tests)
                sums[kind][kernel["kernel"]] = sums[kind].get(kernel["kernel"], 0.0) + share
    rows = [
        [kind, place, f"`{name}`", f"{share:.1%}"]
        for kind, found in sums.items()
        for place, (name, share) in enumerate(
            sorted(found.items(), key=lambda item: -item[1])[:_SHOWN], start=1
        )
    ]
    return _table(["test", "place", "kernel", "of the time, above the bound"], rows)


# Foreign programs on the emulated GPU.

# In the order of the table. The first two count as good, the next two are out of scope.
_VERDICTS = (
    "right",
    "own fault",
    "lacks data",
    "needs another library",
    "does not build",
    "refused",
    "time limit",
    "wrong",
)
_GOOD, _OUTSIDE = _VERDICTS[:2], _VERDICTS[2:4]


def _foreign(name: str) -> Callable[[], str]:
    def table() -> str:
        record = _record(f"foreign-programs-{name}")
        verdicts: dict[str, dict[str, Any]] = record["verdicts"]
        rows = []
        for verdict in _VERDICTS:
            chosen = {key: one for key, one in verdicts.items() if one["verdict"] == verdict}
            if chosen:
                rows.append([verdict, len(chosen), _foreign_names(chosen)])
        within = [one for one in verdicts.values() if one["verdict"] not in _OUTSIDE]
        good = sum(one["verdict"] in _GOOD for one in within)
        smaller = sum(one.get("smaller", False) for one in within)
        share = f"{good / max(len(within), 1):.0%}"
        if smaller:
            share += f"; {smaller} more with smaller arguments, together {(good + smaller) / len(within):.0%}"
        summary = (
            f"Of the {len(within)} programs that have their data and need no other library, {good} are right "
            f"or show only their own known fault, unchanged ({share}). {len(verdicts)} of "
            f"{record['programs']} programs of commit {record['checkout']} were tried, on {record['arch']}. "
            f"{record['of_older_code']} verdicts are from older code of patchkit and were not run again."
        )
        return f"{_table(['verdict', 'programs', 'which'], rows)}\n\n{summary}\n\n{_source_line(record)}"

    return table


def _foreign_names(chosen: Mapping[str, Mapping[str, Any]]) -> str:
    """Names grouped by reason, the most frequent first."""
    by_reason: dict[str, list[str]] = {}
    for name, one in chosen.items():
        found = ", ".join(f"{count} {kind}" for kind, count in one["findings"].items())
        by_reason.setdefault(one["why"], []).append(f"{name} ({found})" if found else name)
    grouped = sorted(by_reason.items(), key=lambda one: (-len(one[1]), one[0]))
    reasons = [f"*{_plain(why)}*: {', '.join(names)}" if why else ", ".join(names) for why, names in grouped]
    return "; ".join(reasons)


def _plain(text: str) -> str:
    """A program's output, escaped for Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>#|~$])", r"\\\1", text)


# Faults planted in device code.


def _device_mutants() -> str:
    record = _record("device-mutants")
    counts: dict[str, dict[str, dict[str, int]]] = record["counts"]
    shown = {
        "bits": "other bits",
        "far": "too far or not finite",
        "ends": "crash or no end",
        "check": "a check",
        "backend-ops": "`backend-ops`",
        "sanitize": "`sanitize`",
        "equivalent": "equivalent",
        "gap": "gap",
        "not judged": "not judged",
    }
    shown = {
        name: head
        for name, head in shown.items()
        if any(name in found for kinds in counts.values() for found in kinds.values())
    }
    rows: list[list[object]] = []
    for patch, kinds in counts.items():
        for kind, found in kinds.items():
            rows.append([f"`{patch}`", kind, sum(found.values()), *(found.get(name, 0) for name in shown)])
    total = [sum(int(str(row[n])) for row in rows) for n in range(2, 3 + len(shown))]
    found_ones, equivalent = record["found"], record["equivalent"]
    score = (
        f"{found_ones} of {record['mutants']} mutants were found, {found_ones / record['mutants']:.1%}; "
        f"without the {equivalent} equivalent ones {found_ones / (record['mutants'] - equivalent):.1%}. "
        f"A mutant took {record['seconds']} s on average."
    )
    table = _table(["patch", "kind", "mutants", *shown.values()], [*rows, ["all", "", *total]])
    return f"{score}\n\n{table}\n\n{_source_line(record)}"


def _device_survivors() -> str:
    record = _record("device-mutants")
    rows = [
        [
            f"`{one['place']}`",
            f"`{_escaped(one['code'])}`",
            f"`{_escaped(one['becomes'])}`",
            one["judgement"],
            one["why"],
        ]
        for one in record["survivors"]
    ]
    return _table(["place", "code", "becomes", "judgement", "why"], rows)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


TABLES: Mapping[str, Callable[[], str]] = {
    "device-mutants": _device_mutants,
    "device-survivors": _device_survivors,
    "condition-mutants": _condition_mutants,
    "condition-mutants-left": _condition_mutants_left,
    "foreign-hecbench": _foreign("hecbench"),
    "foreign-rocm-examples": _foreign("rocm-examples"),
    "gains": _gains,
    "each-patch": _each_patch,
    "gains-short": _gains_short,
    "known-faults": _known_faults,
    "operations": _operations,
    "operations-wrong": _operations_wrong,
    "plain-tools": _plain_tools,
    "sanitize-cost": _sanitize_cost,
    "sweep": _sweep,
    "sweep-counts": _sweep_counts,
    "timing-errors": _timing_errors,
    "where-in-order": _where_in_order,
    "where-the-time-is": _where,
    "with-patches": _with_patches,
    "with-patches-means": _with_patches_means,
}

if __name__ == "__main__":
    sys.exit(main())
