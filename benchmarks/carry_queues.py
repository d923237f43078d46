"""Import foreign patch queues and commits into patchkit, carry them to later trees, and compare plain tools.

The patches are not part of this repository: a TOML file names folders of patch files and bare clones.

    cache = "CACHE"             # a cache folder of patchkit that has the pins of patches/upstreams.toml;
                                # read only: the benchmark writes to --work
    [[clone]]
    name = "fork"
    path = "fork.git"

    [[queue]]                   # patch files of a folder, by name, each on top of the previous ones
    name = "some-queue"
    folder = "queues/some"
    base = "b7827"              # a pin; or "fork:REV", a commit of a clone, and build = its number
    targets = ["b8156", "fork:REV=9246"]    # instead of the next two pins: pins, or commits with their build
    author = { b8156 = "queues/some-later" }    # the author's own version for a target, to judge results
    group = "somebody"          # a file that another queue of the group has is skipped
    guard = "gfx1151"           # as --guard of import; then nothing is carried
    within = "ggml/src/x/"      # only patches that change nothing elsewhere

    [[fork]]                    # a fork's difference to upstream as a series: everything up to a commit as
    name = "some-fork"          # one patch, then its first-parent commits, each on top of the previous ones
    clone = "fork"
    base = "up:REV"             # the upstream commit that it is based on
    build = 9103
    first = "REV"               # the first patch is the difference between base and this commit
    last = "REV"
    path = "ggml/src/x"         # only this folder
    most = 16                   # at most this many commits
    targets = ["up:REV=9246"]

    [[commits]]                 # each commit that changes a path, without merges; also of forks
    name = "history"
    clone = "fork"
    range = "b6900..b8670"      # arguments of git rev-list
    not_in = "fork:b9020"       # for a fork: skip commits whose author time and title are also there
    path = "ggml/src"
    most = 400                  # at most this many, evenly over the range
    every = 10                  # of these, every tenth
    tags = 20                   # number of later tags and pins to carry it to
    before = 20                 # instead: carry it from one of this many earlier tags, in steps of
    step = 10
    tag = "b*"                  # pattern of tags; tags_of = "other": of another clone

    python benchmarks/carry_queues.py queues.toml --work FOLDER --json FILE --markdown FILE

A patch is *fair* if ``git apply`` applies it on its base. patchkit's import must then give the same bytes as
git. Each fair patch is carried: a queue to the next two pins, in order, so that each tool continues from its
own results; a commit to later tags. With ``before``, an upstream commit is imported on the oldest of the
earlier tags that it applies to, and carried from there up to its own parent, where the result must be
upstream's commit.

The results are judged without the tools (carry_judge.py). A patch is *right* if it makes of the author's
own version without this patch the same files as the author's patch. Undecided ones are *disputed* and
listed. After looking at them, give your verdicts with ``--verdicts FILE``: lines of ``KEY right|wrong
WHY``. Results are stored in --work under a digest of everything they depend on, so a second run computes
only what has changed.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from carry_git import Applied, Store, cherry_pick, git_am, git_apply, patch_fuzzy, with_entries
from carry_judge import Judged, Placing, judge
from carry_patchkit import Carried, Change, Goal, Import, Patchkit, code_digest, make_cache, pins
from carry_sets import Item, Sources, Target, commit_items, fork_items, queue_items, without_number
from carry_whole import Whole, import_whole, whole_table

PLAIN = ("git apply", "git am -3", "git cherry-pick", "patch -F3")
MERGING = ("git am -3", "git cherry-pick")
TOOLS = ("patchkit", *PLAIN)
_SAVE_EVERY = 5


@dataclass(slots=True, kw_only=True)
class Placed:
    """One tool on one target. ``original`` and ``made`` are the two ends of diffs in the repository."""

    tool: str
    target: str
    placed: bool
    verdict: str
    why: str
    key: str = ""
    original: tuple[str, str] = ("", "")
    made: tuple[str, str] = ("", "")
    found: str = ""
    seconds: float = 0.0
    faithful: bool = True


@dataclass(slots=True, kw_only=True)
class Row:
    """The results of one item."""

    set: str
    name: str
    fair: bool
    alone: bool
    why: str = ""
    again: str = ""
    imported: Import | None = None
    carried: list[Placed] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        """The row of the JSON file."""
        form = self.imported.form if self.imported is not None else ""
        return asdict(self) | {"form": form}


@dataclass(slots=True, kw_only=True)
class Bench:
    """Everything that a run needs. ``verdicts`` are those of --verdicts, by key."""

    store: Store
    product: Patchkit
    verdicts: Mapping[str, tuple[str, str]]
    limit: int | None
    imports_only: bool

    def kept(
        self, kind: str, parts: Sequence[str], make: Callable[[], dict[str, object]]
    ) -> dict[str, object]:
        """A stored result that does not depend on patchkit's code."""
        name = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        path = self.product.work / kind / f"{name}.json"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(f".{os.getpid()}.draft")
            draft.write_text(json.dumps(make()), "utf-8")
            draft.rename(path)
        found: dict[str, object] = json.loads(path.read_text("utf-8"))
        return found

    def with_tool(self, tool: str, change: Change, target: str, text: tuple[bytes, Sequence[str]]) -> Applied:
        """The result of a plain tool; ``text``: the diff and its files. One that merges needs the trees."""
        if tool not in MERGING:
            return self.plain(tool, text[0], target, text[1])
        trees = [self.store.tree_of(each) for each in (change.base, change.after, target)]
        merge = git_am if tool == "git am -3" else cherry_pick
        found = self.kept(
            "plain", [tool, *trees], lambda: asdict(merge(self.store, change.base, change.after, target))
        )
        commit = found["commit"]
        return Applied(commit=str(commit) if commit else None, why=str(found["why"]))

    def plain(self, tool: str, diff: bytes, target: str, paths: Sequence[str]) -> Applied:
        """The result of a plain tool for a diff."""

        def run() -> dict[str, object]:
            if tool == "patch -F3":
                return asdict(patch_fuzzy(self.store, diff, target, paths))
            return asdict(git_apply(self.store, diff, target, *tool.split()[2:]))

        parts = [tool, hashlib.sha256(diff).hexdigest(), self.store.tree_of(target)]
        found = self.kept("plain", parts, run)
        commit = found["commit"]
        return Applied(commit=str(commit) if commit else None, why=str(found["why"]))

    def judged(self, placing: Placing) -> Judged:
        """The verdict on an applied patch."""
        parts = [placing.base, placing.after, placing.target, placing.result, placing.truth or "", _JUDGE]
        found = self.kept("judged", parts, lambda: asdict(judge(self.store, placing)))
        return Judged(**found)  # type: ignore[arg-type]


_JUDGE = hashlib.sha256((Path(__file__).parent / "carry_judge.py").read_bytes()).hexdigest()


def run_set(bench: Bench, name: str, items: Iterable[Item]) -> Iterator[Row]:
    """Import and carry each item."""
    states: dict[tuple[str, str], str] = {}
    count = 0
    for item in items:
        row = Row(set=name, name=item.name, fair=item.after is not None, alone=item.is_alone, why=item.why)
        row.again = item.again
        if item.after is None or item.again:
            yield row
            continue
        if bench.limit is not None and count >= bench.limit:
            return
        count += 1
        if not item.stacked:
            states.clear()
        row.imported = bench.product.import_one(item.change, _trees(bench.store, item.change))
        if not bench.imports_only:
            row.carried = list(carry(bench, item, row.imported, states, name))
            if item.origin is None and not all(each.faithful for each in row.carried):
                row.imported = replace(row.imported, same=False)
        yield row


def _trees(store: Store, change: Change) -> list[str]:
    return [store.tree_of(change.base), store.tree_of(change.after)]


def carry(
    bench: Bench, item: Item, imported: Import, states: dict[tuple[str, str], str], set_name: str
) -> Iterator[Placed]:
    """Every tool on every target. ``states`` has each tool's latest commit per target."""
    change = item.change
    if item.origin is not None:
        change = item.origin
        imported = bench.product.import_one(change, _trees(bench.store, change))
    elif not item.targets:
        return
    diff = bench.store.diff(change.base, change.after)
    paths = bench.store.paths(change.base, change.after)
    where = [(target, states.get(("patchkit", target.name), target.commit)) for target in item.targets]
    ours = [Carried(found="not imported")] * len(where)
    if imported.is_made:
        goals = [
            Goal(
                commit=on,
                tree=bench.store.tree_of(on),
                touched=bench.store.touched(on, paths),
                paths=frozenset(paths),
                build=target.build,
            )
            for target, on in where
        ]
        ours = bench.product.carry(change, imported, goals)
    for (target, on), found in zip(where, ours, strict=True):
        code = f"{found.code}: " if found.code else ""
        if found.files:
            bench.store.bring(
                Store(bench.product.cache / "upstream.git"), [sha for _, sha in found.files.values()]
            )
        commit = with_entries(bench.store, on, found.files) if found.files else on
        made = Applied(commit=commit if found.files is not None else None, why=f"{code}{found.why}")
        placed = _placed(bench, change, target, on, made, ("patchkit", set_name, item.name))
        placed.found, placed.seconds, placed.faithful = found.found, found.seconds, found.faithful
        if made.commit is not None:
            states["patchkit", target.name] = made.commit
        yield placed
    for tool in PLAIN:
        for target in item.targets:
            on = states.get((tool, target.name), target.commit)
            made = bench.with_tool(tool, change, on, (diff, paths))
            if made.commit is not None:
                states[tool, target.name] = made.commit
            yield _placed(bench, change, target, on, made, (tool, set_name, item.name))


def _placed(
    bench: Bench, change: Change, target: Target, on: str, made: Applied, names: tuple[str, str, str]
) -> Placed:
    tool, set_name, name = names
    has_it = target.truth == target.commit
    if made.commit is None:
        verdict = "there already" if has_it else "refused"
        return Placed(tool=tool, target=target.name, placed=False, verdict=verdict, why=made.why)
    placing = Placing(base=change.base, after=change.after, target=on, result=made.commit, truth=target.truth)
    tree = bench.store.tree_of(made.commit)
    if tree == bench.store.tree_of(on) and (has_it or target.truth is None):
        # The tool took it for a change that upstream has: nothing was applied, and nothing can be lost.
        return Placed(tool=tool, target=target.name, placed=False, verdict="there already", why=made.why)
    judged = bench.judged(placing)
    if target.author and judged.verdict != "wrong":
        judged = _by_author(bench, placing, target, name, judged)
    key = hashlib.sha256(f"{set_name}\0{name}\0{target.name}\0{tree}".encode()).hexdigest()[:16]
    verdict, why = judged.verdict, judged.why
    if key in bench.verdicts and verdict != "right":
        given, because = bench.verdicts[key]
        verdict, why = ("right" if given == "right" else "wrong"), f"by --verdicts: {because} ({why})"
    return Placed(
        tool=tool,
        target=target.name,
        placed=True,
        verdict=verdict,
        why=why,
        key=key,
        original=(change.base, change.after),
        made=(on, made.commit),
    )


def _by_author(bench: Bench, placing: Placing, target: Target, name: str, judged: Judged) -> Judged:
    """The verdict with the author's own version of the patch for this build."""
    before, after = target.author.get(without_number(name), ("", ""))
    if not before:
        return replace(judged, why=f"the author's version does not have it; {judged.why}")
    made = bench.plain("git apply", bench.store.diff(placing.target, placing.result), before, ())
    if made.commit is not None and bench.store.tree_of(made.commit) == bench.store.tree_of(after):
        return Judged(verdict="right", why="the same as the author's version")
    return replace(judged, verdict="disputed", why=f"differs from the author's version; {judged.why}")


def import_table(rows: Sequence[Row]) -> list[str]:
    """The markdown table of imports, one row per set and one for all."""
    heads = (
        "set", "patches", "skipped", "not fair", "fair",
        "byte for byte", "of these structural", "mixed", "text",
        "other bytes", "rejected", "timeout", "CPU s mean", "CPU s max",
    )  # fmt: skip
    lines = _head(heads)
    sets = list(dict.fromkeys(row.set for row in rows))
    for name in [*sets, "all"]:
        own = [row for row in rows if name in (row.set, "all")]
        done = [row.imported for row in own if row.imported is not None]
        forms = Counter(each.form for each in done if each.same)
        late = sum(any(error.code == "OVER_TIME" for error in each.refusals) for each in done)
        took = [each.seconds for each in done]
        numbers = [
            len(own),
            sum(bool(row.again) for row in own),
            sum(not row.fair for row in own),
            len(done),
            sum(each.same for each in done),
            forms["structural"],
            forms["mixed"],
            forms["text"],
            sum(each.is_made and not each.same for each in done),
            sum(not each.is_made for each in done),
            late,
            f"{sum(took) / len(took):.1f}" if took else "-",
            f"{max(took):.1f}" if took else "-",
        ]
        lines.append(f"| {name} | {' | '.join(map(str, numbers))} |")
    return lines


def carry_table(rows: Sequence[Row]) -> list[str]:
    """The markdown table of carried patches: applied by each tool, and of these wrong or disputed."""
    lines = _head(("set", "patches", *TOOLS))
    for name in [*dict.fromkeys(row.set for row in rows if row.carried), "all"]:
        own = [each for row in rows if name in (row.set, "all") for each in row.carried]
        cells = [_cell([each for each in own if each.tool == tool]) for tool in TOOLS]
        lines.append(f"| {name} | {len(own) // len(TOOLS)} | {' | '.join(cells)} |")
    return lines


def conflict_table(rows: Sequence[Row]) -> list[str]:
    """The markdown table of the patches that a tool does not apply, for each target and for all.

    In parentheses: applied patches that are wrong or disputed.
    """
    lines = _head(("set", "target", "patches", *TOOLS))
    found: dict[tuple[str, str], list[Placed]] = defaultdict(list)
    for row in rows:
        for each in row.carried:
            found[row.set, each.target].append(each)
            found["all", ""].append(each)
    for (name, target), own in sorted(found.items(), key=lambda one: one[0][0] == "all"):
        cells = []
        for tool in TOOLS:
            mine = [each for each in own if each.tool == tool]
            lost = sum(not each.placed and each.verdict != "there already" for each in mine)
            notes = _notes(mine, ("wrong", "disputed"))
            cells.append(f"{lost}{notes}")
        lines.append(f"| {name} | {target} | {len(own) // len(TOOLS)} | {' | '.join(cells)} |")
    return lines


def until_table(rows: Sequence[Row]) -> list[str]:
    """The markdown table of how many targets, in order, each tool reaches before a patch is not applied.

    A patch that upstream has already counts as applied. After the number: the first target at which a person
    is needed, and how many patches are not applied there. With ``!``, an earlier target has a wrong result.
    """
    lines = _head(("set", "patches", "targets", *TOOLS))
    for name in dict.fromkeys(row.set for row in rows if len(row.carried) > len(TOOLS)):
        own = [row for row in rows if row.set == name and row.carried]
        targets = list(dict.fromkeys(each.target for row in own for each in row.carried))
        cells = [_until(own, targets, tool) for tool in TOOLS]
        lines.append(f"| {name} | {len(own)} | {len(targets)} | {' | '.join(cells)} |")
    return lines


def _until(rows: Sequence[Row], targets: Sequence[str], tool: str) -> str:
    wrong = ""
    for at, target in enumerate(targets):
        here = [each for row in rows for each in row.carried if (each.tool, each.target) == (tool, target)]
        lost = sum(not each.placed and each.verdict != "there already" for each in here)
        if lost:
            return f"{at} ({target}: {lost}){wrong}"
        wrong = "!" if any(each.verdict == "wrong" for each in here) else wrong
    return f"all{wrong}"


def _cell(own: Sequence[Placed]) -> str:
    notes = _notes(own, ("wrong", "disputed", "there already"))
    return f"{sum(each.placed for each in own)}{notes}"


def _notes(own: Sequence[Placed], verdicts: Sequence[str]) -> str:
    found = Counter(each.verdict for each in own)
    notes = [f"{found[what]} {what}" for what in verdicts if found[what]]
    return f" ({', '.join(notes)})" if notes else ""


def _head(names: Sequence[str]) -> list[str]:
    return [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]


def refusal_lines(rows: Sequence[Row]) -> list[str]:
    """The rejected imports by error code, the most frequent first."""
    by_code: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row.imported is None or row.imported.is_made:
            continue
        first = row.imported.refusals[0]
        more = f" (+{len(row.imported.refusals) - 1})" if len(row.imported.refusals) > 1 else ""
        text = f"{first.message}{'; ' + first.why if first.why else ''}{more}"
        by_code[first.code].append(f"- {row.set}, {row.name}: {_one_line(text)} `{first.where}`")
    lines = []
    for code, found in sorted(by_code.items(), key=lambda each: -len(each[1])):
        lines += [f"\n### {code}: {len(found)}\n", *found]
    return lines


def placing_lines(rows: Sequence[Row], verdict: str) -> list[str]:
    """The applied patches with a verdict, with the key for --verdicts."""
    return [
        f"- `{each.key}` {each.tool} on {each.target}: {row.set}, {row.name}: {_one_line(each.why)}"
        for row in rows
        for each in row.carried
        if each.verdict == verdict
    ]


def refused_placings(rows: Sequence[Row]) -> list[str]:
    """The patches that patchkit did not apply, and the plain tools that did."""
    lines = []
    for row in rows:
        for each in row.carried:
            if each.tool != "patchkit" or each.placed or each.verdict == "there already":
                continue
            others = [o for o in row.carried if o.target == each.target and o.placed]
            tools = ", ".join(f"{o.tool} ({o.verdict})" for o in others) or "no tool"
            where = f"{row.set}, {row.name} on {each.target}"
            lines.append(f"- {where}: {each.found}, {_one_line(each.why)}; applied by {tools}")
    return lines


def unfair_lines(rows: Sequence[Row]) -> list[str]:
    """The patches that git does not apply, with the first line of its error."""
    return [f"- {row.set}, {row.name}: {_one_line(row.why)}" for row in rows if not row.fair]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def report(rows: Sequence[Row], code: str) -> str:
    """All tables and lists, as markdown."""
    parts = [
        (f"Import (patchkit's code {code[:12]})", import_table(rows)),
        ("Carried", carry_table(rows)),
        ("Not applied", conflict_table(rows)),
        ("Targets until a person is needed", until_table(rows)),
        ("Rejected imports", refusal_lines(rows)),
        ("Applied wrongly", placing_lines(rows, "wrong")),
        ("Disputed", placing_lines(rows, "disputed")),
        ("Not applied by patchkit", refused_placings(rows)),
        ("Not fair: not applied by git", unfair_lines(rows)),
    ]
    return (
        "\n".join(line for title, lines in parts for line in (f"\n## {title}\n", *(lines or ["none"]))) + "\n"
    )


def _verdicts(path: Path | None) -> dict[str, tuple[str, str]]:
    found = {}
    for line in path.read_text("utf-8").splitlines() if path is not None else ():
        words = line.split(maxsplit=2)
        if len(words) > 1 and not line.startswith("#"):
            found[words[0]] = (words[1], words[2] if len(words) > 2 else "")  # noqa: PLR2004  # three columns
    return found


def main() -> int:
    """Run the sets; return 1 if patchkit applied a patch wrongly."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("queues", type=Path, help="the TOML file that names clones and queues")
    parser.add_argument("--work", type=Path, required=True, help="folder for series and results")
    parser.add_argument("--json", type=Path, help="write every result to this file")
    parser.add_argument("--markdown", type=Path, help="write tables and lists to this file instead of stdout")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only the sets that match; may be repeated",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="at most N fair patches per set")
    parser.add_argument("--imports-only", action="store_true", help="only import, do not carry")
    parser.add_argument("--verdicts", type=Path, help="file with your verdicts on disputed results")
    parser.add_argument("--whole", action="store_true", help="only import each queue with one command")
    options = parser.parse_args()
    config = tomllib.loads(options.queues.read_text("utf-8"))
    bench, sources = _open(options, config)
    if options.whole:
        return _whole(bench, sources, config, options)
    rows: list[Row] = []
    for kind, make in (("queue", queue_items), ("fork", fork_items), ("commits", commit_items)):
        for entry in config.get(kind, ()):
            if not _is_wanted(entry["name"], options):
                continue
            for row in run_set(bench, entry["name"], make(sources, entry)):
                rows.append(row)
                _print_row(row)
                if len(rows) % _SAVE_EVERY == 0:
                    _save(rows, bench, options)
    _save(rows, bench, options)
    if options.markdown is None:
        print(report(rows, bench.product.code))
    return int(any(each.tool == "patchkit" and each.verdict == "wrong" for r in rows for each in r.carried))


def _is_wanted(name: str, options: argparse.Namespace) -> bool:
    return not options.only or any(fnmatch.fnmatch(name, each) for each in options.only)


def _whole(bench: Bench, sources: Sources, config: Mapping[str, Any], options: argparse.Namespace) -> int:
    """Import the queues that are for a pin, each with one command."""
    found: list[Whole] = []
    for entry in config.get("queue", ()):
        if not _is_wanted(entry["name"], options) or ":" in entry["base"]:
            continue
        found.append(import_whole(bench.product, sources, entry))
        text = "\n".join(whole_table(found)) + "\n"
        print(f"{time.strftime('%H:%M:%S')} {entry['name']}: {found[-1].counts}", file=sys.stderr, flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n", "utf-8")
        if options.markdown is not None:
            options.markdown.write_text(text, "utf-8")
    if options.markdown is None:
        print("\n".join(whole_table(found)))
    return int(any(not each.same for each in found))


def _open(options: argparse.Namespace, config: Mapping[str, Any]) -> tuple[Bench, Sources]:
    data, work = options.queues.resolve().parent, options.work.resolve()
    clones = {entry["name"]: data / entry["path"] for entry in config.get("clone", ())}
    work.mkdir(parents=True, exist_ok=True)
    lent = data / config["cache"]
    objects = [lent / "upstream.git" / "objects", *(clone / "objects" for clone in clones.values())]
    shared = make_cache(work / "cache", lent, objects)
    code = code_digest()
    own = make_cache(work / f"cache-{code[:12]}", lent, [shared / "upstream.git" / "objects", *objects])
    bench = Bench(
        store=Store(shared / "upstream.git"),
        product=Patchkit(work=work, cache=own, code=code),
        verdicts=_verdicts(options.verdicts),
        limit=options.limit,
        imports_only=options.imports_only,
    )
    sources = Sources(
        data=data,
        store=bench.store,
        clones={name: Store(path) for name, path in clones.items()},
        pins=pins(shared),
        apply=lambda tool, diff, commit: bench.plain(tool, diff, commit, ()),
    )
    return bench, sources


def _save(rows: Sequence[Row], bench: Bench, options: argparse.Namespace) -> None:
    if options.json is not None:
        found = {"code": bench.product.code, "rows": [row.as_json() for row in rows]}
        options.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    if options.markdown is not None:
        options.markdown.write_text(report(rows, bench.product.code), "utf-8")


def _print_row(row: Row) -> None:
    if row.imported is None:
        text = f"skipped: {row.again}" if row.again else f"not fair: {row.why}"
    else:
        codes = ", ".join(dict.fromkeys(each.code for each in row.imported.refusals))
        text = f"{row.imported.form} {codes} {row.imported.seconds:.1f} s"
    for tool in TOOLS:
        own = [each.verdict for each in row.carried if each.tool == tool]
        if own:
            text += f"; {tool}: {', '.join(f'{count} {what}' for what, count in Counter(own).items())}"
    print(f"{time.strftime('%H:%M:%S')} {row.set}, {row.name[:50]}: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
