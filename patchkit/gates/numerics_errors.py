"""What the numerics gate finds, and why a measurement proves nothing."""

from __future__ import annotations

from patchkit.gates.base import GateError


class NumbersWrong(GateError):
    """The kernel computes something else than attention with a setting."""

    code = "NUMERICS_WRONG"


class OtherKernelRan(GateError):
    """Another kernel, or another setting of it, was launched than what was to be measured."""

    code = "NUMERICS_OTHER_KERNEL"


class PointNotMeasured(GateError):
    """A setting that a table asks for has no case that ran, or too few of them."""

    code = "NUMERICS_NOT_MEASURED"


class PlantedUnnoticed(GateError):
    """A setting that breaks the kernel's rules on purpose passed: the measurement sees nothing."""

    code = "NUMERICS_BLIND"


class ResultsForeign(GateError):
    """The results are of another candidate."""

    code = "NUMERICS_FOREIGN"


class JobTimedOut(GateError):
    """A program did not end within its limit."""

    code = "NUMERICS_TIMEOUT"


class JobCrashed(GateError):
    """A program was ended by a signal, or ended with a status of its own."""

    code = "NUMERICS_CRASH"


class JobUnfinished(GateError):
    """The output of a program stops in the middle, or its count is not what it printed."""

    code = "NUMERICS_UNFINISHED"


class NvidiaGpuLost(GateError):
    """A program ended with an error of CUDA, or the GPU does not answer any more."""

    code = "NVIDIA_GPU_LOST"


class CudaObjectsDiffer(GateError):
    """nvcc makes something else of the candidate than of the baseline."""

    code = "CUDA_OBJECTS_DIFFER"


class CudaCountsDiffer(GateError):
    """Upstream's tests give another result on CUDA with the candidate than with the baseline."""

    code = "CUDA_COUNTS_DIFFER"


class CudaSlower(GateError):
    """Attention on CUDA is slower with the candidate than with the baseline, beyond noise."""

    code = "CUDA_SLOWER"
