"""What isolation finds: each way in which a candidate changes what it must not change."""

from __future__ import annotations

from patchkit.gates.base import GateError


class TokensDiffer(GateError):
    """A unit reads differently in a configuration that no patch is for."""

    code = "ISOLATION_TOKENS"


class UnreadableUnit(GateError):
    """A unit that could be preprocessed in the baseline cannot in the candidate."""

    code = "ISOLATION_UNREADABLE"


class UnitListDiffers(GateError):
    """The candidate adds or removes a unit: every GPU's build changes."""

    code = "ISOLATION_UNITS"


class FileUnreached(GateError):
    """A changed file that no unit of any GPU backend includes: nothing here can say what it changes."""

    code = "ISOLATION_UNREACHED"


class HostBranchLeaks(GateError):
    """The host pass of HIP changes by more than the branch at run time."""

    code = "ISOLATION_HOST"


class DeviceCodeDiffers(GateError):
    """The compiler writes other device code for a GPU that no patch is for."""

    code = "ISOLATION_DEVICE_CODE"
