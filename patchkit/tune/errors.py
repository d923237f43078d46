"""What can be wrong with tuning."""

from __future__ import annotations

from patchkit.errors import ConfigError, ToolchainError, UsageError


class KernelNotFound(ToolchainError):
    """Upstream's file does not hold the kernel, or its table, where the tuner looks for it."""

    code = "TUNE_KERNEL_NOT_FOUND"


class KernelUntunable(UsageError):
    """The kernel cannot be tuned for this GPU or at this build."""

    code = "TUNE_KERNEL_UNTUNABLE"


class NothingCompiled(ToolchainError):
    """Upstream's own setting of a variant does not compile: there is nothing to compare with."""

    code = "TUNE_NOTHING_COMPILED"


class ProfileNotWritten(ConfigError):
    """The table cannot be put into the profile."""

    code = "TUNE_PROFILE_NOT_WRITTEN"
