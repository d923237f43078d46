"""One pass of the compiler in two steps: the front end, which leaves LLVM's IR, and the code generator.

What the front end leaves depends on what is read, not on which bytes it stood in: units that read alike get
their code once, whatever side, pin or day they are of. The commands are those that clang itself would run for
the pass (``-###``), with the IR in between as a file; what comes out is the same, but for names in comments.

The code of one kernel can be had alone: from the IR everything is taken away that it does not call.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.digests import sha256
from patchkit.base.errors import Location, ToolchainError
from patchkit.base.process import Completed
from patchkit.toolchain.remarks import REMARK_FLAG

_NO_PASSES = "-disable-llvm-passes"
# With the order in which values are used, by which LLVM's passes go: read back without it, kernels of norm.cu
# (build 11549) got other registers.
_IR = ("-emit-llvm-bc", "-emit-llvm-uselists")
# A head is read from clang's input, which puts "./" before the names of what is included.
_SHORT = "-fmacro-prefix-map=./="
_EMITS = frozenset({"-S", "-emit-obj"})
GENERATING_WORDS = frozenset({"-mllvm"})
"""Options of the code generator, each with a word behind it; the front end is run without."""
# Of the front end only: what is read, and what the IR already holds. Those of the second list take a word.
_READING = ("-I", "-D", "-U", "-cuid=", "-fdebug-compilation-dir=", "-fcoverage-compilation-dir=")
_READING_WORDS = frozenset(
    {
        "-D",
        "-I",
        "-U",
        "-fcuda-include-gpubinary",
        "-idirafter",
        "-include",
        "-internal-externc-isystem",
        "-internal-isystem",
        "-isystem",
        "-main-file-name",
        "-mlink-builtin-bitcode",
        "-o",
        "-resource-dir",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Both commands of a pass, without unit and output."""

    front: tuple[str, ...]
    back: tuple[str, ...]

    def front_argv(self, unit: str, output: Path, opened: Path) -> list[str]:
        """The front end on a unit: its IR before any optimization. What it reads is listed in ``opened``."""
        return [*self.front, *self._own(unit), *listing_words(opened), "-o", str(output), "-x", "hip", unit]

    def _own(self, unit: str) -> list[str]:
        """Names of what both passes must find again. Clang makes them of the folder, which says nothing."""
        own = sha256(unit)[:16]
        return ["-main-file-name", unit, f"-cuid={own}"]

    @property
    def head(self) -> tuple[str, ...]:
        """The front end on the head of units, without output: what is of one unit only is left out."""
        words = _without(self.front, (), frozenset({"-fcuda-include-gpubinary"}))
        left = (word for word in words if word not in {_NO_PASSES, *_IR[1:]})
        front = ["-emit-pch" if word == _IR[0] else word for word in left]
        # Without the time of change of the files, which differs in a copy of the tree.
        return (*front, "-fno-pch-timestamp", _SHORT)

    def head_argv(self, output: Path) -> list[str]:
        """The front end on a head, from its input: a precompiled header."""
        return [*self.head, "-o", str(output), "-x", "hip", "-"]

    def rest_argv(self, unit: str, head: Path, tree: Path, output: Path, opened: Path) -> list[str]:
        """The front end on the rest of a unit, from its input, behind its head, both listed in ``opened``."""
        names = ("-include-pch", str(head), _SHORT, f"-fdebug-prefix-map={tree}/=")
        own = [*self._own(unit), *listing_words(opened)]
        return [*self.front, *names, *own, "-o", str(output), "-x", "hip", "-"]

    def back_argv(self, ir: Path, output: Path) -> list[str]:
        """The code generator on what the front end left."""
        return [*self.back, "-o", str(output), "-x", "ir", str(ir)]


def listing_words(opened: Path) -> list[str]:
    """Options of clang's front end: it writes which files it opens, those of the system left out."""
    return ["-dependency-file", str(opened), "-MT", "unit"]


def alone_argv(opt: Path, kernel: str, ir: Path, output: Path) -> list[str]:
    """LLVM's ``opt`` on the IR of a unit: that of one kernel and of what it calls, as it is."""
    passes = ("-passes=internalize,globaldce", f"-internalize-public-api-list={kernel}")
    return [str(opt), "--preserve-bc-uselistorder", *passes, str(ir), "-o", str(output)]


_known: dict[tuple[str, ...], Steps] = {}
_of_known = threading.Lock()


def two_steps(argv: Sequence[str], unit: str, run: Callable[[Sequence[str]], Completed]) -> Steps:
    """The steps of a command of the driver on a unit; ``run`` asks clang. They are the same for all units.

    What the command has behind ``-Xclang`` is for the front end.

    Raises:
        DRIVER_NOT_UNDERSTOOD: clang would not run one command for it, or another one than expected.
        What ``run`` raises.
    """
    asked, own = _split_own(argv)
    with _of_known:
        steps = _known.get(asked)
        if steps is None:
            steps = _known[asked] = _ask(asked, unit, run)
    return Steps(front=(*steps.front, *own), back=steps.back)


def _split_own(argv: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    asked, own = [], []
    rest = iter(argv)
    for word in rest:
        if word == "-Xclang":
            own.append(next(rest))
        else:
            asked.append(word)
    return tuple(asked), own


def _ask(argv: tuple[str, ...], unit: str, run: Callable[[Sequence[str]], Completed]) -> Steps:
    text = run([*argv, "-###", "-o", "output", unit]).stderr.decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if '"-cc1"' in line]
    words = shlex.split(lines[0]) if len(lines) == 1 else []
    emit = next((word for word in words if word in _EMITS), None)
    if words[1:2] != ["-cc1"] or words[-3:] != ["-x", "hip", unit] or emit is None:
        raise ToolchainError(
            "clang does not say how it compiles a unit",
            code="DRIVER_NOT_UNDERSTOOD",
            where=Location(path=unit),
            why=f"'{shlex.join(argv)} -###' names {len(lines)} commands with -cc1, one was expected",
            hint="patchkit doctor shows the compiler",
        )
    words = words[2:-3]
    reading = (own for word in words if word != REMARK_FLAG for own in (_IR if word == emit else (word,)))
    front = _without(reading, ("-cuid=",), frozenset({"-o", "-main-file-name", *GENERATING_WORDS}))
    start = (argv[0], "-cc1")  # by its own name: it may be a script that finds its libraries
    return Steps(
        front=(*start, *front, _NO_PASSES),
        back=(*start, *_without(words, _READING, _READING_WORDS)),
    )


def without_words(words: Iterable[str], named: frozenset[str]) -> list[str]:
    """The words but for those of ``named``, with the word behind each."""
    return list(_without(words, (), named))


def _without(words: Iterable[str], starts: tuple[str, ...], named: frozenset[str]) -> Iterator[str]:
    """The words but for those that begin so, and for those of ``named`` with the word behind each."""
    rest = iter(words)
    for word in rest:
        if word in named:
            next(rest)
        elif not word.startswith(starts):
            yield word
