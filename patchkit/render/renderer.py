"""Renders the texts of one patch and says precisely what is wrong when it cannot.

Vocabulary: the *context* is the set of names a patch declares (``context = [...]``) and gets; a
template that uses another name, or a declared name that none uses, is an error.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Mapping
from pathlib import Path

import jinja2
from jinja2.exceptions import SecurityError

from patchkit.config.manifest import Patch
from patchkit.errors import Location, RenderError
from patchkit.render.bounds import MAX_OUTPUT, NotText, OutputTooLarge
from patchkit.render.environment import Unreadable, make_environment, undeclared_names


class TemplateMissing(RenderError):
    """No template of that name in the patch's folder or among the shared ones."""

    code = "TEMPLATE_MISSING"


class TemplateSyntax(RenderError):
    """The template is not one."""

    code = "TEMPLATE_SYNTAX"


class TemplateForbidden(RenderError):
    """The template tries something the sandbox refuses."""

    code = "TEMPLATE_FORBIDDEN"


class PatchRenderer:
    """Renders the templates of one patch.

    ``folder`` is the patch's own, ``shared`` the folder of templates several patches use.
    """

    def __init__(self, patch: Patch, folder: Path, shared: Path, context: Mapping[str, object]) -> None:
        self._patch = patch
        self._environment = make_environment([folder, shared])
        self._context = {name: context[name] for name in patch.context if name in context}
        self._available = tuple(sorted(context))

    def text(self, source: str, where: Location) -> str:
        """Render a template given inline; ``where`` is its place in patch.toml. Raises RenderErrors."""
        try:
            template = self._environment.from_string(source)
            return self._environment.render_bounded(template, self._context)
        except Exception as exc:
            raise self._explain(exc, where) from exc

    def file(self, name: str, where: Location) -> str:
        """Render a template file. Raises RenderErrors."""
        try:
            template = self._environment.get_template(name)
            return self._environment.render_bounded(template, self._context)
        except Exception as exc:
            raise self._explain(exc, where) from exc

    def check_context(self) -> None:
        """Declared names equal used names, over all templates of the patch. Raises RenderErrors."""
        used: set[str] = set()
        for source, filename, where in self._sources():
            try:
                used |= undeclared_names(self._environment, source, filename)
            except Exception as exc:
                raise self._explain(exc, where) from exc
        declared = set(self._patch.context)
        problems = [f"'{name}' is used but not declared" for name in sorted(used - declared)]
        problems += [f"'{name}' is declared but not used" for name in sorted(declared - used)]
        problems += [f"'{name}' does not exist" for name in sorted(declared - set(self._available))]
        if problems:
            raise RenderError(
                f"patch '{self._patch.id}': {'; '.join(problems)}",
                code="TEMPLATE_CONTEXT",
                where=self._patch.where,
                hint=f"set context = {sorted(used)}; available: {', '.join(self._available)}",
            )

    def _sources(self) -> list[tuple[str, str | None, Location]]:
        """Every template of the patch: its text, its file if it has one, its place in patch.toml."""
        loader = self._environment.loader
        found: list[tuple[str, str | None, Location]] = []
        names: list[tuple[str, Location]] = [(file.template, file.where) for file in self._patch.files]
        for edit in self._patch.edits:
            if edit.text is not None:
                found.append((edit.text, None, edit.where))
            elif edit.template is not None:
                names.append((edit.template, edit.where))
        found += [(alias.device, None, alias.where) for alias in self._patch.aliases]
        for name, where in names:
            try:
                read = loader.get_source(self._environment, name) if loader is not None else ("", None)
            except Exception as exc:
                raise self._explain(exc, where) from exc
            found.append((read[0], read[1], where))
        return found

    def _explain(self, exc: Exception, where: Location) -> RenderError:  # noqa: PLR0911 - one per kind
        places = [place for place in (_template_place(exc, where), where) if place is not None]
        match exc:
            case jinja2.TemplateSyntaxError():
                line = exc.lineno if exc.filename else None
                place = Location(path=exc.filename or where.path, line=line or where.line, label=exc.message)
                return TemplateSyntax(
                    f"template syntax: {exc.message}",
                    where=[place, where],
                    hint="delimiters are @{ value }@, @% statement %@, //% line statement, @# comment #@",
                )
            case jinja2.TemplateNotFound():
                known = self._environment.list_templates()
                close = difflib.get_close_matches(str(exc.name), known, n=1)
                meant = (
                    f"did you mean '{close[0]}'?"
                    if close
                    else f"templates here: {', '.join(known) or 'none'}"
                )
                return TemplateMissing(f"no template '{exc.name}'", where=where, hint=meant)
            case jinja2.UndefinedError():
                return RenderError(
                    str(exc.message),
                    code="TEMPLATE_UNDEFINED",
                    where=places,
                    hint=f"the patch's context: {', '.join(self._patch.context) or 'nothing'}",
                )
            case SecurityError():
                return TemplateForbidden(
                    f"the sandbox refuses: {exc}",
                    where=places,
                    hint="templates only format the declared context",
                )
            case OutputTooLarge():
                return RenderError(
                    f"more than {MAX_OUTPUT} characters, or too many steps",
                    code="TEMPLATE_TOO_LARGE",
                    where=places,
                    hint="look for a loop or macro that repeats",
                )
            case NotText():
                return RenderError(
                    str(exc),
                    code="TEMPLATE_NOT_TEXT",
                    where=places,
                    hint="name a field of it, or choose a text with 'if' and 'else'",
                )
            case Unreadable():
                return RenderError(
                    "a template cannot be read as text",
                    code="TEMPLATE_UNREADABLE",
                    where=[Location(path=str(exc.path)), where],
                    why=exc.why,
                    hint="save the file as UTF-8 text without a byte order mark",
                )
            case _:
                return RenderError(
                    f"the template raised {type(exc).__name__}: {exc}",
                    code="TEMPLATE_FAILED",
                    where=places,
                    hint="run patchkit plan again after correcting the expression on that line",
                )


def _template_place(exc: Exception, where: Location) -> Location | None:
    """The innermost template line of a traceback; jinja2 rewrites frames to point into templates."""
    for frame in reversed(traceback.extract_tb(exc.__traceback__)):
        if frame.filename == "<template>":
            return Location(
                path=where.path, line=where.line, label=f"line {frame.lineno} of the text: {frame.line}"
            )
        if not frame.filename.endswith(".py"):
            return Location(path=frame.filename, line=frame.lineno, label=frame.line)
    return None
