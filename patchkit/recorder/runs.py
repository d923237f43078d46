"""Finished runs on disk, and reading what they launched.

Vocabulary: a *run* is one program on the recorder that ended well; a *record* is what became of one attention
case in it. A run whose output cannot be read is put aside, so that the next command records it anew.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from patchkit.errors import Location, ToolchainError
from patchkit.recorder.cases import Case, OpRow, SupportMalformed, parse_support
from patchkit.recorder.log import Recording, RecordingUnreadable, Section, parse_recording, sections_of
from patchkit.vcs.disk import disk_errors

_ENDS = ("done", "unsupported")  # of a case, native/fattn_cases.cpp


class RecordingIncomplete(ToolchainError):
    """A program on the recorder ended well, and its log lacks cases or how they ended."""

    code = "RECORDING_INCOMPLETE"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRecord:
    """What became of one case; ``blocks`` are executed basic blocks when the run was traced."""

    case: Case
    is_supported: bool
    section: Section


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """A finished run on disk: ``digest`` is the sha256 of its log, so equal runs need no reading."""

    folder: Path
    digest: str

    @property
    def log(self) -> Path:
        """The launch log."""
        return self.folder / "log.jsonl"

    def stdout(self) -> str:
        """What the program printed."""
        return (self.folder / "stdout").read_text("utf-8", "replace")

    def recording(self) -> Recording:
        """The launches. Raises RecordingUnreadable; the run is put aside then."""
        with self._put_aside_when_unreadable():
            return self._parsed()

    def records(self, cases: Sequence[Case]) -> tuple[CaseRecord, ...]:
        """What became of each of ``cases``, which this run was made for.

        Raises:
            RecordingUnreadable, RecordingIncomplete: the log is not what it must be; it is put aside.
        """
        with self._put_aside_when_unreadable():
            return case_records(cases, self._parsed())

    def support(self) -> tuple[OpRow, ...]:
        """The table it printed. Raises SupportMalformed; the run is put aside then."""
        with self._put_aside_when_unreadable():
            return parse_support(self.stdout())

    def _parsed(self) -> Recording:
        with self.log.open(encoding="utf-8", errors="replace") as lines:
            return parse_recording(lines, str(self.log))

    @contextmanager
    def _put_aside_when_unreadable(self) -> Iterator[None]:
        """Keep what cannot be read as evidence, but not as a result that is found again."""
        try:
            yield
        except (RecordingUnreadable, RecordingIncomplete, SupportMalformed) as error:
            aside = self.folder.with_name(f".unreadable-{self.folder.name[:16]}")
            with disk_errors(aside, "putting an unreadable recording aside"):
                shutil.rmtree(aside, ignore_errors=True)
                self.folder.rename(aside)
            place = aside if isinstance(error, SupportMalformed) else aside / self.log.name
            error.where = (Location(path=str(place), line=error.where[0].line if error.where else None),)
            error.hint = "run the command again: it records anew; what was written is kept in that folder"
            raise


def case_records(cases: Sequence[Case], recording: Recording) -> tuple[CaseRecord, ...]:
    """What became of each case of a run.

    Raises:
        RecordingIncomplete: a case has no end, or is not in the log, or is none of these.
    """
    by_id = {case.id: case for case in cases}
    records = []
    for name, sections in sections_of(recording, "case "):
        marks = [section.mark for section in sections]
        if name not in by_id:
            raise RecordingIncomplete(f"the launch log has a case '{name}' that nobody asked for")
        if len(sections) != 2 or marks[1] not in _ENDS:  # noqa: PLR2004  the case and how it ended
            raise RecordingIncomplete(f"case {by_id[name]} did not end", why=f"marks: {', '.join(marks)}")
        records.append(CaseRecord(case=by_id[name], is_supported=marks[1] == "done", section=sections[0]))
    if len(records) != len(cases):
        raise RecordingIncomplete(
            f"{len(cases)} attention cases were asked for, {len(records)} are in the log"
        )
    return tuple(records)
