"""What can be wrong with evidence that a report is to be made of."""

from __future__ import annotations

from patchkit.errors import UsageError


class EvidenceUnreadable(UsageError):
    """A file of evidence is not JSON text of a size that patchkit writes."""

    code = "EVIDENCE_UNREADABLE"


class EvidenceMalformed(UsageError):
    """A value in a file of evidence is missing, of another type, or out of range."""

    code = "EVIDENCE_MALFORMED"


class EvidenceContradicts(UsageError):
    """The report and the file of one gate are not of the same run, or a report cannot be true."""

    code = "EVIDENCE_CONTRADICTS"
