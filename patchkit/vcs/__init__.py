"""Running git: objects, commits, refs, worktrees, exported series. Alone in importing GitPython."""

from __future__ import annotations
