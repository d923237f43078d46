"""Prints the options of ``apply`` that give the result in the lock for one GPU at one pin, one per line.

The lock may have several results for it, with different opt-in patches. Then one must be named. Otherwise a
release could be upstream without patches, because all patches are opt-in.

usage: patchkit status --json | python ci/release_set.py --arch gfx1151 --upstream b11549 --with "ID ID"

``--with ""`` selects the only result; ``--with none`` the one without opt-in patches.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any


def choose(results: Sequence[dict[str, Any]], arch: str, upstream: str, wanted: str) -> list[str]:
    """The options; raises LookupError, which lists the results."""
    here = [row for row in results if row["archs"] == [arch] and f"b{row['build']}" == upstream]
    sets = {tuple(sorted(row["with"] or ())): row for row in here}
    known = "; ".join(" ".join(names) or "none" for names in sorted(sets))
    if not sets:
        raise LookupError(f"the lock has no result for {arch} at {upstream}")
    if not wanted.strip() and len(sets) != 1:
        raise LookupError(
            f"the lock has several results for {arch} at {upstream}; name its opt-in patches: {known}"
        )
    names = tuple(sorted(set(wanted.split()) - {"none"})) if wanted.strip() else next(iter(sets))
    if names not in sets:
        raise LookupError(
            f"the lock has no result with these opt-in patches for {arch} at {upstream}; it has: {known}"
        )
    return [f"--with={name}" for name in names]


def main(argv: Sequence[str] | None = None) -> int:
    """Read the status from standard input, print the options."""
    parser = argparse.ArgumentParser(description="Print the options that give a result in the lock.")
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
