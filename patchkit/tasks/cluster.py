"""The workers of a Dask cluster as an executor. The one module that knows Dask.

The cluster is somebody else's: it is asked, used and left as it was. Every worker must have this
patchkit and this minor version of Python, because jobs travel as pickled names of its functions.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING

from patchkit.errors import ToolchainError, UsageError

if TYPE_CHECKING:
    from distributed import Client

_ADDRESS = re.compile(r"(tcp|tls)://[^\s/:]+:\d{1,5}|tcp://\[[0-9a-fA-F:]+\]:\d{1,5}")
_CONNECT_S = 10.0
_WORKERS_S = 10.0


@contextmanager
def cluster_pool(address: str) -> Iterator[Executor]:
    """An executor that hands jobs to the workers of the scheduler at ``address``.

    Raises:
        SCHEDULER_ADDRESS: no ``tcp://host:port``.
        SCHEDULER_LIBRARY_MISSING: Dask is not installed here.
        SCHEDULER_UNREACHABLE: nothing answers within ten seconds, or no worker is there.
        WORKERS_DIFFER: a worker has another patchkit or Python, or none.
    """
    if _ADDRESS.fullmatch(address) is None:
        raise UsageError(
            f"'{address}' is no address of a Dask scheduler",
            code="SCHEDULER_ADDRESS",
            hint="like --scheduler tcp://localhost:8786",
        )
    client = _connect(address)
    try:
        _check_workers(client, address)
        with client.get_executor(pure=False) as executor:
            yield executor
    finally:
        client.close()


def _connect(address: str) -> Client:
    try:
        from distributed import Client  # noqa: PLC0415 - optional
    except ImportError as error:
        raise ToolchainError(
            "--scheduler needs Dask, which is not installed",
            code="SCHEDULER_LIBRARY_MISSING",
            why=str(error),
            hint="pip install 'patchkit[distributed]'",
        ) from error
    try:
        client = Client(address, timeout=_CONNECT_S, set_as_default=False)
        try:
            client.wait_for_workers(1, timeout=_WORKERS_S)
        except BaseException:
            client.close()
            raise
    except (OSError, TimeoutError) as error:
        raise ToolchainError(
            f"no Dask scheduler with workers answers at {address}",
            code="SCHEDULER_UNREACHABLE",
            why=str(error) or "no answer in time",
            hint="start one with: dask scheduler; and on each machine: dask worker ADDRESS",
        ) from error
    return client


def _check_workers(client: Client, address: str) -> None:
    ours = _versions()
    try:
        theirs = client.run(_versions)
    except (ImportError, AttributeError) as error:  # raised on the worker: it cannot import this module
        raise ToolchainError(
            f"a worker at {address} has no patchkit",
            code="WORKERS_DIFFER",
            why=str(error),
            hint=f"install this on every machine: {ours}",
        ) from error
    other = {worker: told for worker, told in theirs.items() if told != ours}
    if other:
        worker, told = next(iter(other.items()))
        raise ToolchainError(
            f"{len(other)} of {len(theirs)} workers at {address} are not like this patchkit",
            code="WORKERS_DIFFER",
            why=f"{worker} has {told}, here is {ours}",
            hint="use the same Python and the same patchkit on every machine",
        )


def _versions() -> str:
    return f"patchkit {version('patchkit')}, Python {sys.version_info.major}.{sys.version_info.minor}"
