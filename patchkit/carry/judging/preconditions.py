"""Look up what a patch depends on in upstream's sources: what is gone, and what has replaced it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from patchkit.base.errors import Location
from patchkit.base.upstreams import CodeSign
from patchkit.carry.cpp.scopes import ScopeMap
from patchkit.carry.judging.classes import Gone
from patchkit.carry.placing.pattern import find_runs, parse_pattern
from patchkit.carry.placing.tree import UpstreamFiles
from patchkit.carry.series.patch import Patch


def find_gone(patch: Patch, files: UpstreamFiles) -> tuple[Gone, ...]:
    """What the patch depends on and these files of upstream do not have."""
    return tuple(dict.fromkeys(_find_gone(patch, files)))


def uses_macro(macro: str, source: bytes) -> bool:
    """Whether a source uses ``macro`` outside of ``//`` comments, which may outlive the option."""
    for found in re.finditer(rb"\b" + re.escape(macro.encode()) + rb"\b", source):
        if b"//" not in source[source.rfind(b"\n", 0, found.start()) + 1 : found.start()]:
            return True
    return False


def _find_gone(patch: Patch, files: UpstreamFiles) -> Iterator[Gone]:
    for macro in patch.macros:
        if not any(uses_macro(macro, data) for data in files.base.values()):
            yield Gone(what="option", name=macro)
    names = files.names
    bases = {posixpath.basename(name) for name in names}
    wanted = [(edit.file, edit.function) for edit in patch.edits]
    wanted += [(alias.file, alias.function) for alias in patch.aliases]
    for path, function in dict.fromkeys(wanted):
        if function is not None:
            if defines(files, path, function):
                continue
            last = function.rpartition("::")[2].encode()
            if any(last in data and defines(files, name, function) for name, data in files.base.items()):
                continue
        if path not in names and posixpath.basename(path) not in bases:
            yield Gone(what="file", name=path)
        elif function is not None:
            yield Gone(what="function", name=f"{function} in {path}")


def defines(files: UpstreamFiles, path: str, function: str | None) -> bool:
    """Whether upstream defines the function in that file."""
    if function is None or path not in files.base:
        return False
    entities = files.upstream_scopes(path).entities
    return any(entity.answers_to(function) for entity in entities if entity.kind != "record")


def has_sign(sign: CodeSign, files: UpstreamFiles) -> bool:
    """Whether these files of upstream have the sign; ``sign.file`` is a path of their project."""
    if sign.file not in files.base:
        return False
    found = files.upstream_scopes(sign.file)
    spans = [range(len(found.code))]
    if sign.function is not None:
        named = (each for each in found.entities if each.answers_to(sign.function))
        spans = [found.code_in(each.span) for each in named]
    if sign.tokens is None or not spans:
        return bool(spans)
    pattern = parse_pattern(sign.tokens)
    has = any(next(find_runs(found, pattern, span), None) is not None for span in spans)
    if not has and sign.function is None:
        has = _has_directive(found, pattern.texts)
    return has != sign.absent


def _has_directive(scopes: ScopeMap, texts: tuple[bytes, ...]) -> bool:
    """Whether a preprocessor line has these tokens in a row."""
    for line in scopes.directives:
        tokens = (line.keyword, *(token.text for token in line.tokens))
        if any(tokens[at : at + len(texts)] == texts for at in range(len(tokens))):
            return True
    return False


def find_replacement(patch: Patch, files: UpstreamFiles) -> tuple[Location, str] | None:
    """The place of the first declared replacement that upstream has, and its declared reason."""
    for declared in patch.replaced_by:
        if declared.file not in files.base:
            continue
        found = files.upstream_scopes(declared.file)
        pattern = parse_pattern(declared.tokens)
        for entity in found.entities:
            if entity.kind == "record" or not entity.answers_to(declared.function):
                continue
            for first, _ in find_runs(found, pattern, found.code_in(entity.span)):
                return found.source.locate(found.code[first].start), declared.why
    return None
