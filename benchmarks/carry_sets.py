"""The patches for carry_queues.py: files of a queue, or commits of upstream's history or of a fork."""

from __future__ import annotations

import fnmatch
import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from carry_git import Applied, Store, git_apply
from carry_patchkit import Change

_NEXT = 2  # pins that a queue is carried to
_NEAR = 600  # newest commits of a fork that are searched for an upstream commit
_LANDED = 2  # tags after a commit, on which it must not be applied again

Entry = Mapping[str, object]
"""A table of the TOML file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A tree to carry to; ``truth`` is the commit that must result, if upstream has one.

    ``author``: the commits before and after each patch of the author's own version for this build, by name.
    """

    name: str
    commit: str
    build: int
    truth: str | None = None
    author: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One patch of a set. If ``after`` is None it is not fair, and ``why`` is git's first line.

    ``again``: why the patch is skipped, usually the queue that has the same file. ``origin``: the change to
    carry, if that starts from another commit than the import. ``stacked``: the next patch depends on it.
    """

    name: str
    base: str
    after: str | None
    build: int
    guard: str = "none"
    is_alone: bool = True
    why: str = ""
    again: str = ""
    targets: tuple[Target, ...] = ()
    origin: Change | None = None
    stacked: bool = False

    @property
    def change(self) -> Change:
        """The change to import."""
        return Change(
            title=self.name, build=self.build, base=self.base, after=self.after or "", guard=self.guard
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """A tag of a build."""

    name: str
    build: int
    commit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The sources of patches. ``apply`` applies a diff to a commit with a plain tool, and stores results."""

    data: Path
    store: Store
    clones: Mapping[str, Store]
    pins: Mapping[int, str]
    apply: Callable[[str, bytes, str], Applied]
    seen: dict[tuple[str, str], str] = field(default_factory=dict)

    def base(self, entry: Entry) -> tuple[str, int]:
        """The base commit of a queue, and its build."""
        clone, colon, revision = str(entry["base"]).partition(":")
        if not colon:
            build = int(clone.removeprefix("b"))
            return self.pins[build], build
        return _found(self.clones[clone], revision), int(str(entry["build"]))

    def targets(self, entry: Entry, build: int) -> tuple[Target, ...]:
        """The targets that a set names, or the next pins after its build."""
        named = entry.get("targets")
        if not isinstance(named, list):
            later = sorted(each for each in self.pins if each > build)[:_NEXT]
            return tuple(Target(name=f"b{each}", commit=self.pins[each], build=each) for each in later)
        return tuple(map(self._target, map(str, named)))

    def of_author(self, entry: Entry, target: Target) -> Target:
        """The target with the author's own version of a queue for it, if the TOML file names one."""
        folders = entry.get("author")
        tip, found = target.commit, dict[str, tuple[str, str]]()
        folder = folders.get(target.name) if isinstance(folders, Mapping) else None
        for path in sorted((self.data / str(folder)).glob("*.patch")) if folder is not None else ():
            made = self.apply("git apply", path.read_bytes(), tip)
            if made.commit is not None:
                found[without_number(path.stem)] = tip, made.commit
                tip = made.commit
        return replace(target, author=found)

    def _target(self, name: str) -> Target:
        clone, colon, rest = name.partition(":")
        if not colon:
            number = int(name.removeprefix("b"))
            return Target(name=name, commit=self.pins[number], build=number)
        revision, _, build = rest.partition("=")
        commit = _found(self.clones[clone], revision)
        return Target(name=f"b{build}", commit=commit, build=int(build))


def without_number(name: str) -> str:
    """The name of a patch file without its number, which differs between versions of a queue."""
    return name.lstrip("0123456789").lstrip("-")


def queue_items(sources: Sources, entry: Entry) -> Iterator[Item]:
    """The patch files of a folder, each on top of the fair ones before it."""
    base, build = sources.base(entry)
    name = str(entry["name"])
    group, guard = str(entry.get("group", name)), str(entry.get("guard", "none"))
    # A guarded patch differs from what a plain tool gives, so it is only imported.
    targets = sources.targets(entry, build) if guard == "none" else ()
    targets = tuple(sources.of_author(entry, target) for target in targets)
    tip = base
    for path in sorted((sources.data / str(entry["folder"])).glob("*.patch")):
        data = path.read_bytes()
        made = sources.apply("git apply", data, tip)
        within = str(entry.get("within", ""))
        paths = sources.store.paths(tip, made.commit) if made.commit is not None and within else ()
        outside = f"not only in {within}" if any(not each.startswith(within) for each in paths) else ""
        digest = (group, hashlib.sha256(data).hexdigest())
        yield Item(
            name=path.stem,
            base=tip,
            after=made.commit,
            build=build,
            guard=guard,
            is_alone=sources.apply("git apply", data, base).commit is not None,
            why=made.why,
            again=outside or sources.seen.get(digest, ""),
            targets=targets,
            stacked=True,
        )
        if made.commit is not None:
            sources.seen.setdefault(digest, name)
            tip = made.commit


def fork_items(sources: Sources, entry: Entry) -> Iterator[Item]:
    """A fork's difference to upstream in one folder, as a series on its upstream commit."""
    clone, path = sources.clones[str(entry["clone"])], str(entry["path"])
    base, build = sources.base(entry)
    targets = sources.targets(entry, build)
    first, last = (_found(clone, str(entry[key])) for key in ("first", "last"))
    span = ("--reverse", "--first-parent", f"{first}..{last}", "--", path)
    listed = clone.text("rev-list", *span).split()[: _number(entry, "most") or None]
    tip = base
    for sha in (first, *listed):
        made = _with_folder(sources.store, tip, sha, path)
        if made == tip:
            continue
        title = clone.text("show", "--no-patch", "--format=%s", sha) if sha != first else "up to here"
        yield Item(
            name=f"{sha[:10]} {title}", base=tip, after=made, build=build, targets=targets, stacked=True
        )
        tip = made


def _with_folder(store: Store, commit: str, other: str, path: str) -> str:
    """A commit on top of ``commit`` with a folder of another commit; ``commit`` itself if they are equal."""
    with tempfile.TemporaryDirectory(prefix="patchkit-bench-") as folder:
        index = Path(folder) / "index"
        store.git("read-tree", commit, index=index)
        gone = store.git("ls-tree", "-r", "-z", "--name-only", commit, "--", f"{path}/").split(b"\0")
        entries = b"".join(b"0 %s\t%s\0" % (b"0" * 40, each) for each in gone if each)
        entries += store.git("ls-tree", "-r", "-z", other, "--", f"{path}/")
        store.git("update-index", "-z", "--index-info", stdin=entries, index=index)
        tree = store.git("write-tree", index=index).decode().strip()
    return commit if tree == store.tree_of(commit) else store.commit(tree, commit)


def commit_items(sources: Sources, entry: Entry) -> Iterator[Item]:
    """Commits of a clone, each on its parent."""
    clone = sources.clones[str(entry["clone"])]
    tags = _tags(sources.clones[str(entry.get("tags_of", entry["clone"]))], str(entry.get("tag", "b*")))
    path, guard = str(entry.get("path", ".")), str(entry.get("guard", "none"))
    span = str(entry["range"]).split()
    listed = clone.text("rev-list", "--reverse", "--no-merges", "--topo-order", *span, "--", path).split()
    upstream: dict[str, int] = {}
    if "not_in" in entry:
        other, _, revision = str(entry["not_in"]).partition(":")
        upstream = _marks(sources.clones[other], revision, tags)
        marks = dict(_log(clone, *span))
        listed = [sha for sha in listed if marks[sha] not in upstream]
    most = _number(entry, "most") or len(listed)
    if len(listed) > most:
        listed = [listed[at * len(listed) // most] for at in range(most)]
    for sha in listed[:: _number(entry, "every") or 1]:
        parent = _found(clone, f"{sha}^")
        title = clone.text("show", "--no-patch", "--format=%s", sha)
        item = Item(
            name=f"{sha[:10]} {title}",
            base=parent,
            after=sha,
            build=_build(clone, parent, tags, upstream),
            guard=guard,
        )
        try:
            if entry.get("only_path"):
                item = replace(item, after=_only(sources.store, parent, sha, path))
            if _number(entry, "before"):
                item = _landed(sources, item, sha, tags, entry)
            elif _number(entry, "tags"):
                trees = [
                    Tag(name=f"b{build}", build=build, commit=sources.pins[build]) for build in sources.pins
                ]
                item = _later(item, [*tags, *trees], _number(entry, "tags"))
        except RuntimeError as error:  # a snapshot lacks large blobs
            item = replace(item, after=None, why=str(error))
        yield item


def _number(entry: Entry, key: str) -> int:
    return int(str(entry.get(key, 0)))


def _only(store: Store, parent: str, sha: str, path: str) -> str:
    """A commit with the part of a change that is in ``path``."""
    diff = store.git("diff", "--binary", "--full-index", "--no-renames", parent, sha, "--", path)
    made = git_apply(store, diff, parent)
    if made.commit is None:
        raise RuntimeError(f"git does not apply its own diff of {sha}: {made.why}")
    return made.commit


def _later(item: Item, trees: list[Tag], count: int) -> Item:
    """The item with later trees as targets: the next, the last, and evenly between."""
    later = sorted((tree for tree in trees if tree.build > item.build), key=lambda tree: tree.build)
    chosen = {later[at * (len(later) - 1) // max(1, count - 1)] for at in range(count) if later}
    targets = sorted(chosen, key=lambda tree: tree.build)
    return replace(
        item, targets=tuple(Target(name=tag.name, commit=tag.commit, build=tag.build) for tag in targets)
    )


def _landed(sources: Sources, item: Item, sha: str, tags: list[Tag], entry: Entry) -> Item:
    """The item carried from an older tag to its own parent, and to tags that already have it.

    Its older forms are made by three-way merges, so ``git apply -3`` is right here by construction.
    """
    earlier = [tag for tag in reversed(tags) if tag.build <= item.build]
    before = earlier[:: _number(entry, "step") or 1][: _number(entry, "before")]
    diff = sources.store.diff(item.base, sha)
    fits: list[tuple[Tag, str]] = []
    for tag in before:
        made = sources.apply("git apply -3", diff, tag.commit)
        if made.commit is None or not sources.store.paths(tag.commit, made.commit):
            break
        fits.append((tag, made.commit))
    targets, origin = [], None
    if fits:
        oldest, changed = fits[-1]
        origin = Change(
            title=item.name, build=oldest.build, base=oldest.commit, after=changed, guard=item.guard
        )
        targets = [
            Target(name=tag.name, commit=tag.commit, build=tag.build) for tag, _ in reversed(fits[:-1])
        ]
        targets.append(Target(name="its parent", commit=item.base, build=item.build, truth=sha))
    after = [tag for tag in tags if tag.build > item.build]
    for tag in after[:: max(1, len(after) // _LANDED)][:_LANDED]:
        if sources.store.attempt("merge-base", "--is-ancestor", sha, tag.commit).returncode == 0:
            name = f"{tag.name}, which has it"
            targets.append(Target(name=name, commit=tag.commit, build=tag.build, truth=tag.commit))
    return replace(item, targets=tuple(targets), origin=origin)


def _tags(clone: Store, pattern: str) -> list[Tag]:
    """The tags of builds, in order."""
    lines = clone.text(
        "for-each-ref", "--format=%(refname:strip=2) %(objectname) %(*objectname)", "refs/tags"
    )
    found = []
    for line in lines.split("\n"):
        name, sha, *peeled = line.split()
        if fnmatch.fnmatch(name, pattern) and name.removeprefix("b").isdigit():
            found.append(Tag(name=name, build=int(name.removeprefix("b")), commit=(peeled or [sha])[0]))
    return sorted(found, key=lambda tag: tag.build)


def _log(clone: Store, *span: str) -> list[tuple[str, str]]:
    """Commits, each with its author time and title, which survive a rewritten history."""
    lines = clone.text("log", "--format=%H%x1f%at%x1f%s", *span).split("\n")
    return [(sha, mark) for sha, _, mark in (line.partition("\x1f") for line in lines)]


def _marks(clone: Store, revision: str, tags: list[Tag]) -> dict[str, int]:
    """Author time and title of upstream's commits, with the first build that has each; 0 if no tag has it."""
    builds = {tag.commit: tag.build for tag in tags}
    found: dict[str, int] = {}
    build = 0
    for sha, mark in _log(clone, revision):
        build = builds.get(sha, build)
        found[mark] = build
    return found


def _build(clone: Store, commit: str, tags: list[Tag], upstream: Mapping[str, int]) -> int:
    """The newest build in a commit's history, 0 if none is found."""
    if upstream:
        near = _log(clone, f"--max-count={_NEAR}", commit)
        return max((upstream.get(mark, 0) for _, mark in near), default=0)
    described = clone.attempt("describe", "--tags", "--abbrev=0", "--match", "b[0-9]*", commit)
    name = described.stdout.decode().strip()
    return next((tag.build for tag in tags if tag.name == name), 0)


def _found(clone: Store, name: str) -> str:
    commit = clone.commit_of(name)
    if commit is None:
        raise SystemExit(f"{clone.path} has no commit {name}")
    return commit
