"""What can be wrong with a pool of workers."""

from __future__ import annotations

from patchkit.errors import ToolchainError, UsageError


class SchedulerAddress(UsageError):
    """``--scheduler`` names no place a Dask scheduler could be at."""

    code = "SCHEDULER_ADDRESS"


class SchedulerLibraryMissing(ToolchainError):
    """``--scheduler`` needs a library that is not installed."""

    code = "SCHEDULER_LIBRARY_MISSING"


class SchedulerUnreachable(ToolchainError):
    """No Dask scheduler answers at the address, or it has no workers."""

    code = "SCHEDULER_UNREACHABLE"


class WorkersDiffer(ToolchainError):
    """A worker of the cluster has no patchkit, or not this one."""

    code = "WORKERS_DIFFER"


class WorkerLost(ToolchainError):
    """A worker went away in the middle of a job, and the job with it."""

    code = "WORKER_LOST"
