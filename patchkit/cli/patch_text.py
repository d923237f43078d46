"""How the screens describe a patch: its state on a GPU, its gain, and who measured it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence

from patchkit.base.series_folder import PLAIN, SeriesDir, arch_options
from patchkit.base.text import counted
from patchkit.carry.candidate.decision import MoreTrust
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.selection import Terms
from patchkit.carry.series.trust import Assessment
from patchkit.cli.screen import Cell, Screen

# Roles (colours) of the states of a patch: applied by default, only on request, not at all.
ROLES = {"on": "good", "opt-in": "caution", "off": "muted"}
STATES = {"on": "on", "opt-in": "optional", "off": "not for it"}

_NAMED = 3  # patches or people that are named in a sentence; more are counted
_GAIN_LENGTH = 210  # characters of a gain in a list; `show ID` has all of it


def add_titles(screen: Screen, titles: Iterable[tuple[str, str]], *, optional: Collection[str] = ()) -> None:
    """Add the patches with their titles, aligned; ``optional``: those that are not on by default."""
    rows: list[tuple[Cell, ...]] = []
    for name, title in titles:
        role = ROLES["opt-in" if name in optional else "on"]
        mark = [("optional" if name in optional else "", role)] if optional else []
        rows.append(((name, role), *mark, title))
    screen.table(rows)


def included_text(optional: Sequence[str]) -> str:
    """Describe the optional patches that a branch has on request."""
    names = f"{len(optional)} of the patches above" if len(optional) > _NAMED else ", ".join(optional)
    are = "is" if len(optional) == 1 else "are"
    return f"{names} {are} optional and included on your request (patchkit show ID has the gain)."


def skipped_text(count: int, command: str) -> str:
    """Count the patches that a branch does not have; ``command`` lists them."""
    are = counted(count, "other patch is", "other patches are")
    return f"{are} optional, or not for this build or GPU ({command})."


def describe_level(standing: Assessment) -> str:
    """Name the evidence for a patch on one GPU: who measured it, or that no one did."""
    return _evidence(standing) + _against(standing)


def describe_gain(patch: Patch, terms: Terms, *, shows_level: bool = True) -> str:
    """Return the evidence for a patch, its gain, and the evidence against it; empty if nothing is known."""
    if patch.switches is not None:
        return patch.expected.effect
    standing = terms.assessment
    gain = gain_text(patch, terms)
    if not shows_level:
        return gain
    return ": ".join(filter(None, [_evidence(standing), gain])) + _against(standing)


def _evidence(standing: Assessment) -> str:
    if standing.loses:
        return f"slower, measured by {_names(standing.losses)}"
    if standing.level in ("measured", "published"):
        similar = {*standing.indirect} == {*standing.gains}
        return f"{'a similar change measured' if similar else 'measured'} by {_names(standing.gains)}"
    if standing.level == "modelled":
        return "modelled, not measured"
    if standing.level == "faults":
        return "fixes a fault, speed not measured"
    return "not measured" if standing.model == "disagrees" else "no gain known on this GPU and build"


def _against(standing: Assessment) -> str:
    """Return the timing model's and other people's results that contradict a gain."""
    against = ""
    if standing.model == "disagrees" and not standing.loses:
        against = "; the timing model predicts a loss"
    return against + (
        f"; slower for {_names(standing.losses)}" if standing.losses and not standing.loses else ""
    )


def _names(sources: Sequence[str]) -> str:
    shown = sources if len(sources) <= _NAMED else [*sources[:2], f"{len(sources) - 2} others"]
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else "".join(shown)


def gain_text(patch: Patch, terms: Terms) -> str:
    """Return the gain to expect, shortened to whole clauses; empty if nothing is known.

    Without a gain on this build, the reason comes from a claim about this build, if there is one.
    """
    standing = terms.assessment
    figures = [claim.figure for claim in standing.claims if claim.says in ("gain", "fixes")]
    text = patch.expected.effect or next(iter(figures), "")
    if standing.level is None and not figures:
        text = next((claim.figure for claim in standing.claims if claim.says == "same"), text)
    text = " ".join(text.split())
    if standing.level == "faults":
        text = text.removesuffix("; speed not measured")
    shown, *more = text.split("; ")
    for clause in more:
        if len(shown) + len(clause) > _GAIN_LENGTH:
            return f"{shown}; ..."
        shown = f"{shown}; {clause}"
    return shown


def more_trust_text(more: MoreTrust) -> str:
    """Describe what the next level of trust would add: how many patches, on what evidence."""
    count = counted(len(more.patches), "optional patch", "optional patches")
    what = {
        "measured": "with a gain that several people measured on this GPU",
        "published": "with a gain that one person measured on this GPU and the timing model confirms",
        "modelled": _modelled_text(more.sources),
        "faults": "against faults that no one has reported on this GPU; their cost was not measured",
    }[more.level]
    return f"--trust {more.level} would add {count} {what}."


def _modelled_text(sources: Sequence[str]) -> str:
    if sources:
        return f"with a gain measured by {_names(sources)} or predicted by the timing model"
    return "with a gain predicted by the timing model; no one has measured them yet"


def list_command(archs: Sequence[str], series: SeriesDir, upstream: str | None = None) -> str:
    """Return the command that lists the patches of the first of these GPUs."""
    words = ["patchkit", "list"]
    if archs and archs[0] != PLAIN:
        words += [*arch_options(archs[:1], series.profiles), *(["--upstream", upstream] if upstream else [])]
    return shlex.join(words)


def build_command(cmake: Sequence[str]) -> str:
    """Return the command that builds what the cmake command configures."""
    return shlex.join(["cmake", "--build", cmake[cmake.index("-B") + 1], "-j"])
