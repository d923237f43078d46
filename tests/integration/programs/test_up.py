"""``patchkit up``: install a build, go back to an earlier one, and never be without a good one."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from demo_world import FOLDER, SOURCE, World, make_series, make_upstream, pin_text
from shipped import SEED
from tiny_upstream import make_tiny_world

from patchkit.base.errors import ExitCode
from patchkit.cli.app import main
from patchkit.gpu.emulated.models import SmallModel
from patchkit.prove.subject import Subject
from patchkit.prove.up import Installation, list_installed


def installed(prefix: Path, name: str, made: str) -> Path:
    """A folder as ``up`` leaves it, with a program that prints its name."""
    folder = prefix / name
    folder.mkdir(parents=True)
    program = folder / "llama-server"
    program.write_text(f"#!/bin/sh\necho {name}\n")
    program.chmod(0o755)
    about = Installation(
        name=name,
        build=11549,
        branch="candidate/plain/b11549",
        commit="0" * 40,
        tree="1" * 40,
        archs=("plain",),
        patches=("one",),
        backend="cpu",
        compiler=None,
        programs=("llama-server",),
        made=made,
        checked="nothing ran: it was built for the CPU",
    )
    (folder / "patchkit.json").write_text(about.model_dump_json())
    return folder


def asked(capsys, *words: str, code: int = 0) -> dict[str, Any]:
    assert main(["up", *words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def said(prefix: Path) -> str:
    """What the current program prints."""
    done = subprocess.run([prefix / "current" / "llama-server"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_nothing_is_installed_at_first(tmp_path: Path, capsys) -> None:
    where = ("--prefix", str(tmp_path / "none"))
    assert asked(capsys, "--list", *where)["builds"] == []
    error = asked(capsys, "--rollback", *where, code=ExitCode.USAGE)["error"]
    assert (error["code"], "no previous build" in error["message"]) == ("UP_REFUSED", True)
    assert not (tmp_path / "none").exists()


def test_back_to_the_previous_build_and_to_a_named_one(tmp_path: Path, capsys) -> None:
    for number, name in enumerate(("first", "second", "third"), 1):
        installed(tmp_path, name, f"2026-11-0{number}T00:00:00+00:00")
    where = ("--prefix", str(tmp_path))
    asked(capsys, "--use", "second", *where)
    assert said(tmp_path) == "second"
    told = asked(capsys, "--use", "third", *where)
    assert (said(tmp_path), told["current"], told["previous"]) == ("third", "third", "second")
    told = asked(capsys, "--rollback", *where)
    assert (said(tmp_path), told["current"], told["previous"]) == ("second", "second", "third")
    assert [each["name"] for each in told["builds"]] == ["first", "second", "third"]
    error = asked(capsys, "--use", "fourth", *where, code=ExitCode.USAGE)["error"]
    assert "no build 'fourth'" in error["message"]
    assert said(tmp_path) == "second"


def test_folders_that_are_no_builds_are_not_listed(tmp_path: Path) -> None:
    installed(tmp_path, "real", "2026-11-01T00:00:00+00:00")
    (tmp_path / "mine").mkdir()
    (installed(tmp_path, "torn", "2026-11-02T00:00:00+00:00") / "patchkit.json").write_text('{"format": 1')
    (installed(tmp_path, "old", "2026-11-03T00:00:00+00:00")).rename(tmp_path / "renamed")
    (tmp_path / "current").symlink_to("mine")
    known = list_installed(tmp_path)
    assert ([each.name for each in known.builds], known.current) == (["real"], None)


def test_options_that_contradict_each_other(tmp_path: Path, capsys) -> None:
    error = asked(capsys, "--list", "--rollback", "--prefix", str(tmp_path), code=ExitCode.USAGE)["error"]
    assert error["code"] == "OPTIONS_CONTRADICT"


def test_update_needs_a_current_build_with_its_options(tmp_path: Path, capsys) -> None:
    where = ("--prefix", str(tmp_path))
    error = asked(capsys, "--update", *where, code=ExitCode.USAGE)["error"]
    assert (error["code"], "no current build" in error["message"]) == ("UP_REFUSED", True)
    installed(tmp_path, "old", "2026-11-01T00:00:00+00:00")  # as patchkit wrote it before --update
    asked(capsys, "--use", "old", *where)
    error = asked(capsys, "--update", *where, code=ExitCode.USAGE)["error"]
    assert "an earlier version of patchkit" in error["why"]
    for option in (("--arch", "gfx1100"), ("--without", "one"), ("--backend", "cpu"), ("--rollback",)):
        error = asked(capsys, "--update", *option, *where, code=ExitCode.USAGE)["error"]
        assert error["code"] == "OPTIONS_CONTRADICT"


@pytest.mark.cpu_build
def test_update_follows_the_series_and_keeps_the_last_good_build(tmp_path: Path, capsys) -> None:
    where = [
        *make_tiny_world(tmp_path, added={}, patches={"same": ("one", "return 1", "return 1 + 0")}),
        *("--prefix", str(tmp_path / "prefix")),
    ]
    patch = tmp_path / "series" / "patches" / "0001-same" / "patch.toml"

    def update(text: str, code: int = 0) -> dict[str, Any]:
        patch.write_text(re.sub("(?m)^text = .*$", f'text = "{text}"', patch.read_text()))
        return asked(capsys, "--update", *where, code=code)

    def version() -> str:
        program = tmp_path / "prefix" / "current" / "llama-cli"
        return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout

    first = asked(capsys, *where, "--arch", "plain", "--program", "llama-cli")
    assert version() == f"{first['installation']['commit'][:9]}+same\n"
    second = update("return 1 + 0 + 0")
    assert (second["is_new"], second["replaced"]) == (True, first["installation"]["name"])
    same = ("archs", "backend", "programs", "patches", "asked", "build")
    assert all(second["installation"][name] == first["installation"][name] for name in same)
    assert version() == f"{second['installation']['commit'][:9]}+same\n"
    assert update("return 1 + 0 + 0")["is_new"] is False
    # A patch that does not compile changes nothing.
    update("return undeclared", code=ExitCode.TOOLCHAIN)
    assert version() == f"{second['installation']['commit'][:9]}+same\n"
    # The series moves to another build.
    lock = tmp_path / "series" / "patches" / "upstream.lock"
    lock.write_text(pin_text(tmp_path / "upstream", 111))
    moved = update("return 1 + 0")
    assert (moved["installation"]["build"], moved["replaced"]) == (111, second["installation"]["name"])


@pytest.mark.parametrize("content", ["not json", "[]", '{"format": 1}', "", None])
def test_a_damaged_current_build_is_named(content: str | None, tmp_path: Path, capsys) -> None:
    folder = tmp_path / "b1"
    folder.mkdir()
    (tmp_path / "current").symlink_to("b1")
    if content is None:
        os.mkfifo(folder / "patchkit.json")
    else:
        (folder / "patchkit.json").write_text(content)
    error = asked(capsys, "--update", "--prefix", str(tmp_path), code=ExitCode.USAGE)["error"]
    assert (error["code"], error["where"][0]["path"]) == ("UP_REFUSED", str(folder))
    assert "no readable patchkit.json" in error["why"]
    assert asked(capsys, "--list", "--prefix", str(tmp_path))["builds"] == []


@pytest.mark.parametrize(
    ("content", "code", "match"),
    [
        (b"not a model", "GGUF_BAD", "not a GGUF file"),
        (b"", "GGUF_BAD", "not a GGUF"),
        (None, "MODEL_MISSING", ""),
    ],
)
def test_what_is_no_model_is_refused_before_anything_is_built(
    content: bytes | None, code: str, match: str, tmp_path: Path, capsys
) -> None:
    model, cache = tmp_path / "model.gguf", tmp_path / "cache"
    if content is not None:
        model.write_bytes(content)
    where = ("--arch", "plain", "--cache-dir", str(cache), "--prefix", str(tmp_path / "prefix"))
    error = asked(capsys, *where, "--model", str(model), code=ExitCode.USAGE)["error"]
    assert error["code"] == code
    assert match in error["message"]
    assert not (tmp_path / "prefix").exists()
    assert not (cache / "builds").exists()


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("--service", "systemd"), "requires --model"),
        (
            ("--service", "llama-swap", "--model", "MODEL", "--program", "llama-cli"),
            "the program llama-server",
        ),
    ],
)
def test_a_service_without_model_or_server_is_refused_before_anything_is_placed(
    words: tuple[str, ...], match: str, tmp_path: Path, capsys
) -> None:
    model = tmp_path / "model.gguf"
    SmallModel(head_size=64).write(model)
    given = [str(model) if word == "MODEL" else word for word in words]
    where = ("--arch", "plain", "--cache-dir", str(tmp_path / "cache"), "--prefix", str(tmp_path / "prefix"))
    error = asked(capsys, *where, *given, code=ExitCode.USAGE)["error"]
    assert error["code"] == "OPTIONS_CONTRADICT"
    assert match in error["message"]
    assert not (tmp_path / "prefix").exists()
    assert not (tmp_path / "cache" / "upstream.git").exists()


def test_without_rocm_the_hint_names_rocm_and_the_cpu_backend(
    tmp_path: Path, checkout: Path, capsys, monkeypatch
) -> None:
    """patchkit's SDK compiles GPU code without ROCm, but programs that are linked with it do not run."""
    monkeypatch.setattr("patchkit.toolchain.hip.rocm_locations", lambda _: iter(()))
    place = World(tmp_path, checkout)
    make_upstream(place.upstream, {1: {f"{FOLDER}/demo.cu": SOURCE, "include/llama.h": "\n"}})
    make_series(place, 1, ("gfx1151",), config=True, last=None)
    words = place.words("up", "--arch", "gfx1151", "--prefix", str(tmp_path / "prefix"))[1:]
    error = asked(capsys, *words, code=ExitCode.TOOLCHAIN)["error"]
    assert error["code"] == "TOOLCHAIN_MISSING"
    assert "patchkit doctor" in error["hint"]
    assert "--backend cpu" in error["hint"]


@pytest.mark.cpu_build
def test_a_service_starts_the_current_build_with_the_model(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    SmallModel(head_size=64).write(tmp_path / "tiny.gguf")
    where = [
        *make_tiny_world(tmp_path, added={}, patches={"same": ("one", "return 1", "return 1 + 0")}),
        *("--prefix", str(tmp_path / "prefix"), "--arch", "plain", "--program", "llama-server"),
    ]
    unit = tmp_path / "config" / "systemd" / "user" / "llama-server.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nExecStart=/usr/bin/true\n")
    service = ("--service", "systemd", "--model", "tiny.gguf")
    error = asked(capsys, *where, *service, code=ExitCode.USAGE)["error"]
    assert (error["code"], str(unit) in error["message"]) == ("UP_REFUSED", True)
    assert not (tmp_path / "prefix" / "current").exists()
    unit.unlink()
    told = asked(capsys, *where, *service)
    assert told["server"][:3] == [
        str(tmp_path / "prefix/current/llama-server"),
        "-m",
        str(tmp_path / "tiny.gguf"),
    ]
    assert f"ExecStart={' '.join(told['server'])}\n" in unit.read_text()
    # The first line of its log names the build and its patches.
    started = subprocess.run([told["server"][0], "--version"], capture_output=True, text=True, check=True)
    label = f"{told['installation']['commit'][:9]}+same"
    assert started.stderr == f"llama-server of patchkit: b112, commit {label}\n"
    assert started.stdout == f"{label}\n"
    assert asked(capsys, *where)["server"][2] == "MODEL.gguf"


@pytest.mark.cpu_build
@pytest.mark.slow
def test_a_build_is_installed_once_and_kept_when_another_one_fails(
    cpu_subject: Subject, cpu_cache: Path, tmp_path: Path, capsys
) -> None:
    prefix = tmp_path / "prefix"
    argv = (*SEED, "--backend", "cpu", "--cache-dir", str(cpu_cache), "--prefix", str(prefix))
    first = asked(capsys, *argv, "--program", "llama-bench")
    assert (first["is_new"], first["replaced"]) == (True, None)
    assert first["installation"]["tree"] == cpu_subject.candidate_tree
    bench = prefix / "current" / "llama-bench"
    alone = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    shown = subprocess.run([bench, "--help"], capture_output=True, text=True, check=True, env=alone)
    assert "usage" in shown.stdout
    again = asked(capsys, *argv, "--program", "llama-bench")
    assert (again["is_new"], again["installation"]) == (False, first["installation"])
    both = ("--program", "llama-bench", "--program", "test-backend-ops")
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF, but not a model")
    error = asked(capsys, *argv, *both, "--model", str(broken), code=ExitCode.TOOLCHAIN)["error"]
    assert error["code"] == "PROGRAM_FAILED"
    known = list_installed(prefix)
    assert (known.current, len(known.builds)) == (first["installation"]["name"], 1)
    more = asked(capsys, *argv, *both)
    assert (more["is_new"], more["replaced"]) == (True, first["installation"]["name"])
    back = asked(capsys, "--rollback", "--prefix", str(prefix))
    assert back["current"] == first["installation"]["name"]
    # Programs name the commit and its patches where they print their version.
    commit, patches = first["installation"]["commit"], first["installation"]["patches"]
    label = "+".join((commit[:9], *patches)).encode()
    assert any(label in path.read_bytes() for path in (prefix / "current").resolve().iterdir())
