"""Writes the pages of docs/reference/ that say what the program says: commands, files, gates and formats.

All of the text comes from click, from the tables of the registries, from the exit codes and from the JSON
schemas. ``python ci/reference.py`` says whether the committed pages are up to date; ``--write``
writes them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from pydantic import TypeAdapter

from patchkit.base.errors import ExitCode
from patchkit.base.toml import TomlTable
from patchkit.carry.upstream.sources import SOURCES
from patchkit.cli.commands import COMMANDS, Verbs
from patchkit.cli.schema import make_schemas
from patchkit.gpu.emulated.checks import CHECKS
from patchkit.gpu.emulated.findings import Suppression
from patchkit.gpu.modelled.machine import TimingFile
from patchkit.gpu.modelled.shape import ShapeModel
from patchkit.prove.gates.registry import entries
from patchkit.prove.report.registry import FORMATS
from patchkit.tune.registry import KERNELS

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
_NOTE = (
    "Made by `ci/reference.py` from the program itself; a test compares. Change the program, not this page."
)

# Files that people write and that no editor has a schema for: the name, where they lie, their outer table.
_MORE_FILES: tuple[tuple[str, str, type[TomlTable]], ...] = (
    ("timing file", "`arch_profiles/timing/<gfx>.toml`", TimingFile),
    ("model shape", "`arch_profiles/models/<name>.toml`, `--shape`", ShapeModel),
    ("known findings", "`--suppressions`, tables `[[suppress]]`", Suppression),
)


def reference() -> dict[str, str]:
    """The pages by the names of their files."""
    return {
        "commands.md": _page("Commands", _commands()),
        "files.md": _page("Keys of files", _files()),
        "gates-and-formats.md": _page("Gates, checks, formats, kernels, sources, exit codes", _tables()),
    }


def _page(title: str, lines: Iterable[str]) -> str:
    return "\n".join([f"# {title}", "", _NOTE, "", *lines]).rstrip() + "\n"


def _tables() -> Iterator[str]:
    yield from _gates()
    yield from _checks()
    yield from _formats()
    yield from _kernels()
    yield from _sources()
    yield from _exit_codes()


def _commands() -> Iterator[str]:
    verbs = Verbs(name="patchkit")
    context = click.Context(verbs, info_name="patchkit")
    commands = {name: verbs.get_command(context, name) for name in COMMANDS}
    shared = _shared([command for command in commands.values() if command is not None])
    yield from ["| command | |", "|---|---|"]
    yield from (f"| [`{name}`](#patchkit-{name}) | {_cell(about)} |" for name, about in COMMANDS.items())
    yield from ["", "## Options of every command", ""]
    first = commands[next(iter(COMMANDS))]
    assert first is not None  # noqa: S101  the table names modules that exist; a test imports each
    yield from _options([each for each in first.params if each.name in shared], context)
    for name, command in commands.items():
        if command is not None:
            yield from _command(name, command, context, shared)


def _shared(commands: list[click.Command]) -> set[str]:
    names = [{str(each.name) for each in command.params} for command in commands]
    return set.intersection(*names)


def _command(path: str, command: click.Command, parent: click.Context, shared: set[str]) -> Iterator[str]:
    context = click.Context(command, info_name=path.rsplit(" ", maxsplit=1)[-1], parent=parent)
    level = "#" * (2 + path.count(" "))
    yield from [f"{level} patchkit {path}", ""]
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
    yield from ["## Gates", ""]
    yield from ["In order of cost; what each compares: [Rules](gate-rules.md).", ""]
    yield from ["| gate | runs | proves |", "|---|---|---|"]
    runs = {
        "anywhere": "anywhere",
        "device": "on the GPU, or the CPU",
        "emulated": "on the emulated GPU",
    }
    yield from (f"| `{gate.name}` | {runs[gate.runs_on]} | {_cell(gate.about)} |" for gate in entries())
    yield ""


def _checks() -> Iterator[str]:
    yield from [
        "## Checks",
        "",
        "Of `patchkit sanitize --check`; without it all but those on request. More: [Checks](checks.md).",
        "",
    ]
    yield from ["| check | finds | takes, besides time |", "|---|---|---|"]
    for check in CHECKS:
        name = f"`{check.name}`{', on request' if check.on_request else ''}"
        yield f"| {name} | {_cell(check.about)} | {_cell(check.costs)} |"
    yield ""


def _formats() -> Iterator[str]:
    yield from [
        "## Report formats",
        "",
        "Of `patchkit report --format`; what is in them: [Reports](reports.md).",
        "",
    ]
    yield from ["| format | option of `verify` | |", "|---|---|---|"]
    for form in FORMATS:
        option = f"`--{form.name}`" if form.option else ""
        yield f"| `{form.name}` | {option} | {_cell(form.about)} |"
    yield ""


def _kernels() -> Iterator[str]:
    yield from ["## Kernels", "", "Of `patchkit tune --kernel`.", "", "| kernel | tuned is |", "|---|---|"]
    yield from (f"| `{kernel.name}` | {_cell(kernel.about)} |" for kernel in KERNELS)
    yield ""


def _sources() -> Iterator[str]:
    yield from ["## Sources", "", "Of a pin, in the order in which `--source auto` tries them.", ""]
    yield from ["| source | |", "|---|---|"]
    yield from (f"| `{kind.name}` | {_cell(kind.about)} |" for kind in SOURCES)
    yield ""


def _exit_codes() -> Iterator[str]:
    yield from ["## Exit codes", "", "| code | name |", "|---|---|"]
    yield from (f"| {int(code)} | `{code.name}` |" for code in ExitCode)
    yield ""


def _files() -> Iterator[str]:
    files: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for name, text in make_schemas().items():
        schema: Mapping[str, Any] = json.loads(text)
        files[str(schema["title"]).removeprefix("patchkit ")] = f"schema `{name}`", schema["$defs"]
    for file, lies, kind in _MORE_FILES:
        _, made = TypeAdapter.json_schemas([(kind.__name__, "validation", TypeAdapter(kind))])
        files[file] = lies, made["$defs"]
    tables = {file: _with_keys(definitions) for file, (_, definitions) in files.items()}
    yield from ["| file | | tables |", "|---|---|---|"]
    for file, (lies, _) in files.items():
        links = " ".join(f"[{title}]({_link(file, title)})" for title in tables[file])
        yield f"| {file} | {lies} | {links} |"
    yield ""
    for file, found in tables.items():
        yield from [f"## {file}", ""]
        for title, definition in found.items():
            yield from _keys(file, title, definition)


def _with_keys(definitions: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The tables of a file by name: definitions that have keys."""
    return {title: each for title, each in definitions.items() if each.get("properties")}


def _link(file: str, title: str) -> str:
    """To the heading of a table, which names its file: two files may have tables of one name."""
    return f"#{file.replace(' ', '-')}-{title}".lower()


def _keys(file: str, title: str, definition: Mapping[str, Any]) -> Iterator[str]:
    about = definition.get("description")
    yield from [f"### {file}: {title}", ""]
    if about:
        yield from [_flat(about), ""]
    needed = set(definition.get("required", ()))
    yield from ["| key | value | |", "|---|---|---|"]
    for key, value in definition["properties"].items():
        need = "required" if key in needed else "optional"
        text = _cell(value.get("description", ""))
        yield f"| `{key}` | {_cell(_type(file, value))} | {need}{': ' if text else ''}{text} |"
    yield ""


def _type(file: str, value: Mapping[str, Any]) -> str:  # noqa: PLR0911  one per kind of schema
    if "$ref" in value:
        title = value["$ref"].rsplit("/", 1)[-1]
        return f"[{title}]({_link(file, title)})"
    if "anyOf" in value:
        return " or ".join(
            dict.fromkeys(_type(file, each) for each in value["anyOf"] if each.get("type") != "null")
        )
    if "enum" in value:
        return ", ".join(f"`{each}`" for each in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    kind = str(value.get("type", "any"))
    if kind == "array":
        inner = value.get("items")
        return f"array of {_type(file, inner)}" if isinstance(inner, dict) else "array"
    if kind == "object" and isinstance(value.get("additionalProperties"), dict):
        return f"table of {_type(file, value['additionalProperties'])}"
    return {"object": "table"}.get(kind, kind)


def _flat(text: str) -> str:
    """Paragraphs of one line each."""
    return "\n\n".join(" ".join(part.split()) for part in text.replace("\b", "").split("\n\n"))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    """Write the pages, or say which of them are not what the program says."""
    pages = reference()
    if sys.argv[1:] == ["--write"]:
        for name, text in pages.items():
            (FOLDER / name).write_text(text, "utf-8")
        return
    stale = [
        f"docs/reference/{name}"
        for name, text in pages.items()
        if not (FOLDER / name).is_file() or (FOLDER / name).read_text("utf-8") != text
    ]
    if stale:
        sys.exit(f"not what the program says: {', '.join(stale)}\nwrite with: python ci/reference.py --write")


if __name__ == "__main__":
    main()
