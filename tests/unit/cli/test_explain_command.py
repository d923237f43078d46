"""``explain``: mistakes in the options."""

from __future__ import annotations

import pytest

from patchkit.base.errors import ExitCode
from patchkit.cli.app import main


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--arch", "gfx1115"], ExitCode.USAGE, "error[ARCH_UNKNOWN]: no profile for 'gfx1115'"),
        (["--arch", "gfx1151", "--path"], ExitCode.GIT, "patchkit apply --arch gfx1151"),
    ],
    ids=["unknown GPU", "no candidate"],
)
def test_what_cannot_be_explained_ends_with_the_next_step(options, code, says, capsys, tmp_path):
    assert main(["explain", *options, "--cache-dir", str(tmp_path)]) == code
    assert says in capsys.readouterr().err
