"""The one list of checks: the command line, the gate, the reports, the documents and the emulator read it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

CheckName = Literal[
    "memory",
    "waits",
    "races",
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

    ``name`` is the word of ``--check``, the one that the emulator knows it by, and the kind of its findings.
    ``about`` is what it finds, in one line; ``help`` the same for the help of ``patchkit sanitize``.
    ``costs`` is what it takes besides time; empty: nothing that matters. ``on_request``: programs may do it
    on purpose, so it is looked for only where somebody says so.
    """

    name: CheckName
    about: str
    help: str
    costs: str = ""
    on_request: bool = False


CHECKS: tuple[Check, ...] = (
    Check(
        name="memory",
        about="accesses to what no allocation holds, or one that was freed; atomics at odd addresses",
        help="accesses to what no allocation holds, or to what was freed",
    ),
    Check(
        name="waits",
        about="registers used while the load that fills them is under way; barriers before LDS is done",
        help="registers used while the load that fills them is under way",
    ),
    Check(
        name="races",
        about="waves and blocks that touch the same LDS, or the same memory, in no order",
        help="waves of a block that touch the same LDS or memory without a barrier between, and blocks that "
        "touch the same memory with no order between them",
        costs="up to nine times the memory that is touched",
    ),
    Check(
        name="hidden",
        about="waves that write the same to one place in no order, and would not with other numbers",
        help="the same between the waves of a block where the values hide it: a write that changes nothing, "
        "and does with other numbers in memory",
    ),
    Check(
        name="barriers",
        about="waves that meet at different barriers, or leave others at one; lanes that go around one",
        help="waves of a block that wait at different barriers, or leave while others wait at one once more, "
        "and barriers to which some lanes of a wave do not come",
    ),
    Check(
        name="uninitialised",
        about="what was never given a value and decides an address, a branch or what the host gets",
        help="registers, LDS, scratch and device memory that were never given a value, where they decide an "
        "address, a branch or what the host gets",
        costs="as much memory again as the device has in use",
    ),
    Check(
        name="asynchrony",
        about="kernels and copies that touch the same memory in no order; sources changed too early",
        help="kernels, copies and the like that touch the same memory while no stream, event or wait orders "
        "them, and sources of copies that the program changes before the copy is done",
        costs="up to nine times the memory that is touched",
    ),
    Check(
        name="calls",
        about="calls to the runtime that fail unnoticed, launches that are refused, memory freed twice",
        help="calls to the HIP runtime that fail while the program does not look, launches that are refused "
        "among them, and memory that is freed twice",
    ),
    Check(
        name="leaks",
        about="memory that the program never frees",
        help="memory that the program has not freed when it ends",
        on_request=True,
    ),
    Check(
        name="numbers",
        about="a NaN or an infinity made of finite numbers, overflow of halves, division by zero",
        help="where a NaN or an infinity is made of finite numbers",
        on_request=True,
    ),
)
"""Every check, in the order in which they are told."""


def check_names() -> tuple[CheckName, ...]:
    """All their names."""
    return tuple(check.name for check in CHECKS)


def native_checks() -> str:
    """The word of a C++ compiler that gives the names to the emulator, whose sources have no list of them."""
    return f"-DPATCHKIT_CHECKS(each)={' '.join(f'each({name})' for name in check_names())}"


def usual_checks() -> tuple[CheckName, ...]:
    """What is looked for unless it is said."""
    return tuple(check.name for check in CHECKS if not check.on_request)


def chosen_checks(words: Collection[str]) -> tuple[CheckName, ...]:
    """Those that are named; the usual ones when none is."""
    return tuple(check.name for check in CHECKS if check.name in words) or usual_checks()


def checks_help() -> str:
    """What each finds, as sentences for a help text."""
    told = (f"{check.name}{', if asked for' if check.on_request else ''}: {check.help}." for check in CHECKS)
    return " ".join(told)
