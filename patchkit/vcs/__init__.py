"""Running git: objects, commits, refs, checkouts, exported series. Alone in importing GitPython."""

from __future__ import annotations
