"""The text of a patched file as upstream would write it: guards that patchkit generated are gone.

``#if`` around host code goes, because upstream's macros on a compute capability can be asked for every GPU.
``#if`` around device code names the family by upstream's macro. If the patch is for all GPUs, both go, and so
do the conditions on the GPU. Code that was moved to lines of its own for an ``#if`` returns to its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from patchkit.base.errors import Location, UsageError
from patchkit.carry.placing.guard import Guard

_CAPABILITY = r"(?P<cc>[A-Za-z_](?:\w|\.|->|\(\)|\[[^\[\]]*\])*)"
_HOLDS = "\0"  # stands for a condition that always holds, until it is folded
_OPENS = re.compile(r"#\s*if")
_STEP = 4


def upstream_text(path: str, text: str, before: str | None, guard: Guard, family: str | None) -> str:
    """A file of a candidate in upstream's form.

    ``before`` is the file without the patch, None for a new one; ``family`` such as ``rdna3_5``, None for all
    GPUs. Raises PROPOSE_REFUSED for a condition on the GPU that is not of the form ``if (A)``, ``A && ...``
    or ``A ? ... : ...``.
    """
    text = _host_conditions(text, guard, family)
    form = _Form(guard=guard, family=family, known=_keys(before or ""), is_new=before is None)
    text = "\n".join(form.lines(text.split("\n")))
    if family is None:
        text = _folded(text)
    if before is None:
        text = re.sub(r"\n{3,}", "\n\n", text).rstrip("\n") + "\n"
    if _HOLDS in text:
        line = text[: text.index(_HOLDS)].count("\n") + 1
        raise UsageError(
            f"cannot remove the condition on the GPU in {path}",
            code="PROPOSE_REFUSED",
            where=Location(path=path, line=line),
            why="it is not of the form if (A) {, A && ... or A ? ... : ...: "
            + text.split("\n")[line - 1].replace(_HOLDS, "A").strip(),
            hint="write it so in the patch",
        )
    return text


def device_macro(family: str) -> str:
    """Upstream's macro of a family in device code (vendors/hip.h), such as RDNA3_5."""
    return family.upper()


def host_macro(family: str) -> str:
    """Upstream's macro on a compute capability (common.cuh), such as GGML_CUDA_CC_IS_RDNA3_5."""
    return f"GGML_CUDA_CC_IS_{family.upper()}"


def _host_conditions(text: str, guard: Guard, family: str | None) -> str:
    tests = [rf"== GGML_CUDA_CC_OFFSET_AMD \+ 0x{target.cc:x}\b" for target in guard.targets]
    for several in dict.fromkeys([tuple(tests), *((test,) for test in tests)]):
        first, *others = several
        whole = rf"{_CAPABILITY} {first}" + "".join(rf" \|\| (?P=cc) {other}" for other in others)

        def replaced(found: re.Match[str]) -> str:
            new = _HOLDS if family is None else f"{host_macro(family)}({found['cc']})"
            return new if found["opens"] is None else f"({new})"

        # The parentheses stay where they are those of an if or while.
        text = re.sub(rf"(?P<opens>(?:(?<=\bif )|(?<=\bwhile ))(?=\())?\({whole}\)", replaced, text)
    return text


def _keys(text: str) -> dict[str, str]:
    """The lines of a file by what they are without blanks."""
    return {_key(line): line for line in text.split("\n")}


def _key(line: str) -> str:
    return "".join(line.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """How one file changes; ``known`` are its lines without the patch, by :func:`_key`."""

    guard: Guard
    family: str | None
    known: dict[str, str]
    is_new: bool
    out: list[str] = field(default_factory=list)

    def lines(self, lines: Sequence[str]) -> list[str]:
        at = 0
        while at < len(lines):
            group = self._group(lines, at)
            if group is None:
                self.out.append(lines[at])
                at += 1
                continue
            at = group.end
            if self._stays(group):
                self.out.extend(self._family_group(group))
                continue
            at += self._joined(group, lines[at] if at < len(lines) else "")
        return self.out

    def _group(self, lines: Sequence[str], start: int) -> _Group | None:
        condition = lines[start].removeprefix("#if ")
        is_off = condition.startswith("!(") and condition.endswith(")")
        inner = condition[2:-1] if is_off else condition
        if condition == lines[start] or inner not in (self.guard.device, self.guard.region):
            return None
        depth, middle = 0, None
        for at in range(start, len(lines)):
            if _OPENS.match(lines[at]):
                depth += 1
            elif lines[at].startswith("#endif"):
                depth -= 1
                if depth == 0:
                    first = lines[start + 1 : middle if middle is not None else at]
                    second = lines[middle + 1 : at] if middle is not None else ()
                    is_device = inner == self.guard.device
                    return _Group(first=first, second=second, is_off=is_off, is_device=is_device, end=at + 1)
            elif depth == 1 and lines[at] == "#else":
                middle = at
        return None

    def _stays(self, group: _Group) -> bool:
        return self.family is not None and (group.is_device or self.is_new)

    def _family_group(self, group: _Group) -> Iterator[str]:
        condition = (
            f"defined({device_macro(self.family or '')})" if group.is_device else "defined(GGML_USE_HIP)"
        )
        yield f"#if {'!' if group.is_off else ''}{condition}"
        yield from group.first
        if group.second:
            yield "#else"
            yield from group.second
        yield f"#endif // {condition}"

    def _joined(self, group: _Group, after: str) -> int:
        """Write the code of a group without its directives; how many of the lines after it were used."""
        new, old = ([], group.first) if group.is_off else (group.first, group.second)
        lead = self.out[-1] if self.out and self._is_part(self.out[-1]) else ""
        tail = after if self._is_part(after) else ""
        # The line as it was says whether there are blanks around the code.
        line = self.known.get(_key(lead + "".join(old) + tail), "")
        if not (lead or tail) or not line:
            self.out.extend(new)
            return 0
        text = "\n".join(new).strip()
        if lead:
            self.out.pop()
            begins = lead.rstrip()
            is_apart = not old or line[len(begins) : len(begins) + 1] == " "
            text = f"{begins}{' ' if is_apart and text else ''}{text}"
        else:
            text = " " * (len(line) - len(line.lstrip())) + text
        ends = tail.strip()
        if ends:
            is_apart = line.removesuffix(ends).endswith(" ")
            text = f"{text}{' ' if is_apart else ''}{ends}"
        self.out.append(text)
        return 1 if tail else 0

    def _is_part(self, line: str) -> bool:
        """Whether it is a part of a line that the file had before."""
        return bool(line.strip()) and _key(line) not in self.known


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """``#if``, the lines ``first``, ``#else``, ``second``, ``#endif``; the next line is number ``end``."""

    first: Sequence[str]
    second: Sequence[str]
    is_off: bool
    is_device: bool
    end: int


def _folded(text: str) -> str:
    """Without the conditions that always hold."""
    text = re.sub(rf"{_HOLDS}\s*&&\s*", "", text)
    text = re.sub(rf"\s*&&\s*{_HOLDS}", "", text)
    while (found := re.search(rf"{_HOLDS} \? ", text)) is not None:
        middle = _ends(text, found.end(), ":")
        end = _ends(text, middle + 1, ",;")
        text = text[: found.start()] + text[found.end() : middle].rstrip() + text[end:]
    return _without_blocks(text)


def _ends(text: str, start: int, marks: str) -> int:
    """Where an expression ends: at one of the marks, or at a bracket that was opened before it."""
    depth = 0
    for at in range(start, len(text)):
        if depth == 0 and (text[at] in marks or text[at] in ")]}"):
            return at
        depth += (text[at] in "([{") - (text[at] in ")]}")
    return len(text)


def _without_blocks(text: str) -> str:
    """``if (A) { ... }`` becomes its statements, unless an else follows."""
    lines = text.split("\n")
    out: list[str] = []
    at = 0
    while at < len(lines):
        indent = len(lines[at]) - len(lines[at].lstrip())
        if lines[at].strip() == f"if ({_HOLDS}) {{":
            end = next((row for row in range(at, len(lines)) if lines[row] == f"{' ' * indent}}}"), None)
            if end is not None:
                out += [
                    line[_STEP:] if line.startswith(" " * _STEP) else line for line in lines[at + 1 : end]
                ]
                at = end + 1
                continue
        out.append(lines[at])
        at += 1
    return "\n".join(out)
