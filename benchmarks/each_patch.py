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
from dataclasses import replace
from pathlib import Path

from records import DATA, write_record
from where_the_time_is import Bench

from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.switches import switches_of, turn_off
from patchkit.gpu.modelled.batches import BatchTest

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
    path = DATA / f"{_NAME}.json"
    models = json.loads(path.read_text("utf-8"))["models"] if path.is_file() and asked.model else {}
    with contextlib.ExitStack() as stack:
        bench = Bench.of(asked.arch, asked.cache_dir, stack)
        candidate, all_on = bench.record_candidate()
        patches = {each.id: each for each in load_series(bench.workspace.series.patches).patches}
        switches = switches_of([patches[name] for name in candidate.ids])
        if switches is None:
            parser.error("the candidate has no switches; make it with --trust modelled")
        sides = {"upstream": bench.record_upstream(), "all": all_on}
        sides |= {each.patch: replace(all_on, environment=turn_off([each.patch])) for each in switches.all}
        for shape in bench.shapes(asked.model):
            name, rates = "", {}
            for side, recorder in sides.items():
                name, times = bench.time(shape, recorder, [_TOKEN])
                rates[side] = round(times[_TOKEN.name].rate, 2)
            models[name] = rates
            print(f"{name}: {rates}", flush=True)
            head = {"arch": asked.arch, "build": bench.pin.build, "patches": list(candidate.ids)}
            write_record(_NAME, f"python benchmarks/{Path(__file__).name}", {**head, "models": models})


if __name__ == "__main__":
    main()
