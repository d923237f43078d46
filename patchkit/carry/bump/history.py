"""Find the upstream commits that changed or removed the code that a patch depends on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from patchkit.base.errors import GitError, SourceError
from patchkit.base.reporter import Reporter
from patchkit.base.source import SourceText
from patchkit.carry.bump.request import BumpRequest
from patchkit.carry.cpp.scopes import parse_scopes
from patchkit.carry.judging.classes import Classified, Drift, Gone, UpstreamCommit
from patchkit.carry.judging.drift import nameless_digest
from patchkit.carry.judging.preconditions import uses_macro
from patchkit.carry.placing.tree import read_upstream
from patchkit.carry.series.catalogue import Series
from patchkit.carry.series.lock import Pin
from patchkit.carry.series.patch import Patch
from patchkit.carry.upstream.cache import Cache
from patchkit.carry.upstream.git import redacted
from patchkit.carry.upstream.history import ChangingCommit, History, open_history
from patchkit.carry.upstream.pin import obtain
from patchkit.carry.upstream.remote import upstream_url

_NAMED = 8  # commits of one drift; a function that changed more often is not read commit by commit
_PULL = re.compile(r"(?:/pull/|#|\bPR #?|\bpull request #?)([0-9]{2,7})\b", re.IGNORECASE)
_MERGED = re.compile(r" ?\(#([0-9]{1,7})\)$")  # how upstream's subjects end
_CUT = 60  # characters from which a title may be the beginning of a longer subject
_FILES_OF_WORD = 40  # files whose history is searched for one build option


class _Reader:
    """Function digests of file versions in upstream's history. Each version is read once."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._changes: dict[tuple[str, ...], tuple[ChangingCommit, ...]] = {}
        self._bytes: dict[str, bytes] = {}
        self._digests: dict[tuple[str, str, str], str | None] = {}
        self._known: dict[tuple[str, str], dict[tuple[bytes, ...], str]] = {}

    def prepare(self, paths: Iterable[str]) -> None:
        """Read the commits of each of several files, and the contents of all, with one call each."""
        found = self._history.changes_of(sorted(set(paths)))
        self._read(each for several in found.values() for each in several)
        self._changes |= {(path,): several for path, several in found.items()}

    def changes(self, paths: Sequence[str]) -> tuple[ChangingCommit, ...]:
        """The commits that change one of the files, newest first. Reads the contents of all in one call."""
        key = tuple(sorted(paths))
        if key not in self._changes:
            self._changes[key] = self._history.changes(key)
            self._read(self._changes[key])
        return self._changes[key]

    def _read(self, changes: Iterable[ChangingCommit]) -> None:
        blobs = {blob for each in changes for pair in each.blobs.values() for blob in pair if blob}
        self._bytes |= self._history.read(sorted(blobs - self._bytes.keys()))

    def data(self, blob: str | None) -> bytes:
        """The content of a blob; empty if ``blob`` is None (no such file)."""
        return self._bytes[blob] if blob is not None else b""

    def digest(self, path: str, blob: str | None, function: str) -> str | None:
        """Digest of a function in one version, not counting its name; None if that version lacks it."""
        last = function.rpartition("::")[2].encode()
        if blob is None or last not in self.data(blob):
            return None
        key = (path, blob, function)
        if key not in self._digests:
            self._digests[key] = self._digest(path, self.data(blob), function)
        return self._digests[key]

    def _digest(self, path: str, data: bytes, function: str) -> str | None:
        # Most commits that change a file do not change this function, and parsing every version of the files
        # was a third of the time of a bump of 30 patches over 100 builds.
        known = self._known.setdefault((path, function), {})
        for texts, digest in known.items():
            if all(text in data for text in texts):
                return digest
        scopes = parse_scopes(SourceText(path, data))
        # Of overloads, a change of any one counts.
        found = [each for each in scopes.entities if each.kind != "record" and each.name == function]
        if not found:
            return None
        digest = "".join(nameless_digest(scopes, each) for each in found)
        known[tuple(scopes.source.text(each.span) for each in found)] = digest
        return digest


def name_commits(
    verdicts: Sequence[Classified], history: History, files: Mapping[str, bytes], series: Series
) -> tuple[Classified, ...]:
    """Add to each verdict the upstream commits that changed or removed its functions, files and options.

    Also those with a pull request that the patch names, or with its title. ``files`` are the sources of the
    older upstream by path. Raises HISTORY_UNAVAILABLE, GitError, CacheError.
    """
    reader = _Reader(history)
    reader.prepare(each.file for verdict in verdicts for each in verdict.drift)
    subjects = history.subjects()
    return tuple(_named(verdict, reader, files, series.patch(verdict.id), subjects) for verdict in verdicts)


def _named(
    verdict: Classified,
    reader: _Reader,
    files: Mapping[str, bytes],
    patch: Patch | None,
    subjects: Sequence[tuple[str, str]],
) -> Classified:
    drift = tuple(replace(each, commits=tuple(_of_drift(each, reader))) for each in verdict.drift)
    gone = tuple(replace(each, commit=_of_gone(each, reader, files)) for each in verdict.gone)
    merged = tuple(_of_pulls(patch, subjects)) if patch is not None else ()
    return replace(verdict, drift=drift, gone=gone, merged=merged)


def _of_pulls(patch: Patch, subjects: Iterable[tuple[str, str]]) -> Iterator[UpstreamCommit]:
    """The commits whose subject has the number of a pull request that a patch names, or its title."""
    url = patch.upstream.url if patch.upstream is not None else None
    text = "\n".join([patch.title, patch.why or "", *patch.links, url or ""])
    numbers = {int(number) for number in _PULL.findall(text)}
    title = _MERGED.sub("", patch.title).casefold()
    for commit, subject in subjects:
        found = _MERGED.search(subject)
        is_named = found is not None and int(found[1]) in numbers
        rest = _MERGED.sub("", subject).casefold()
        if is_named or rest == title or (len(title) >= _CUT and rest.startswith(title)):
            yield UpstreamCommit(commit=commit, subject=subject)


def _of_drift(drift: Drift, reader: _Reader) -> Iterator[UpstreamCommit]:
    count = 0
    for change in reader.changes((drift.file,)):
        before, after = change.blobs.get(drift.file, (None, None))
        now = reader.digest(drift.file, after, drift.entity)
        if now is None:
            return  # in older commits it had another name
        if reader.digest(drift.file, before, drift.entity) != now:
            yield _commit(change)
            count += 1
            if count == _NAMED:
                return


def _of_gone(gone: Gone, reader: _Reader, files: Mapping[str, bytes]) -> UpstreamCommit | None:
    match gone.what:
        case "file":
            return _last((gone.name,), reader, lambda blob: blob is not None)
        case "function":
            name, _, path = gone.name.rpartition(" in ")
            return _last((path,), reader, lambda blob: reader.digest(path, blob, name) is not None)
        case "option":
            paths = sorted(path for path, data in files.items() if uses_macro(gone.name, data))
            return _last(
                paths[:_FILES_OF_WORD], reader, lambda blob: uses_macro(gone.name, reader.data(blob))
            )


def _last(paths: Iterable[str], reader: _Reader, has: Callable[[str | None], bool]) -> UpstreamCommit | None:
    """The newest commit after which one of the files no longer satisfies ``has``."""
    wanted = tuple(paths)
    for change in reader.changes(wanted) if wanted else ():
        for path, (before, after) in change.blobs.items():
            if path in wanted and has(before) and not has(after):
                return _commit(change)
    return None


def _commit(change: ChangingCommit) -> UpstreamCommit:
    return UpstreamCommit(commit=change.commit, subject=change.subject)


def with_commits(
    verdicts: tuple[Classified, ...],
    request: BumpRequest,
    old: Pin,
    new: Pin,
    cache: Cache,
    series: Series,
    reporter: Reporter,
) -> tuple[tuple[Classified, ...], str]:
    """Add upstream's commits to the verdicts if its history is available; also a text on whether it was.

    Raises CacheError on disk errors.
    """
    if not any(verdict.drift or verdict.gone for verdict in verdicts):
        return verdicts, "not needed: no function that a patch edits was changed or removed"
    if request.source == "sdist":
        return verdicts, "not searched: a source package has no history"
    unknown = [pin.name for pin in (old, new) if pin.commit is None]
    if unknown:
        return verdicts, f"not searched: the commit of {' and '.join(unknown)} is unknown"
    url = request.upstream_url or upstream_url(new)
    if url is None:
        return verdicts, f"not searched: {new.name} has no git remote; name one with --upstream-url"
    try:
        with cache.hold(reporter) as repository:
            commit = obtain(old, cache=cache, reporter=reporter)
            files = read_upstream(repository, commit, series.read).base
            with open_history(cache.root, url, old, new, reporter) as history:
                return name_commits(verdicts, history, files, series), f"searched at {redacted(url)}"
    except (SourceError, GitError) as error:
        return verdicts, f"not available: {error.message}"
