"""What can be wrong with a GGUF file; each kind has a code of its own."""

from __future__ import annotations

from patchkit.errors import UsageError


class GgufError(UsageError):
    """A file named as a model cannot be used as one."""

    code = "GGUF"


class GgufUnreadable(GgufError):
    """There is no such file, or the system does not let it be read."""

    code = "GGUF_UNREADABLE"


class GgufNotOne(GgufError):
    """The file does not begin as a GGUF file does."""

    code = "GGUF_NOT_ONE"


class GgufVersionUnknown(GgufError):
    """A version, or an order of bytes, that is not read here."""

    code = "GGUF_VERSION_UNKNOWN"


class GgufTruncated(GgufError):
    """The file ends before what its header announces."""

    code = "GGUF_TRUNCATED"


class GgufTooLarge(GgufError):
    """The header announces more than any model has."""

    code = "GGUF_TOO_LARGE"


class GgufMalformed(GgufError):
    """The header contradicts itself, or the format."""

    code = "GGUF_MALFORMED"


class GgufPartMissing(GgufError):
    """The model is split over several files and not all of them belong together or are there."""

    code = "GGUF_PART_MISSING"
