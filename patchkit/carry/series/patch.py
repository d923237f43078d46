"""The model of ``patches/NNNN-topic/patch.toml``: one change to upstream, with its reason."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from patchkit.base.errors import ConfigError, ErrorGroup, Location
from patchkit.base.text import control_characters
from patchkit.base.toml import (
    NOWHERE,
    Document,
    KeyPath,
    NotInFile,
    Prose,
    Several,
    TomlTable,
    Words,
    format_key_path,
    validate,
)
from patchkit.base.upstreams import build_name
from patchkit.carry.series.promises import (
    NO_GAIN,
    NOTHING_WORSE,
    BenchRules,
    KernelMove,
    LaunchPromises,
    ResourceRules,
    ResultRules,
    SpeedRules,
    WidthChange,
)
from patchkit.carry.series.selector import Selector
from patchkit.carry.series.treepath import MAX_PATH, fault_of_path
from patchkit.carry.series.trust import Claim

BREAKS_MAIL = re.compile(
    r"---|diff -|index:|>?from[ :]|subject:|date:|message-id:|content-|\[patch\]", re.IGNORECASE
)
"""Line beginnings that git am takes for a header or for the start of the diff.

From git's mailinfo.c: patchbreak() and check_inbody_header().
"""

_PROSE: frozenset[KeyPath] = frozenset({("why",), ("without",), ("expected", "effect")})
_CODE_KEYS = frozenset({"text", "at", "parameters"})
_SEVERAL_LINES = frozenset("\n\t")


def check_texts(document: Document) -> Iterator[ConfigError]:
    """Check the strings of a valid patch.toml for control characters and for text that git am changes."""
    for path, text in document.values():
        if not isinstance(text, str):
            continue
        allowed = _SEVERAL_LINES if path in _PROSE or _is_code(path) else frozenset()
        bad = next((char for char in control_characters(text) if char not in allowed), None)
        if bad is not None:
            yield ConfigError(
                f"'{format_key_path(path)}' contains the control character U+{ord(bad):04X}",
                code="PATCH_BAD",
                where=document.locate(path),
                why="only why, without, effect and the text of an edit may have several lines",
            )
        elif path[0] in ("title", "links", "authors", "commit") and text != " ".join(text.split()):
            yield ConfigError(
                f"'{format_key_path(path)}' has whitespace that git am would not keep",
                code="PATCH_BAD",
                where=document.locate(path),
                hint="use one space between words and none at the ends",
            )
        elif path == ("why",) and BREAKS_MAIL.match(text.lstrip()):
            yield ConfigError(
                f"'why' begins with '{text.split()[0]}'",
                code="PATCH_BAD",
                where=document.locate(path),
                why="git am would read that line as a header or as the start of the diff",
            )


def _is_code(path: KeyPath) -> bool:
    return len(path) >= 3 and path[0] == "edit" and path[2] in _CODE_KEYS  # noqa: PLR2004  edit, number, key


Verb = Literal["change_to", "insert_before", "insert_after", "remove", "add_include", "use_alias"]
Side = Literal["host", "device"]
Status = Literal["not-submitted", "submitted", "rejected", "backport"]


_UP = "../"


def _below_root(path: str) -> str:
    fault = fault_of_path(path)
    if fault is not None:
        raise ValueError(fault)
    return path


def _one_line(text: str) -> str:
    if "\n" in text or text.endswith("\\"):
        raise ValueError("the meaning of an alias must be one line of tokens")
    return text


PatchId = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
_Path = Annotated[str, Field(min_length=1, max_length=MAX_PATH), AfterValidator(_below_root)]
_OwnFile = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+)*$"), AfterValidator(_below_root)
]
# As written in an #include, relative to the folder of the file. Template instances are in a folder below
# their header's, so one leading '../' is allowed.
_Header = Annotated[
    str,
    Field(pattern=r"^(\.\./)?[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+)*$"),
    AfterValidator(lambda header: f"{_UP * header.startswith(_UP)}{_below_root(header.removeprefix(_UP))}"),
]
_Macro = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_Meaning = Annotated[Words, AfterValidator(_one_line)]
_Build = Annotated[int, Field(ge=1)]
_Author = Annotated[str, Field(pattern=r"^[^<>\n]+ <[^<>\s]+>$", description="Name <address>")]
_Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRange(TomlTable):
    """``[builds]``: the upstream builds a patch is for, both ends included; ``last`` None: open-ended.

    ``by_code``: if set, the code of one tree decides whether it belongs to the range, for the reason
    ``by_code_why``.
    """

    first: _Build
    last: _Build | None = None
    why: Words
    by_code: NotInFile[bool | None] = field(default=None, compare=False)
    by_code_why: NotInFile[str] = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.last is not None and self.last < self.first:
            raise ValueError(f"last ({self.last}) is before first ({self.first})")

    def covers(self, build: int) -> bool:
        """Whether ``build`` lies in the range, or the tree of that build does by its code."""
        if self.by_code is not None:
            return self.by_code
        return self.first <= build and (self.last is None or build <= self.last)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected(TomlTable):
    """``[expected]``: the expected effect of the patch, and who measured it."""

    effect: Prose
    source: Prose


def is_git_date(moment: dt.datetime) -> bool:
    """Whether git can store the date: it has a zone of whole minutes, and is from 1970 to 2106."""
    offset = moment.utcoffset()
    if offset is None or offset % dt.timedelta(minutes=1) or abs(offset) > _ZONE:
        return False
    return 0 <= moment.timestamp() < _LAST_DATE


def _checked_date(date: str) -> str:
    if not is_git_date(dt.datetime.fromisoformat(date)):
        raise ValueError("not a date with a zone, such as 2026-10-01T12:00:00+02:00")
    return date


_LAST_DATE = 2**32  # seconds after 1970, the year 2106
_ZONE = dt.timedelta(hours=14)


@dataclass(frozen=True, slots=True, kw_only=True)
class Original(TomlTable):
    """``[commit]``: the commit or patch file that the patch was imported from.

    Commits of the patch get its ``author``, its ``date`` (RFC 3339), and its ``subject``, which may be longer
    than the title; the message below the subject is ``why``. ``file``: the name of the patch file.
    """

    author: _Author | None = None
    date: Annotated[str, AfterValidator(_checked_date)] | None = None
    subject: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    file: Annotated[str, Field(pattern=r"^[^./\\][^/\\]*$", max_length=200)] | None = None


NOTHING_EXPECTED = Expected(effect="", source="")
"""The value for a patch without ``[expected]``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement(TomlTable):
    """``[[requires]]``: another patch that this one depends on."""

    named_by: ClassVar[str] = "patch"
    patch: PatchId
    why: Words
    where: NotInFile[Location] = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardMacros(TomlTable):
    """``[guard]``: additional macros that must be defined for the patch's code to be compiled.

    ``family``: if the patch is enabled for one GPU of this family, its code is compiled for all of them. Only
    for code that does not depend on registers or LDS, which differ within a family. ``generic``: what to do
    in a device pass for no particular GPU (gfx11-generic, SPIR-V), where the host's exact id does not match.
    ``neutral``: the code has nothing that only AMD GPUs have: ``export --also nvidia`` may widen the guard.
    ``within_family``: upstream's own conditions let only the GPU's family reach the edits, so that a proposal
    needs none. ``host_chooses``: device edits do what upstream does, except in launches that host edits
    choose, so that the patch has a run-time switch although it changes kernels.
    """

    macros: Annotated[Several[_Macro], Field(min_length=1)]
    family: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")] | None = None
    generic: Annotated[
        Literal["error"] | None, Field(description="error: insert #error next to each edit of a pair")
    ] = None
    neutral: bool = False
    within_family: bool = False
    host_chooses: bool = False
    where: NotInFile[Location] = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile(TomlTable):
    """``[[file]]``: a file that the patch adds, or that replaces one of upstream's.

    The content is a text (``template``), or the bytes of ``blob``, a file with this ``sha256``; both paths
    are relative to the patch folder. ``replaces`` is the sha256 of the upstream file that it replaces and
    whose mode it keeps. ``executable`` is for new files only.
    """

    named_by: ClassVar[str] = "path"
    path: _Path
    template: _OwnFile | None = None
    blob: _OwnFile | None = None
    sha256: _Digest | None = None
    replaces: _Digest | None = None
    executable: bool = False
    first_build: _Build | None = None
    last_build: _Build | None = None
    where: NotInFile[Location] = NOWHERE

    def __post_init__(self) -> None:
        _check_order(self)
        if (self.template is None) == (self.blob is None):
            raise ValueError("give either 'template' or 'blob'")
        if (self.blob is None) != (self.sha256 is None):
            raise ValueError("'blob' needs 'sha256', and 'sha256' needs 'blob'")
        if self.executable and self.replaces is not None:
            raise ValueError("a file that replaces another keeps its mode; use [[mode]] to change it")

    @property
    def is_text(self) -> bool:
        """Whether it is a new, non-executable text file, the only kind that a guarded patch may add."""
        return self.template is not None and self.replaces is None and not self.executable


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedFile(TomlTable):
    """``[[remove]]``: an upstream file to remove, provided that it has this ``sha256``."""

    named_by: ClassVar[str] = "path"
    path: _Path
    sha256: _Digest
    where: NotInFile[Location] = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class RenamedFile(TomlTable):
    """``[[rename]]``: an upstream file to move to another path, with its content as it is in upstream.

    Edits of the file use its upstream path, ``from``.
    """

    named_by: ClassVar[str] = "from"
    source: Annotated[_Path, Field(alias="from")]
    to: _Path
    where: NotInFile[Location] = NOWHERE

    def __post_init__(self) -> None:
        if self.source == self.to:
            raise ValueError("'from' and 'to' are the same path")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMode(TomlTable):
    """``[[mode]]``: whether an upstream file is ``executable`` (100755) or not (100644)."""

    named_by: ClassVar[str] = "path"
    path: _Path
    executable: bool
    where: NotInFile[Location] = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias(TomlTable):
    """``[[alias]]``: a macro defined before ``function``.

    It expands to ``device`` under the device guard and to ``upstream`` elsewhere.
    """

    named_by: ClassVar[str] = "name"
    name: _Macro
    file: _Path
    function: Words
    device: _Meaning
    upstream: _Meaning
    where: NotInFile[Location] = NOWHERE


_NEEDS: dict[str, tuple[str, ...]] = {
    "change_to": ("at", "text"),
    "insert_before": ("at", "text"),
    "insert_after": ("at", "text"),
    "remove": ("at",),
    "add_include": ("header",),
    "use_alias": ("at", "alias"),
}
_MAY_HAVE: dict[str, tuple[str, ...]] = {"add_include": ("at",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit(TomlTable):
    """``[[edit]]``: one structural change. ``function`` None: the edit is located in the file as a whole.

    ``parameters`` selects one of several functions of the same name: a token pattern that its parameter list
    must contain. ``count`` is the exact number of places. ``text`` is template source, given inline or as a
    file. ``side`` is None in plain patches. ``digest`` pins the entity by the sha256 of its tokens: the edit
    is placed in exactly this one, or not at all. ``optional``: skip it where it does not fit.
    ``first_build`` and ``last_build``: the builds that the edit is for, both included; None: the limit is
    that of the patch. The same id may occur several times, for consecutive ranges of builds.
    """

    named_by: ClassVar[str] = "id"
    id: PatchId
    file: _Path
    first_build: _Build | None = None
    last_build: _Build | None = None
    function: Words | None = None
    parameters: Words | None = None
    at: Selector | None = None
    verb: Verb
    side: Side | None = None
    count: _Build = 1
    digest: _Digest | None = None
    optional: bool = False
    text: Words | None = None
    template: _OwnFile | None = None
    alias: _Macro | None = None
    header: _Header | None = None
    pairs: Several[str] = ()
    where: NotInFile[Location] = NOWHERE

    def __post_init__(self) -> None:
        _check_order(self)
        given = {name for name in ("at", "alias", "header") if getattr(self, name) is not None}
        if self.text is not None and self.template is not None:
            raise ValueError("give 'text' or 'template', not both")
        if self.text is not None or self.template is not None:
            given.add("text")
        needed = set(_NEEDS[self.verb])
        if missing := sorted(needed - given):
            raise ValueError(f"verb '{self.verb}' needs {' and '.join(missing)}")
        if extra := sorted(given - needed - set(_MAY_HAVE.get(self.verb, ()))):
            raise ValueError(f"verb '{self.verb}' takes no {' and no '.join(extra)}")
        if self.at is not None and (self.at.before or self.at.after) and "insert" not in self.verb:
            raise ValueError(
                f"'before' and 'after' select an empty place, so verb '{self.verb}' has nothing to act on"
            )
        if self.verb == "add_include" and self.at is not None and self.at.include is None:
            raise ValueError(
                "'at' of verb 'add_include' must be the include to insert before: { include = ... }"
            )
        if (self.at is None or self.verb == "add_include") and self.count != 1:
            raise ValueError(f"'count' is the number of places of 'at', and verb '{self.verb}' has one place")
        if self.parameters is not None and self.function is None:
            raise ValueError("'parameters' selects one of several overloads, so it needs 'function'")
        if self.digest is not None and self.function is None:
            raise ValueError("'digest' pins a function, so it needs 'function'")


def _check_order(part: Edit | NewFile) -> None:
    first, last = part.first_build, part.last_build
    if first is not None and last is not None and last < first:
        raise ValueError(f"last_build ({last}) is before first_build ({first})")


PatchPart = Edit | NewFile


def path_of(part: PatchPart) -> str:
    """The path of the file that an edit changes, or that is added."""
    return part.file if isinstance(part, Edit) else part.path


def is_for(part: PatchPart, build: int) -> bool:
    """Whether an edit or a new file is for ``build`` by its own ``first_build`` and ``last_build``."""
    after = part.first_build is None or part.first_build <= build
    return after and (part.last_build is None or build <= part.last_build)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream(TomlTable):
    """``[upstream]``: the state of the patch upstream; ``since`` is the date on which the patch was started.

    For an imported pull request: ``head`` is its commit at the time of the import, ``base`` where it left the
    main line, and ``digest`` that of the edits as written by the import, to detect manual changes.
    """

    url: Words | None = None
    head: _Commit | None = None
    base: _Commit | None = None
    digest: _Digest | None = None
    merged_in: _Build | None = None
    reason: Words | None = None
    since: dt.date | None = None

    def __post_init__(self) -> None:
        if (self.head is None) != (self.base is None):
            raise ValueError("'head' and 'base' are the two ends of one change: give both or neither")
        if self.head is not None and self.url is None:
            raise ValueError("'head' is the head of a pull request, so it needs its 'url'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expires(TomlTable):
    """``[expires]``: the build or the date after which the patch needs a review."""

    build: _Build | None = None
    on: dt.date | None = None
    why: Prose

    def __post_init__(self) -> None:
        if (self.build is None) == (self.on is None):
            raise ValueError("give either 'build' or 'on'")

    def expired(self, build: int, today: dt.date) -> str | None:
        """Why the patch needs a review now; None if it does not."""
        if self.build is not None and build > self.build:
            return f"expired after {build_name(self.build)}: {self.why}"
        if self.on is not None and today > self.on:
            return f"expired on {self.on.isoformat()}: {self.why}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchHeader(TomlTable):
    """``[switches]``: the patch adds the run-time switches of the others, declared in the file ``header``.

    Its edits are of host code and compute nothing: gates choose their cases without its files.
    """

    header: _Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement(TomlTable):
    """``[[replaced_by]]``: a token pattern in an upstream function that shows that upstream has it."""

    file: Words
    function: Words
    tokens: Words
    why: Prose


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch(TomlTable):
    """One patch.toml."""

    named_by: ClassVar[str] = "id"
    id: PatchId
    title: Annotated[str, Field(min_length=1, max_length=72)]
    why: Prose | None = None
    links: Several[str] = ()
    authors: Several[_Author] = ()
    commit: Original | None = None
    status: Status = "not-submitted"
    without: Prose | None = None
    context: Several[str] = ()
    builds: BuildRange
    expected: Expected = NOTHING_EXPECTED
    guard: GuardMacros | Literal["none"]
    requires: Several[Requirement] = ()
    files: Annotated[Several[NewFile], Field(alias="file")] = ()
    removes: Annotated[Several[RemovedFile], Field(alias="remove")] = ()
    renames: Annotated[Several[RenamedFile], Field(alias="rename")] = ()
    modes: Annotated[Several[FileMode], Field(alias="mode")] = ()
    aliases: Annotated[Several[Alias], Field(alias="alias")] = ()
    edits: Annotated[Several[Edit], Field(alias="edit")] = ()
    resources: ResourceRules = NOTHING_WORSE
    results: ResultRules | None = None
    upstream: Upstream | None = None
    expires: Expires | None = None
    replaced_by: Several[Replacement] = ()
    bench: BenchRules = NO_GAIN
    moves: Several[KernelMove] = ()
    launches: LaunchPromises = field(default_factory=LaunchPromises)
    speed: SpeedRules | None = None
    widths: Annotated[Several[WidthChange], Field(alias="width")] = ()
    switches: SwitchHeader | None = None
    number: NotInFile[int] = 0  # as in the folder's name
    folder: NotInFile[str] = ""
    claims: NotInFile[tuple[Claim, ...]] = ()  # from evidence.toml and the evidence files of the series
    of_other_builds: NotInFile[tuple[PatchPart, ...]] = ()  # by only()
    where: NotInFile[Location] = NOWHERE

    def __post_init__(self) -> None:
        if not self.edits and not self.files and not self._has_whole_files:
            raise ValueError(
                "a patch needs an [[edit]], a [[file]], a [[remove]], a [[rename]] or a [[mode]]"
            )
        self._check_sides()
        self._check_files()
        table = self.upstream
        if table is None:
            return  # no details: the status and the first link are enough
        needed = {"submitted": "url", "rejected": "reason", "backport": "merged_in"}.get(self.status)
        if needed is not None and getattr(table, needed) is None:
            raise ValueError(f"status '{self.status}' needs [upstream] {needed}")
        if self.status != "backport" and table.merged_in is not None:
            raise ValueError(f"merged_in does not go with status '{self.status}'; use status 'backport'")

    def _check_sides(self) -> None:
        for edit in self.edits:
            if not self.is_plain and edit.side is None:
                raise ValueError(f'edit \'{edit.id}\' has no side: add side = "device" or side = "host"')
            if self.is_plain and edit.side is not None:
                raise ValueError(
                    f"edit '{edit.id}' must not have a side: guard = \"none\" is for every backend"
                )
            if edit.optional and not self.is_plain:
                raise ValueError(
                    f"edit '{edit.id}' must not be optional, because guarded edits depend on each other"
                )
            if self.is_plain and edit.verb in ("add_include", "use_alias"):
                raise ValueError(
                    f"verb '{edit.verb}' is for guarded patches only; write the lines themselves"
                )
        if self.is_plain and self.aliases:
            raise ValueError("aliases are for guarded patches only; write the lines themselves")

    def _check_files(self) -> None:
        """Reject changes to whole files in a guarded patch: a preprocessor guard cannot limit them."""
        if self.is_plain:
            return
        tables = {"[[remove]]": self.removes, "[[rename]]": self.renames, "[[mode]]": self.modes}
        given = [name for name, table in tables.items() if table]
        given += [f"'{file.path}' is not a new text file" for file in self.files if not file.is_text]
        if given:
            raise ValueError(f'{given[0]}: this affects every backend, so it needs guard = "none"')

    @property
    def found_files(self) -> frozenset[str]:
        """The upstream files that the patch edits, replaces, removes, renames or changes the mode of."""
        return frozenset(
            [
                *(edit.file for edit in self.edits),
                *(file.path for file in self.files if file.replaces is not None),
                *(file.path for file in self.removes),
                *(file.source for file in self.renames),
                *(file.path for file in self.modes),
            ]
        )

    @property
    def format_files(self) -> tuple[str, ...]:
        """One line for each change to a whole file, to show to the user."""
        return (
            *(f"new file {file.path}" for file in self.files if file.replaces is None),
            *(f"replaces {file.path}" for file in self.files if file.replaces is not None),
            *(f"removes {file.path}" for file in self.removes),
            *(f"renames {file.source} to {file.to}" for file in self.renames),
            *(f"{file.path} is {'' if file.executable else 'not '}executable" for file in self.modes),
        )

    @property
    def touched_files(self) -> frozenset[str]:
        """Every path that the patch changes, including files that it adds and the targets of renames."""
        return self.found_files.union((file.path for file in self.files), (file.to for file in self.renames))

    def without_edits(self, ids: Collection[str]) -> Patch:
        """The patch without some of its edits."""
        if not ids:
            return self
        return self.only((*(edit for edit in self.edits if edit.id not in ids), *self.files))

    def for_build(self, build: int) -> Patch:
        """The patch with the edits and files that are for ``build``; unchanged if none of them is."""
        wanted = [each for each in self.parts if is_for(each, build)]
        if len(wanted) == len(self.parts) or not (wanted or self._has_whole_files):
            return self
        return self.only(wanted)

    def only(self, parts: Collection[PatchPart]) -> Patch:
        """The patch with only these of its edits and files."""
        return replace(
            self,
            edits=tuple(each for each in self.edits if each in parts),
            files=tuple(each for each in self.files if each in parts),
            of_other_builds=(*self.of_other_builds, *(each for each in self.parts if each not in parts)),
        )

    @property
    def parts(self) -> tuple[PatchPart, ...]:
        """Its edits and new files."""
        return (*self.edits, *self.files)

    @property
    def _has_whole_files(self) -> bool:
        return bool(self.removes or self.renames or self.modes)

    @property
    def turns(self) -> tuple[int, ...]:
        """The first build of the patch's range, and each later one at which its edits or files change."""
        begins = [each.first_build for each in self.parts if each.first_build is not None]
        begins += [each.last_build + 1 for each in self.parts if each.last_build is not None]
        return tuple(sorted({self.builds.first, *(each for each in begins if self.builds.covers(each))}))

    @property
    def is_plain(self) -> bool:
        """Whether the patch has no guard: it is for every GPU and backend."""
        return self.guard == "none"

    @property
    def macros(self) -> tuple[str, ...]:
        """The macros of its guard; none for a plain patch."""
        return self.guard.macros if isinstance(self.guard, GuardMacros) else ()

    @property
    def undocumented(self) -> tuple[str, ...]:
        """One line per missing key that the patch needs before its result is recorded or published."""
        lines = {
            'why = "..."  # the reason, for readers of git log in a year': self.why,
            'links = ["..."]  # where it was discussed': self.links,
            'without = "..."  # what fails or is lost without it': self.without,
            'expected = { effect = "...", source = "..." }  # the expected effect, and who measured it': (
                self.expected.effect
            ),
        }
        return tuple(line for line, given in lines.items() if not given)

    @property
    def upstream_text(self) -> str:
        """The state of the patch upstream, to show to the user."""
        table = self.upstream
        match self.status:
            case "not-submitted":
                return "not submitted"
            case "submitted":
                return f"submitted: {table.url if table is not None else ', '.join(self.links[:1])}"
            case "backport":
                build = table.merged_in if table is not None else None
                return f"merged in {build_name(build)}" if build is not None else "merged, build not recorded"
            case "rejected":
                return f"rejected: {table.reason if table is not None else 'no reason recorded'}"


def parse_patch(document: Document, *, folder: str, number: int) -> Patch:
    """Validate one patch.toml.

    Raises an ErrorGroup of ConfigErrors, each with file:line:column and suggestions for misspelt keys.
    """
    patch = validate(document, Patch, what="patch")
    if unfit := list(check_texts(document)):
        raise ErrorGroup(f"{document.path} has invalid texts", unfit)
    return replace(patch, folder=folder, number=number)
