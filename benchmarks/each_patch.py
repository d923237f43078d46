"""What each optional patch gains in decode: all of them, and all without one (modelled).

    patchkit apply --arch gfx1151 --trust modelled
    python benchmarks/each_patch.py [--model NAME]... [--cache-dir DIR]

Decodes a token at depth 0 with each model of arch_profiles/models. One build serves all: a patch is turned
off by its run-time switch, with the patches that require it. Writes docs/records/data/each-patch.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from dataclasses import replace
from pathlib import Path

from records import DATA, write_record

from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import find_series_dir
from patchkit.base.workspace import Workspace, default_cache_root
from patchkit.carry.candidate.find import find_candidate
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import load_lock
from patchkit.carry.series.profile import load_profile
from patchkit.carry.series.switches import switches_of, turn_off
from patchkit.carry.upstream.exported import export_pin, export_tree
from patchkit.gpu.modelled.batches import BatchTest, record_batches
from patchkit.gpu.modelled.reduced import reduced, whole_of_shape
from patchkit.gpu.modelled.roofline import peaks_of
from patchkit.gpu.modelled.timeline import time_batches
from patchkit.gpu.modelled.timings import Timings
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.hip import find_toolchain
from patchkit.toolchain.machine import Source

_NAME = "each-patch"
_TOKEN = BatchTest(name="tg", depth=64, tokens=1)  # the middle one of 128


def main() -> None:
    """Time every model with each patch off, and write the record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", default="gfx1151")
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--cache-dir", type=Path)
    asked = parser.parse_args()
    series = find_series_dir(None)
    workspace = Workspace(
        series=series, cache_root=asked.cache_dir or default_cache_root(), reporter=NullReporter()
    )
    profile = load_profile(series.profiles, asked.arch)
    toolchain = find_toolchain(workspace.cache_root, os.environ, workspace.reporter)
    timings = Timings.of(
        workspace, profile, open_compiler(toolchain, workspace.cache_root, workspace.reporter)
    )
    pin = max(load_lock(series.lock).pins, key=lambda each: each.build)
    repository, candidate = find_candidate(workspace, (asked.arch,), pin)
    tree = export_tree(repository, candidate.tip, workspace.cache_root / "trees")
    patches = {each.id: each for each in load_series(series.patches).patches}
    switches = switches_of([patches[name] for name in candidate.ids])
    if switches is None:
        parser.error("the candidate has no switches; make it with --trust modelled")
    base = export_pin(pin, workspace)
    upstream = Source(root=base.root, tree=base.tree, build=pin.build, commit=base.commit[:9])
    patched = Source(root=tree.root, tree=tree.tree, build=pin.build, commit=tree.commit[:9])
    path = DATA / f"{_NAME}.json"
    models = json.loads(path.read_text("utf-8"))["models"] if path.is_file() and asked.model else {}
    with contextlib.ExitStack() as stack:
        before = timings.record(upstream, stack, rocwmma=False)
        all_on = timings.record(patched, stack, rocwmma=False)
        sides = {"upstream": before, "all": all_on}
        sides |= {each.patch: replace(all_on, environment=turn_off([each.patch])) for each in switches.all}
        for shape in sorted((series.profiles / "models").glob("*.toml")):
            if asked.model and shape.stem not in asked.model:
                continue
            whole = whole_of_shape(shape)
            model = reduced(whole)
            file = model.file(workspace.cache_root)
            rates = {}
            for side, recorder in sides.items():
                recorded = record_batches(recorder, file, [_TOKEN], "f16")
                times = time_batches(
                    timings.machine, model, recorded, [_TOKEN], peaks_of(profile), timings.compiler
                )
                rates[side] = round(times[_TOKEN.name].rate, 2)
            models[whole.name] = rates
            print(f"{whole.name}: {rates}", flush=True)
            head = {"arch": asked.arch, "build": pin.build, "patches": list(candidate.ids)}
            write_record(_NAME, f"python benchmarks/{Path(__file__).name}", {**head, "models": models})


if __name__ == "__main__":
    main()
