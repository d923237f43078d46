"""The list of checks, shared by the command line, the gate, the reports, the documents and the emulator."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

CheckName = Literal[
    "memory",
    "waits",
    "races",
    "caches",
    "hidden",
    "barriers",
    "uninitialised",
    "asynchrony",
    "calls",
    "leaks",
    "numbers",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check.

    ``name`` is the value of ``--check``, the check's name in the emulator, and the kind of its findings.
    ``about`` says in one line what it finds; ``help`` is the text for the help of ``patchkit sanitize``.
    ``costs``: its cost besides time, if that is considerable. ``on_request``: off by default, because
    programs may do it on purpose.
    """

    name: CheckName
    about: str
    help: str
    costs: str = ""
    on_request: bool = False


CHECKS: tuple[Check, ...] = (
    Check(
        name="memory",
        about="accesses outside of any allocation or to freed memory; misaligned atomics",
        help="accesses outside of any allocation, or to freed memory",
    ),
    Check(
        name="waits",
        about="registers used before their load has finished; barriers before LDS accesses have finished",
        help="registers used before the load that fills them has finished",
    ),
    Check(
        name="races",
        about="unordered accesses of waves and blocks to the same LDS or memory",
        help="waves of a block that access the same LDS or memory without a barrier in between, and blocks "
        "that access the same memory with no order between them",
        costs="up to nine times the memory that is touched",
    ),
    Check(
        name="caches",
        about="loads that may get an old value from a cache; atomics and waits that reach too few caches",
        help="loads of data from another wave or block that a GPU's caches may answer with the old value, "
        "because the code does not invalidate them first",
        costs="up to nine times the memory that is touched",
    ),
    Check(
        name="hidden",
        about="waves that write equal values to one address in no order, which is a race with other values",
        help="races between the waves of a block that the values hide: a write that changes nothing now, "
        "but would with other values in memory",
    ),
    Check(
        name="barriers",
        about="waves that wait at different barriers or exit without them; lanes that skip one",
        help="waves of a block that wait at different barriers, or exit while others still wait at one, "
        "and barriers that some lanes of a wave do not reach",
    ),
    Check(
        name="uninitialised",
        about="uninitialised values that decide an address, a branch or what the host reads",
        help="uninitialised registers, LDS, scratch and device memory, where they decide an address, a "
        "branch or what the host reads",
        costs="as much memory again as the device has in use",
    ),
    Check(
        name="asynchrony",
        about="unordered kernels and copies that access the same memory; copy sources changed too early",
        help="kernels, copies and other asynchronous operations that access the same memory while no stream, "
        "event or wait orders them, and sources of copies that the program changes before the copy is done",
        costs="up to nine times the memory that is touched",
    ),
    Check(
        name="calls",
        about="failed runtime calls that the program ignores, rejected launches, double frees",
        help="HIP runtime calls that fail while the program does not check the error, rejected launches "
        "among them, and memory that is freed twice",
    ),
    Check(
        name="leaks",
        about="memory that the program never frees",
        help="memory that the program has not freed when it exits",
        on_request=True,
    ),
    Check(
        name="numbers",
        about="NaN or infinity computed from finite numbers, overflow of f16, division by zero",
        help="where finite numbers result in a NaN or an infinity",
        on_request=True,
    ),
)
"""Every check, in the order in which they are listed."""


def check_names() -> tuple[CheckName, ...]:
    """The names of all checks."""
    return tuple(check.name for check in CHECKS)


def native_checks() -> str:
    """The compiler option that passes the names to the emulator, whose sources do not list them."""
    return f"-DPATCHKIT_CHECKS(each)={' '.join(f'each({name})' for name in check_names())}"


def usual_checks() -> tuple[CheckName, ...]:
    """The checks that run by default."""
    return tuple(check.name for check in CHECKS if not check.on_request)


def chosen_checks(words: Collection[str]) -> tuple[CheckName, ...]:
    """The named checks, or the default ones if none is named."""
    return tuple(check.name for check in CHECKS if check.name in words) or usual_checks()


def checks_help() -> str:
    """What each check finds, a paragraph each, for the help text of a command."""
    texts = (
        f"{check.name}{' (not by default)' if check.on_request else ''}: {check.help}." for check in CHECKS
    )
    return "\n\n    ".join(texts)
