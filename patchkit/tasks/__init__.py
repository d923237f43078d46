"""Many independent jobs on this machine's cores, or on a Dask cluster that somebody else runs."""

from __future__ import annotations
