"""Options that several commands share: which device gates run on, and the reports to write."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from patchkit.base.errors import Location, UsageError
from patchkit.base.series_folder import PLAIN
from patchkit.base.workspace import Workspace
from patchkit.cli.request import DEVICE
from patchkit.cli.settings import FOLDER, TEXT, Settings, options, packed, version_of
from patchkit.gpu.hardware.runner import choose_runner
from patchkit.prove.report.registry import FORMATS
from patchkit.prove.report.write import check_apart, check_writable, write_reports
from patchkit.prove.verify.hardware import Hardware, choose_hardware
from patchkit.toolchain.parts import BackendName

_STDOUT = 1


def check_beside_document(settings: Settings, *files: Path | None) -> None:
    """Raise STDOUT_TAKEN if --json writes to stdout and one of the files is stdout too, under any name."""
    for path in files:
        if settings.json and path is not None and _is_stdout(path):
            raise UsageError(
                f"{path} is stdout, where --json writes its document",
                code="STDOUT_TAKEN",
                where=Location(path=str(path)),
                hint="name another file, or omit --json",
            )


def _is_stdout(path: Path) -> bool:
    with contextlib.suppress(OSError):  # no such file yet, or stdout is closed
        return os.path.samestat(path.stat(), os.fstat(_STDOUT)) and not path.samefile(os.devnull)
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareChoice:
    """The options that select the device for gates that need one."""

    no_gpu: bool
    backend: BackendName | None
    emulated: bool
    model: Path | None
    text: Path | None
    runner: str | None
    ssh_config: Path | None
    fresh: bool

    def check(self) -> None:
        """Raise OPTIONS_CONTRADICT for options that contradict each other."""
        if self.no_gpu and (self.backend or self.emulated or self.model or self.runner):
            raise UsageError(
                "--no-gpu cannot be combined with --backend, --emulated, --model or --runner",
                code="OPTIONS_CONTRADICT",
                why="--no-gpu skips every gate that needs a device; the others select one",
            )
        if self.emulated and (self.backend or self.runner):
            raise UsageError(
                "--emulated cannot be combined with --backend or --runner",
                code="OPTIONS_CONTRADICT",
                why="--emulated uses the emulated GPU on this machine; the others select another device",
            )
        if self.text and not self.model:
            raise UsageError(
                "--text requires --model",
                code="OPTIONS_CONTRADICT",
                hint="add --model MODEL.gguf",
            )
        if self.ssh_config and not self.runner:
            raise UsageError(
                "--ssh-config requires --runner",
                code="OPTIONS_CONTRADICT",
                hint="add --runner ssh://HOST",
            )

    def choose(
        self, workspace: Workspace, archs: Sequence[str], *, full: bool = False, only: Sequence[str] = ()
    ) -> Hardware:
        """Choose device and runner, without connecting yet. Raises RUNNER_URL_BAD, OPTIONS_CONTRADICT."""
        if tuple(archs) == (PLAIN,) and self.backend != "cpu":
            self._refuse_device()
        runner = choose_runner(
            self.runner, config=self.ssh_config, environ=os.environ, reporter=workspace.reporter
        )
        return choose_hardware(
            archs,
            self.backend,
            model=self.model,
            text=self.text,
            no_gpu=self.no_gpu,
            runner=runner,
            fresh=self.fresh,
            emulated=self.emulated,
            full=full,
            only=only,
        )

    def _refuse_device(self) -> None:
        given = {
            "--backend": self.backend,
            "--emulated": self.emulated,
            "--runner": self.runner,
            "--model": self.model,
        }
        named = [option for option, value in given.items() if value]
        if named:
            raise UsageError(
                f"a plain candidate has no GPU, so {', '.join(named)} cannot be used",
                code="OPTIONS_CONTRADICT",
                hint="omit it, or use --backend cpu to run the device gates on the CPU",
            )


runner_options = options(
    click.option(
        "--runner", type=TEXT, metavar="ssh://HOST", help="Run on that machine (default: this machine)."
    ),
    click.option(
        "--ssh-config",
        type=FOLDER,
        metavar="FILE",
        help="ssh configuration file for --runner (default: yours).",
    ),
)
hardware_options = packed(
    "hardware",
    HardwareChoice,
    click.option("--no-gpu", is_flag=True, help="Run only the gates that need no device, real or emulated."),
    click.option(
        "--backend",
        type=DEVICE,
        help="Backend for the gates that need a device (default: this machine's GPU, else the emulated GPU).",
    ),
    click.option(
        "--emulated", is_flag=True, help="Use the emulated GPU even if this machine has the real one."
    ),
    click.option(
        "--model",
        type=FOLDER,
        metavar="GGUF",
        help="Model for the logits, width and bench gates (default: small test models).",
    ),
    click.option(
        "--text",
        type=FOLDER,
        metavar="FILE",
        help="Text for the logits gate to evaluate with --model.",
    ),
    runner_options,
    click.option("--fresh", is_flag=True, help="Repeat gates that already passed on this machine."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFiles:
    """The report files to write, by format, and the summary file to append to."""

    files: Mapping[str, Path | None]
    summary: Path | None

    def writer(self, settings: Settings, workspace: Workspace) -> Callable[[Path], None]:
        """Return a function that writes the requested reports for a folder of evidence.

        Checks the files before the run. Raises CacheError for a file that cannot be written,
        REPORT_FILE_TAKEN for one that is named twice, and STDOUT_TAKEN.
        """
        files = {name: path for name, path in self.files.items() if path is not None}
        summary = [self.summary] if self.summary is not None else []
        places = [*files.values(), *summary]
        check_beside_document(settings, *places)
        for at, path in enumerate(places):
            check_apart(path, places[:at])
            check_writable(path, appends=path in summary)
        version = version_of("patchkit")
        return lambda folder: write_reports(
            workspace, folder, os.environ, files=files, summary=self.summary, version=version
        )


def _make_files(summary: Path | None, **files: Path | None) -> ReportFiles:
    return ReportFiles(files=files, summary=summary)


report_options = packed(
    "reports",
    _make_files,
    *(
        click.option(f"--{form.name}", type=FOLDER, metavar="FILE", help=form.option)
        for form in sorted(FORMATS, key=lambda each: each.name)
        if form.option
    ),
    click.option(
        "--summary",
        type=FOLDER,
        metavar="FILE",
        help="Append a Markdown summary to FILE, for example $GITHUB_STEP_SUMMARY.",
    ),
)
