"""Writes docs/reference.md: commands, gates, report formats, exit codes, the keys of files.

All of the text comes from click, from the exit codes and from the JSON schemas. ``python ci/reference.py``
says whether the committed file is up to date; ``--write`` writes it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from patchkit.base.errors import ExitCode
from patchkit.cli.commands import COMMANDS, Verbs
from patchkit.cli.schema import make_schemas
from patchkit.prove.gates.registry import entries
from patchkit.prove.report.registry import FORMATS

_TARGET = Path(__file__).resolve().parents[1] / "docs" / "reference.md"
_HEAD = """# Reference

Made by `ci/reference.py` from the program itself; a test compares. Change the program, not this file.
"""


def reference() -> str:
    """The whole document."""
    lines = [*_HEAD.splitlines(), "", *_commands(), *_gates(), *_formats(), *_exit_codes(), *_files()]
    return "\n".join(lines).rstrip() + "\n"


def _commands() -> Iterator[str]:
    verbs = Verbs(name="patchkit")
    context = click.Context(verbs, info_name="patchkit")
    commands = {name: verbs.get_command(context, name) for name in COMMANDS}
    shared = _shared([command for command in commands.values() if command is not None])
    yield from ["## Options of every command", ""]
    first = commands[next(iter(COMMANDS))]
    assert first is not None  # noqa: S101  the table names modules that exist; a test imports each
    yield from _options([each for each in first.params if each.name in shared], context)
    yield from ["## Commands", ""]
    for name, command in commands.items():
        if command is not None:
            yield from _command(name, command, context, shared)


def _shared(commands: list[click.Command]) -> set[str]:
    names = [{str(each.name) for each in command.params} for command in commands]
    return set.intersection(*names)


def _command(path: str, command: click.Command, parent: click.Context, shared: set[str]) -> Iterator[str]:
    context = click.Context(command, info_name=path.rsplit(" ", maxsplit=1)[-1], parent=parent)
    yield from [f"### patchkit {path}", ""]
    yield from [f"`{' '.join(['patchkit', path, *command.collect_usage_pieces(context)])}`", ""]
    yield from [_flat(command.help or command.short_help or ""), ""]
    yield from _options([each for each in command.params if each.name not in shared], context)
    if command.epilog:
        examples = [line.strip() for line in command.epilog.splitlines() if line.startswith("  ")]
        yield from ["```sh", *examples, "```", ""]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from _command(f"{path} {name}", inner, context, shared)


def _options(params: list[click.Parameter], context: click.Context) -> Iterator[str]:
    rows = [row for param in params if (row := param.get_help_record(context)) is not None]
    if not rows:
        return
    yield from ["| option | |", "|---|---|"]
    yield from (f"| `{_cell(option)}` | {_cell(text)} |" for option, text in rows)
    yield ""


def _gates() -> Iterator[str]:
    yield from ["## Gates", "", "In order of cost; [gates.md](gates.md) says how each proves it.", ""]
    yield from ["| gate | runs | proves |", "|---|---|---|"]
    runs = {
        "anywhere": "anywhere",
        "device": "on the GPU, or the CPU",
        "emulated": "on the emulated GPU",
    }
    yield from (f"| `{gate.name}` | {runs[gate.place]} | {_cell(gate.about)} |" for gate in entries())
    yield ""


def _formats() -> Iterator[str]:
    yield from ["## Report formats", "", "Of `patchkit report --format`.", ""]
    yield from ["| format | option of `verify` | |", "|---|---|---|"]
    for form in FORMATS:
        option = f"`--{form.name}`" if form.option else ""
        yield f"| `{form.name}` | {option} | {_cell(form.about)} |"
    yield ""


def _exit_codes() -> Iterator[str]:
    yield from ["## Exit codes", "", "| code | name |", "|---|---|"]
    yield from (f"| {int(code)} | `{code.name}` |" for code in ExitCode)
    yield ""


def _files() -> Iterator[str]:
    yield from ["## Files", ""]
    for name, text in make_schemas().items():
        schema: Mapping[str, Any] = json.loads(text)
        yield from [f"### {schema['title']}", "", f"Schema: `{name}`", ""]
        definitions: Mapping[str, Any] = schema["$defs"]
        for title, definition in definitions.items():
            if definition.get("properties"):
                yield from _keys(title, definition)


def _keys(title: str, definition: Mapping[str, Any]) -> Iterator[str]:
    about = definition.get("description")
    yield from [f"#### {title}", ""]
    if about:
        yield from [_flat(about), ""]
    needed = set(definition.get("required", ()))
    yield from ["| key | value | |", "|---|---|---|"]
    for key, value in definition["properties"].items():
        need = "required" if key in needed else "optional"
        text = _cell(value.get("description", ""))
        yield f"| `{key}` | {_cell(_type(value))} | {need}{': ' if text else ''}{text} |"
    yield ""


def _type(value: Mapping[str, Any]) -> str:  # noqa: PLR0911  one per kind of schema
    if "$ref" in value:
        return f"[{value['$ref'].rsplit('/', 1)[-1]}](#{value['$ref'].rsplit('/', 1)[-1].lower()})"
    if "anyOf" in value:
        return " or ".join(
            dict.fromkeys(_type(each) for each in value["anyOf"] if each.get("type") != "null")
        )
    if "enum" in value:
        return ", ".join(f"`{each}`" for each in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    kind = str(value.get("type", "any"))
    if kind == "array":
        inner = value.get("items")
        return f"array of {_type(inner)}" if isinstance(inner, dict) else "array"
    if kind == "object" and isinstance(value.get("additionalProperties"), dict):
        return f"table of {_type(value['additionalProperties'])}"
    return {"object": "table"}.get(kind, kind)


def _flat(text: str) -> str:
    """Paragraphs of one line each."""
    return "\n\n".join(" ".join(part.split()) for part in text.replace("\b", "").split("\n\n"))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    made = reference()
    if sys.argv[1:] == ["--write"]:
        _TARGET.write_text(made, "utf-8")
    elif not _TARGET.is_file() or _TARGET.read_text("utf-8") != made:
        sys.exit(
            "docs/reference.md is not what the program says\nwrite it with: python ci/reference.py --write"
        )
