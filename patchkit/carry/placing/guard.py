"""Guards, and the first isolation check: with the guard false, a file has the same tokens as before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from patchkit.base.errors import AnchorError, Location
from patchkit.base.source import Span
from patchkit.carry.cpp.directives import Group
from patchkit.carry.cpp.lexer import lex_pattern
from patchkit.carry.cpp.scopes import ScopeMap


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class GuardedGpu:
    """One GPU: ``arch`` (gfx1151), its device ``macro`` and upstream's host compute capability.

    ``cc`` is the number without the AMD offset, e.g. 0x1151 (ggml_cuda_parse_id of build 6900).
    """

    arch: str
    macro: str
    cc: int

    @classmethod
    def named(cls, arch: str) -> GuardedGpu:
        """A GPU by its name alone; macro and compute capability follow from it as in clang and ggml."""
        return cls(arch=arch, macro=f"__{arch}__", cc=int(arch.removeprefix("gfx"), 16))


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Host and device conditions under which a patch's code is compiled or runs.

    ``refused``: macros of device passes for no particular GPU, in which the patch is a compile error.
    ``switch``: C++ expression of its run-time switch; empty if it has none.
    """

    macros: tuple[str, ...]
    targets: tuple[GuardedGpu, ...]
    refused: tuple[str, ...] = ()
    switch: str = ""

    @property
    def device(self) -> str:
        """Preprocessor condition for the device pass of a target."""
        archs = " || ".join(f"defined({target.macro})" for target in self.targets)
        return f"{self._macros()} && {archs if len(self.targets) == 1 else f'({archs})'}"

    @property
    def region(self) -> str:
        """Preprocessor condition for the device pass of a target, or any host pass."""
        archs = " || ".join(f"defined({target.macro})" for target in self.targets)
        return f"{self._macros()} && (!defined(__HIP_DEVICE_COMPILE__) || {archs})"

    @property
    def generic(self) -> str | None:
        """Preprocessor condition for a refused device pass."""
        if not self.refused:
            return None
        return f"{self._macros()} && ({' || '.join(f'defined({macro})' for macro in self.refused)})"

    def host(self, cc: str = "cc", *, counts: bool = False) -> str:
        """C++ condition on a compute capability ``cc``: the current GPU is a target, and the switch is on.

        ``counts``: if it holds, it counts as a use of the patch's code.
        """
        tests = [f"{cc} == GGML_CUDA_CC_OFFSET_AMD + 0x{target.cc:x}" for target in self.targets]
        is_target = " || ".join(tests)
        if not self.switch:
            return f"({is_target})"
        is_on = f"{self.switch}.{'use()' if counts else 'on'}"
        return f"({is_target if len(tests) == 1 else f'({is_target})'} && {is_on})"

    def _macros(self) -> str:
        return " && ".join(f"defined({macro})" for macro in self.macros)


class GuardLeak(AnchorError):
    """The tokens differ even if the guard is false."""

    code = "GUARD_LEAK"


_DIGRAPH = b"%:"


def require_isolated(
    before: ScopeMap, after: ScopeMap, guard: Guard, aliases: Mapping[str, str], where: Location
) -> None:
    """Compare the tokens outside the guard with those before; raises GuardLeak at the first difference."""
    conditions = frozenset({_condition(f"if {guard.device}"), _condition(f"if {guard.region}")})
    generic = _condition(f"elif {guard.generic}") if guard.generic is not None else None
    negated = frozenset({_condition(f"if !({guard.device})"), _condition(f"if !({guard.region})")})
    names = {name.encode(): _texts(upstream) for name, upstream in aliases.items()}
    # An earlier patch of the series may have added regions of the same guard to this file.
    generated = _GeneratedGroups(conditions=conditions, negated=negated, generic=generic)
    old = list(_stream(before, generated, {}))
    new = list(_stream(after, generated, names))
    for (_, left), (offset, right) in zip(old, new, strict=False):
        if left != right:
            raise _leak(after, where, offset, left, right)
    # '%:' is the digraph of '#'. It would add directives that the scopes above treat as plain tokens.
    known = sum(token.text == _DIGRAPH for token in before.code)
    added = [token for token in after.code if token.text == _DIGRAPH]
    if len(added) > known:
        raise _leak(after, where, added[-1].span.start, b"(nothing)", _DIGRAPH)
    if len(old) != len(new):
        offset = new[len(old)][0] if len(new) > len(old) else len(after.source.data)
        raise _leak(after, where, offset, b"(end)", b"(end)")


def _leak(after: ScopeMap, where: Location, offset: int, left: bytes, right: bytes) -> GuardLeak:
    return GuardLeak(
        f"{after.source.path} differs outside the guard: '{_show(left)}' became '{_show(right)}'",
        where=[after.source.locate(offset), where],
        why="rendered text must not open or close an #if, and every change must be inside the guard",
        hint="patchkit plan --show-text prints the rendered edits",
    )


def _show(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _texts(pattern: str) -> tuple[bytes, ...]:
    return tuple(token.text for token in lex_pattern(pattern))


def _condition(text: str) -> bytes:
    return b" ".join(_texts(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class _GeneratedGroups:
    """The conditions of groups that patchkit generates; the branch after ``generic`` is an #error."""

    conditions: frozenset[bytes]
    negated: frozenset[bytes]
    generic: bytes | None

    def is_group(self, group: Group, scopes: ScopeMap) -> bool:
        """Whether a group is one that patchkit generates; rendered text may have added branches."""
        shape = [branch.directive.condition for branch in group.branches]
        if shape[0] in self.negated:
            return len(shape) == 1
        if (
            self.generic is not None
            and shape[1:2] == [self.generic]
            and not scopes.code_in(group.branches[1].body)
        ):
            del shape[1]
        return shape[0] in self.conditions and shape[1:] in ([], [b"else"])

    def dropped(self, group: Group) -> Iterator[Span]:
        """The branches of a generated group that are not upstream's code."""
        for branch in group.branches:
            if branch.directive.condition in self.conditions or branch.directive.condition == self.generic:
                yield branch.body


def _stream(
    scopes: ScopeMap, generated: _GeneratedGroups, aliases: Mapping[bytes, Sequence[bytes]]
) -> Iterator[tuple[int, bytes]]:
    """Code tokens and directives in order, without dropped branches and generated directives."""
    dropped: list[Span] = []
    lines: set[int] = set()
    for group in scopes.groups:
        if not generated.is_group(group, scopes):
            continue
        lines |= {branch.directive.span.start for branch in group.branches} | {group.endif.span.start}
        dropped += generated.dropped(group)
    items: list[tuple[Span, tuple[bytes, ...]]] = [
        (line.span, (b"#" + line.condition,)) for line in scopes.directives if line.span.start not in lines
    ]
    items += [(token.span, tuple(aliases.get(token.text, (token.text,)))) for token in scopes.code]
    items.sort(key=lambda item: item[0].start)
    for span, texts in items:
        if dropped and any(drop.contains(span) for drop in dropped):
            continue
        if texts[0].startswith(b"#define ") and texts[0].split(b" ")[1] in aliases:
            continue
        for text in texts:
            yield span.start, text
