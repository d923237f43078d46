"""The files a patch adds: whether their place is free, and whether they are C++ before anything trusts them.

Vocabulary: a new file is *blocked* by what stands at its path, at a folder of it, or at a name that
differs only in the case of its letters: file systems exist on which those are one file. A file is
read *on its own*, as if a source included nothing else, once per pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from patchkit.config.manifest import NewFile
from patchkit.cxx.directives import Directive, split_directives
from patchkit.cxx.lexer import lex
from patchkit.errors import AnchorError, Location, PatchkitError, RenderError
from patchkit.flow.upstream import UpstreamFiles
from patchkit.source import SourceText

# What no compiler reads; everything else is taken for C++, whatever its name.
_PROSE = (".md", ".txt", ".cmake", ".json")

_OPENING = frozenset({b"if", b"ifdef", b"ifndef"})
_MIDDLE = frozenset({b"elif", b"else", b"elifdef", b"elifndef"})


def check_place(file: NewFile, names: Iterable[str]) -> PatchkitError | None:
    """The error for a new file whose path is not free among ``names``, the paths of all files there are."""
    taken = _taken(names)
    parts = file.path.split("/")
    for count in range(1, len(parts) + 1):
        prefix = "/".join(parts[:count])
        found = taken.get(prefix.casefold())
        if found is None:
            return None
        if found == file.path:
            return AnchorError(
                f"upstream already has {file.path}",
                code="NEW_FILE_EXISTS",
                where=[file.where, Location(path=file.path)],
                hint="rename our file, or drop the patch if upstream took it",
            )
        if found != f"{prefix}/" or count == len(parts):
            return AnchorError(
                f"{file.path} cannot be added: {found} is in the way",
                code="NEW_FILE_BLOCKED",
                where=[file.where, Location(path=found)],
                why="a path is one file or one folder, and must not differ from another only in case",
                hint="rename our file",
            )
    return None


def _taken(names: Iterable[str]) -> dict[str, str]:
    """Every file, and every folder with a slash at its end, by its name without case."""
    taken: dict[str, str] = {}
    for name in names:
        taken.setdefault(name.casefold(), name)
        folder = name.rpartition("/")[0]
        while folder and folder.casefold() not in taken:
            taken[folder.casefold()] = f"{folder}/"
            folder = folder.rpartition("/")[0]
    return taken


def check_new_files(
    new: Sequence[NewFile],
    added: Mapping[str, bytes],
    files: UpstreamFiles,
    archs: Sequence[str],
    defines: Sequence[str],
) -> Iterator[PatchkitError]:
    """The first fault of each file of ``added``; all of them may include one another.

    ``archs`` are the GPUs of the device passes, ``defines`` the macros of the guard.
    """
    sources = [SourceText(path, data) for path, data in added.items() if not path.endswith(_PROSE)]
    where = {file.path: file.where for file in new}
    trees = files.trees(sources, archs, defines, added) if sources else []
    for source, passes in zip(sources, trees, strict=True):
        stray = _unbalanced(source)
        if stray is not None:
            yield RenderError(
                f"{source.path}: #{stray.keyword.decode('utf-8', 'replace')} has no partner in the file",
                code="NEW_FILE_UNBALANCED",
                where=[with_line(source, source.locate(stray.span.start)), where[source.path]],
                why="it would change what is compiled of the file that includes this one",
                hint="correct the template",
            )
            continue
        for key, tree in passes.items():
            if tree.issues:
                issue = tree.issues[0]
                yield RenderError(
                    f"syntax error in the {' '.join(key)} pass of new file {source.path}: {issue.message}",
                    code="NEW_FILE_UNPARSABLE",
                    where=[with_line(source, source.locate(issue.offset)), where[source.path]],
                    why="a new file must parse on its own: it includes what it uses",
                    hint="correct the template",
                )
                break


def _unbalanced(source: SourceText) -> Directive | None:
    """The first directive that closes nothing, else the last one that nothing closes."""
    opened: list[Directive] = []
    for line in split_directives(source, lex(source))[1]:
        if line.keyword in _OPENING:
            opened.append(line)
        elif line.keyword in _MIDDLE and not opened:
            return line
        elif line.keyword == b"endif":
            if not opened:
                return line
            opened.pop()
    return opened[-1] if opened else None


def with_line(source: SourceText, place: Location) -> Location:
    """The place with the text of its line: nobody can open a file that was never written."""
    if place.line is None:
        return place
    text = source.text(source.line_span(place.line)).decode("utf-8", "replace").strip()
    return replace(place, label=text or "(an empty line)")
