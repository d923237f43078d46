"""How many waves a GPU keeps resident, and the parameters of the WMMA attention kernel. Pure: no I/O."""

from __future__ import annotations
