"""The pinned tree, from git or from an sdist, verified, in the user's cache."""

from __future__ import annotations
