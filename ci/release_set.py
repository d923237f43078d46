"""Prints the options of ``apply`` that make what the lock records for one GPU at one pin, one a line.

The lock may have several sets for it: with and without patches that are opt-in. Then one has to be named, so
that nobody publishes upstream itself under our name because the rest was opt-in.

usage: patchkit status --json | python ci/release_set.py --arch gfx1151 --upstream b11549 --with "ID ID"

``--with ""`` is the only set that there is; ``--with none`` the one without opt-in patches.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any


def choose(results: Sequence[dict[str, Any]], arch: str, upstream: str, wanted: str) -> list[str]:
    """The options; raises LookupError with what there is."""
    here = [row for row in results if row["archs"] == [arch] and f"b{row['build']}" == upstream]
    sets = {tuple(sorted(row["with"] or ())): row for row in here}
    told = "; ".join(" ".join(names) or "none" for names in sorted(sets)) or "nothing"
    if not wanted.strip() and len(sets) != 1:
        raise LookupError(f"the lock has for {arch} at {upstream}: {told}. Name one of these sets.")
    names = tuple(sorted(set(wanted.split()) - {"none"})) if wanted.strip() else next(iter(sets))
    if names not in sets:
        raise LookupError(f"the lock has no such set for {arch} at {upstream}, but: {told}")
    return [f"--with={name}" for name in names]


def main(argv: Sequence[str] | None = None) -> int:
    """Read the status from standard input, print the options."""
    parser = argparse.ArgumentParser(description="The options that make what the lock records.")
    parser.add_argument("--arch", required=True)
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--with", dest="wanted", default="")
    options = parser.parse_args(argv)
    try:
        found = choose(json.load(sys.stdin)["results"], options.arch, options.upstream, options.wanted)
    except LookupError as error:
        print(error, file=sys.stderr)
        return 2
    sys.stdout.writelines(f"{option}\n" for option in found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
