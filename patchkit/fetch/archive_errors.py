"""Why an archive is refused. Vocabulary: see :mod:`patchkit.fetch.archive`."""

from __future__ import annotations

from patchkit.errors import SourceError


class ArchiveDamaged(SourceError):
    """It is no gzip-compressed tar file, or is cut short."""

    code = "ARCHIVE_DAMAGED"


class ArchiveAbsolutePath(SourceError):
    """An entry has an absolute path."""

    code = "ARCHIVE_ABSOLUTE_PATH"


class ArchiveParentPath(SourceError):
    """An entry has ``..`` in its path."""

    code = "ARCHIVE_PARENT_PATH"


class ArchivePathTooLong(SourceError):
    """An entry has a path longer than any file system takes."""

    code = "ARCHIVE_PATH_TOO_LONG"


class ArchiveLinkOutside(SourceError):
    """A link leads out of the tree, or to something that is not there yet."""

    code = "ARCHIVE_LINK_OUTSIDE"


class ArchiveSpecialFile(SourceError):
    """An entry is a device, a pipe or the like."""

    code = "ARCHIVE_SPECIAL_FILE"


class ArchiveDuplicate(SourceError):
    """Two entries would take the same place, on some file system at least."""

    code = "ARCHIVE_DUPLICATE"


class ArchiveGitFolder(SourceError):
    """An entry lies in a ``.git`` folder."""

    code = "ARCHIVE_GIT_FOLDER"


class ArchiveTooManyMembers(SourceError):
    """It has too many entries."""

    code = "ARCHIVE_TOO_MANY_MEMBERS"


class ArchiveFileTooLarge(SourceError):
    """One entry alone is too large."""

    code = "ARCHIVE_FILE_TOO_LARGE"
