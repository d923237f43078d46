"""Whether upstream has what a patch declares as its own end: the same purpose in upstream's words.

Vocabulary: a *replacement* is a token pattern in a function of upstream, written down in patch.toml by
who knows what a merge of the purpose would look like. Text that is ours verbatim needs no declaration:
see :mod:`patchkit.classify.reverse`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from patchkit.anchors.pattern import find_runs, parse_pattern
from patchkit.config.manifest import Patch
from patchkit.cxx.scopes import ScopeMap
from patchkit.errors import Location


def find_replacement(
    patch: Patch, files: Mapping[str, bytes], scopes: Callable[[str], ScopeMap]
) -> tuple[Location, str] | None:
    """The place of the first declared replacement that upstream has, and why it is one."""
    for declared in patch.fate.replaced_by:
        if declared.file not in files:
            continue
        found = scopes(declared.file)
        pattern = parse_pattern(declared.tokens)
        for entity in found.entities:
            if entity.kind == "record" or not entity.answers_to(declared.function):
                continue
            for first, _ in find_runs(found, pattern, found.code_in(entity.span)):
                return found.source.locate(found.code[first].span.start), declared.why
    return None
