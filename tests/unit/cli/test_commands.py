"""The table of the commands, and the help that is made of it."""

from __future__ import annotations

from pathlib import Path

from patchkit.cli import verbs
from patchkit.cli.app import main
from patchkit.cli.commands import COMMANDS, GROUPS


def test_every_command_is_in_exactly_one_group() -> None:
    named = [name for members in GROUPS.values() for name in members]
    assert sorted(named) == sorted(set(named))
    (folder,) = verbs.__path__
    modules = {path.stem.removesuffix("_") for path in Path(folder).glob("*.py")}
    assert {name for name in modules if not name.startswith("__")} == set(named) == set(COMMANDS)


def test_the_help_has_the_first_day_on_top_and_a_line_for_each_command(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    titles = [lines.index(f"{title}:") for title in GROUPS]
    assert titles == sorted(titles)
    assert titles[-1] < lines.index("Common options:")
    for start, members in zip(titles, GROUPS.values(), strict=True):
        shown = lines[start + 1 : start + 1 + len(members)]
        assert [line.split(maxsplit=1) for line in shown] == [list(row) for row in members.items()]
