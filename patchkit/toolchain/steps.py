"""Splits a compiler pass into two steps: the front end, which writes LLVM IR, and the code generator.

The IR depends on the tokens of a unit, not on its bytes. So units with the same IR are generated only once,
whatever side or pin they are of. The commands are those that clang itself would run for the pass (``-###``),
with the IR in a file between them. The result is the same, except for names in comments.

The code of a single kernel can be generated after removing everything from the IR that it does not call.
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
# The use lists are needed because LLVM's passes depend on their order: without them, kernels of norm.cu
# (build 11549) were assigned other registers.
_IR = ("-emit-llvm-bc", "-emit-llvm-uselists")
# A head is read from stdin, for which clang prefixes the names of included files with "./".
_SHORT = "-fmacro-prefix-map=./="
_EMITS = frozenset({"-S", "-emit-obj"})
GENERATING_WORDS = frozenset({"-mllvm"})
"""Options of the code generator that take an argument; the front end runs without them."""
# Options of the front end only; the second list has those with a separate argument.
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
    """The two commands of a pass, without unit and output."""

    front: tuple[str, ...]
    back: tuple[str, ...]

    def front_argv(self, unit: str, output: Path, opened: Path) -> list[str]:
        """The front end for a unit: writes unoptimized IR, and the list of files it read to ``opened``."""
        return [*self.front, *self._own(unit), *listing_words(opened), "-o", str(output), "-x", "hip", unit]

    def _own(self, unit: str) -> list[str]:
        """Options for names that the host and device passes share; clang's defaults depend on the folder."""
        own = sha256(unit)[:16]
        return ["-main-file-name", unit, f"-cuid={own}"]

    @property
    def head(self) -> tuple[str, ...]:
        """The front end for the head of units, without output and without options for a single unit."""
        words = _without(self.front, (), frozenset({"-fcuda-include-gpubinary"}))
        left = (word for word in words if word not in {_NO_PASSES, *_IR[1:]})
        front = ["-emit-pch" if word == _IR[0] else word for word in left]
        # No timestamps, because the mtimes of the files differ in a copy of the tree.
        return (*front, "-fno-pch-timestamp", _SHORT)

    def head_argv(self, output: Path) -> list[str]:
        """The front end for a head on stdin: writes a precompiled header."""
        return [*self.head, "-o", str(output), "-x", "hip", "-"]

    def rest_argv(self, unit: str, head: Path, tree: Path, output: Path, opened: Path) -> list[str]:
        """The front end for the rest of a unit on stdin, with its precompiled head; ``opened`` lists both."""
        names = ("-include-pch", str(head), _SHORT, f"-fdebug-prefix-map={tree}/=")
        own = [*self._own(unit), *listing_words(opened)]
        return [*self.front, *names, *own, "-o", str(output), "-x", "hip", "-"]

    def back_argv(self, ir: Path, output: Path) -> list[str]:
        """The code generator for the IR of the front end."""
        return [*self.back, "-o", str(output), "-x", "ir", str(ir)]


def listing_words(opened: Path) -> list[str]:
    """Options of clang's front end to write a dependency file, without system headers."""
    return ["-dependency-file", str(opened), "-MT", "unit"]


def alone_argv(opt: Path, kernel: str, ir: Path, output: Path) -> list[str]:
    """The command of LLVM's ``opt`` to reduce the IR of a unit to one kernel and its callees, unchanged."""
    passes = ("-passes=internalize,globaldce", f"-internalize-public-api-list={kernel}")
    return [str(opt), "--preserve-bc-uselistorder", *passes, str(ir), "-o", str(output)]


_known: dict[tuple[str, ...], Steps] = {}
_of_known = threading.Lock()


def two_steps(argv: Sequence[str], unit: str, run: Callable[[Sequence[str]], Completed]) -> Steps:
    """The steps of a driver command for a unit, found by running ``clang -###`` with ``run``.

    They are the same for all units, so they are cached. Arguments after ``-Xclang`` are for the front end.

    Raises:
        COMPILER_OUTPUT_UNREADABLE: clang would run several commands, or other ones than expected.
        What ``run`` raises.
    """
    driver, own = _split_own(argv)
    with _of_known:
        steps = _known.get(driver)
        if steps is None:
            steps = _known[driver] = _query_steps(driver, unit, run)
    return Steps(front=(*steps.front, *own), back=steps.back)


def _split_own(argv: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    driver, own = [], []
    rest = iter(argv)
    for word in rest:
        if word == "-Xclang":
            own.append(next(rest))
        else:
            driver.append(word)
    return tuple(driver), own


def _query_steps(argv: tuple[str, ...], unit: str, run: Callable[[Sequence[str]], Completed]) -> Steps:
    text = run([*argv, "-###", "-o", "output", unit]).stderr.decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if '"-cc1"' in line]
    words = shlex.split(lines[0]) if len(lines) == 1 else []
    emit = next((word for word in words if word in _EMITS), None)
    if words[1:2] != ["-cc1"] or words[-3:] != ["-x", "hip", unit] or emit is None:
        raise ToolchainError(
            "cannot determine the commands that clang runs to compile a unit",
            code="COMPILER_OUTPUT_UNREADABLE",
            where=Location(path=unit),
            why=f"'{shlex.join(argv)} -###' prints {len(lines)} commands with -cc1; one was expected",
            hint="check the compiler version with: patchkit doctor",
        )
    words = words[2:-3]
    reading = (own for word in words if word != REMARK_FLAG for own in (_IR if word == emit else (word,)))
    front = _without(reading, ("-cuid=",), frozenset({"-o", "-main-file-name", *GENERATING_WORDS}))
    start = (argv[0], "-cc1")  # as given, because it may be a wrapper script that sets the library path
    return Steps(
        front=(*start, *front, _NO_PASSES),
        back=(*start, *_without(words, _READING, _READING_WORDS)),
    )


def without_words(words: Iterable[str], named: frozenset[str]) -> list[str]:
    """The words without the options ``named`` and their arguments."""
    return list(_without(words, (), named))


def _without(words: Iterable[str], starts: tuple[str, ...], named: frozenset[str]) -> Iterator[str]:
    """The words without those with a prefix in ``starts``, and without ``named`` and their arguments."""
    rest = iter(words)
    for word in rest:
        if word in named:
            next(rest)
        elif not word.startswith(starts):
            yield word
