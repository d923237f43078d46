"""Get the tree of a pin into the cache, from git, a source package or a clone, and check its hash."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from patchkit.base.errors import CacheError, ErrorGroup, GitError, PatchkitError, SourceError, UsageError
from patchkit.base.files import disk_errors
from patchkit.base.reporter import Reporter
from patchkit.carry.series.git_object import object_id
from patchkit.carry.series.lock import GitSource, Pin, SdistSource, Source
from patchkit.carry.upstream.cache import Cache
from patchkit.carry.upstream.clone import copy_commit, open_clone
from patchkit.carry.upstream.commits import CommitStream, git_date
from patchkit.carry.upstream.git import check_git, redacted
from patchkit.carry.upstream.packs import cut_where_missing
from patchkit.carry.upstream.refs import read_ref, update_ref
from patchkit.carry.upstream.remote import fetch_commit
from patchkit.carry.upstream.repository import Repository
from patchkit.carry.upstream.sources import AUTO, SourceName, find_source, source_names, uses_remotes

SourceWanted = Literal["auto"] | SourceName

_AUTO_ANSWER_S = 10.0  # after this the sdist is tried
_ONLY_ANSWER_S = 60.0  # if there is no other source to try


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    pin: Pin
    cache: Cache
    repository: Repository
    reporter: Reporter
    index_url: str | None


def pin_ref(pin: Pin) -> str:
    """The ref that keeps the verified base commit of a pin."""
    return f"refs/patchkit/pin/{pin.name}"


def find_pinned(repository: Repository, pin: Pin) -> str | None:
    """The base commit of a pin, if the repository has it as the lock describes it now."""
    ref = pin_ref(pin)
    commit, tree, of_ref = repository.resolve(ref, f"{ref}^{{tree}}", f"{ref}^{{commit}}")
    base = object_id("commit", pin.commit_object or _root_commit(pin))
    return base if base == commit == of_ref and tree == pin.tree else None


def obtain(
    pin: Pin,
    *,
    cache: Cache,
    source: SourceWanted = "auto",
    upstream_url: str | None = None,
    index_url: str | None = None,
    fetched: str | None = None,
    reporter: Reporter,
) -> str:
    """Get the pin's tree into the cache, and return the commit to build on; needs no network if it is there.

    Args:
        pin: from the lock.
        cache: held while working; only read if the pin is there.
        source: git, sdist, or the first of both that works.
        upstream_url: a git remote to use instead of the lock's.
        index_url: a package index to use instead of the default one.
        fetched: a commit that is in the cache with its whole tree; if it is the pin's, no source is used.
        reporter: receives every step.

    Raises:
        GIT_MISSING, GIT_TOO_OLD: no usable git.
        SOURCE_NOT_IN_LOCK, UPSTREAM_URL_UNUSED: the requested source does not fit the lock.
        TREE_MISMATCH: a source has a different tree.
        SourceError: the source failed; an ErrorGroup if several failed.
        CLONE_UNUSABLE: from the user's clone, for a pin that comes from one.
        CacheError: the disk reported an error.
    """
    check_git(reporter)
    ways = _ways(pin, source, upstream_url) if pin.clone is None else ()
    peeked = cache.peek(reporter)
    found = find_pinned(peeked, pin) if peeked is not None else None
    if found is not None:
        return found
    with cache.hold(reporter) as repository:
        found = find_pinned(repository, pin)  # another process may have fetched it meanwhile
        if found is not None:
            return found
        task = _Task(pin=pin, cache=cache, repository=repository, reporter=reporter, index_url=index_url)
        # The ref may have the same tree under another commit, from another list of pins.
        for commit in (fetched, read_ref(repository, pin_ref(pin))):
            if commit is not None and repository.resolve(f"{commit}^{{tree}}") == (pin.tree,):
                return _accept(task, pin.tree, commit)
        if pin.clone is not None:
            return _from_clone(task, pin.clone)
        return _try_in_turn(task, ways)


def _ways(pin: Pin, wanted: SourceWanted, upstream_url: str | None) -> tuple[Source, ...]:
    sources = [each for each in pin.sources if wanted in (AUTO, each.kind)]
    if upstream_url is not None:
        if pin.commit is None or not uses_remotes(wanted):
            unknown = "the lock has no commit for this pin" if pin.commit is None else None
            raise UsageError(
                f"the remote {redacted(upstream_url)} cannot be used for {pin.title}",
                code="UPSTREAM_URL_UNUSED",
                why=unknown or f"--source {wanted} uses only {find_source(wanted).label}",
                hint="remove --upstream-url" if pin.commit is None else f"remove --source {wanted}",
            )
        others = [each for each in sources if not find_source(each.kind).is_remote]
        sources = [GitSource(url=upstream_url), *others]
    if not sources:
        raise SourceError(
            f"the lock has no {wanted} source for {pin.title}",
            code="SOURCE_NOT_IN_LOCK",
            where=pin.where,
            hint="use --source auto, or give a remote with --upstream-url",
        )
    order = source_names()
    return tuple(sorted(sources, key=lambda each: order.index(each.kind)))


def _try_in_turn(task: _Task, ways: tuple[Source, ...]) -> str:
    failures: list[PatchkitError] = []
    for number, way in enumerate(ways):
        is_last = number == len(ways) - 1
        try:
            if isinstance(way, GitSource):
                return _from_git(task, way, _ONLY_ANSWER_S if is_last else _AUTO_ANSWER_S)
            return _from_sdist(task, way)
        except CacheError:
            raise  # a disk error would also affect the next source
        except (SourceError, GitError) as error:
            failures.append(error)
            if not is_last:
                following = find_source(ways[number + 1].kind).label
                reason = f" ({error.why.splitlines()[0]})" if error.why else ""
                task.reporter.warn(f"{error.message}{reason}; using {following}")
    if len(failures) == 1:
        raise failures[0]
    raise ErrorGroup(f"no source has the tree of {task.pin.title}", failures)


def _from_clone(task: _Task, directory: Path) -> str:
    pin = task.pin
    if pin.commit is None:
        raise AssertionError("a pin of a clone is a commit")
    task.reporter.step(f"copying {pin.commit[:12]} from {directory}")
    copy_commit(open_clone(directory, task.reporter), pin.commit, pin.tree, task.repository)
    return _accept(task, task.repository.tree_of(pin.commit), str(directory))


def _from_git(task: _Task, source: GitSource, answer_s: float) -> str:
    commit = task.pin.commit
    if commit is None:
        raise AssertionError("a pin with a git source has a commit")
    task.reporter.step(f"fetching {task.pin.title} from {redacted(source.url)}")
    fetch_commit(task.repository, source.url, commit, answer_s=answer_s)
    return _accept(task, task.repository.tree_of(commit), redacted(source.url))


def _from_sdist(task: _Task, source: SdistSource) -> str:
    name = f"{source.package} {source.version}"
    task.reporter.step(
        f"getting llama.cpp's files for {task.pin.title} from the source package {name}, "
        "checked against the lock's tree hash"
    )
    # Imported here: importing pypi_simple takes a quarter of a second and is only needed for a cold cache.
    from patchkit.carry.upstream.sdist import fetch_sdist, read_archive  # noqa: PLC0415

    archive = fetch_sdist(
        source, downloads=task.cache.downloads, reporter=task.reporter, index_url=task.index_url
    )
    with (
        task.reporter.progress(f"importing {name}", "bytes") as advance,
        CommitStream(task.repository) as stream,
    ):
        stream.begin(message=f"import of {name}", date=task.pin.committed, parent=None)
        for member in read_archive(archive, subdir=source.subdir, omit=source.omit, on_bytes=advance):
            if member.same_as is not None:
                stream.copy_file(member.same_as, member.path)
            else:
                stream.put_file(member.path, member.mode, member.data)
        imported = stream.finish()[0]
    commit = _accept(task, imported.tree, f"the source package {name}")
    with disk_errors(archive, "cleaning up the download"):
        archive.unlink(missing_ok=True)
    return commit


def _accept(task: _Task, tree: str, name: str) -> str:
    """Verify the tree, write the base commit, and only then the ref."""
    pin, repository = task.pin, task.repository
    if tree != pin.tree:
        raise SourceError(
            f"{name} has the tree {tree}, but the lock has {pin.tree}",
            code="TREE_MISMATCH",
            where=pin.where,
            why="it is not the pinned upstream source, so nothing of it is used",
            hint="use another --source; if the lock was edited by hand, restore it with git",
        )
    commit = repository.write_object("commit", pin.commit_object or _root_commit(pin))
    if pin.commit_object is not None:
        cut_where_missing(repository, [commit])  # upstream's commit is stored without its parents
    ref = pin_ref(pin)
    update_ref(repository, ref, commit, read_ref(repository, ref))
    return commit


def _root_commit(pin: Pin) -> bytes:
    who = f"patchkit <patchkit@localhost> {git_date(pin.committed)}"
    known = f"Upstream-Commit: {pin.commit}\n" if pin.commit is not None else ""
    return (
        f"tree {pin.tree}\nauthor {who}\ncommitter {who}\n\n"
        f"llama.cpp {pin.name}\n\nThe tree of this upstream build, without its history.\n\n"
        f"Upstream-Build: {pin.build}\n{known}"
    ).encode()
