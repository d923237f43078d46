"""HTML from templates of patchkit's own, with everything that is filled in escaped.

Vocabulary: a *page* is one file that needs no other. The templates lie in the package, so they are trusted;
what they are filled with is not. In :mod:`patchkit.render.environment` it is the other way round: there,
templates come from a series, and they print code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import jinja2


def render_page(folder: Path, name: str, context: Mapping[str, object]) -> str:
    """Fill the template ``name`` of ``folder``; a name that the context lacks is an error, never empty."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(name).render(dict(context))
