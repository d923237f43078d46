"""The options that several verbs share around gates: where they run, and the reports written beside a run."""

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
    """Raise STDOUT_TAKEN when stdout gets a JSON document and one of the files is stdout, by any name."""
    for path in files:
        if settings.json and path is not None and _is_stdout(path):
            raise UsageError(
                f"{path} is stdout, and there the JSON document goes",
                code="STDOUT_TAKEN",
                where=Location(path=str(path)),
                hint="name a file, or leave --json out",
            )


def _is_stdout(path: Path) -> bool:
    with contextlib.suppress(OSError):  # no such file yet, or stdout is closed
        return os.path.samestat(path.stat(), os.fstat(_STDOUT)) and not path.samefile(os.devnull)
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareChoice:
    """On what the gates run that need a device, as the options have it."""

    no_gpu: bool
    backend: BackendName | None
    emulated: bool
    model: Path | None
    text: Path | None
    runner: str | None
    ssh_config: Path | None
    fresh: bool
    scheduler: str | None

    def check(self) -> None:
        """Refuse what cannot be meant; raises HARDWARE_REFUSED."""
        if self.no_gpu and (self.backend or self.emulated or self.model or self.runner):
            raise UsageError(
                "--no-gpu runs nothing on a device, and --backend, --emulated, --model or --runner say on "
                "which and how",
                code="HARDWARE_REFUSED",
                hint="leave out one of them",
            )
        if self.emulated and (self.backend or self.runner):
            raise UsageError(
                "--emulated is this machine's emulated GPU, and --backend or --runner name another device",
                code="HARDWARE_REFUSED",
                hint="leave out one of them",
            )
        if self.scheduler and (self.backend or self.runner):
            raise UsageError(
                "--scheduler shares the work of compilers and of the emulated GPU, and --backend or --runner "
                "name another device",
                code="HARDWARE_REFUSED",
                hint="leave out one of them",
            )
        if self.text and not self.model:
            raise UsageError(
                "--text needs a --model to read it with",
                code="HARDWARE_REFUSED",
                hint="--model names a GGUF",
            )
        if self.ssh_config and not self.runner:
            raise UsageError(
                "--ssh-config is for --runner, which is not given",
                code="HARDWARE_REFUSED",
                hint="--runner ssh://host",
            )

    def choose(
        self, workspace: Workspace, archs: Sequence[str], *, full: bool = False, only: Sequence[str] = ()
    ) -> Hardware:
        """The gates that run on hardware; no connection yet. Raises RUNNER_URL_BAD, HARDWARE_REFUSED."""
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
            scheduler=self.scheduler,
            only=only,
        )

    def _refuse_device(self) -> None:
        given = {
            "--backend": self.backend,
            "--emulated": self.emulated,
            "--runner": self.runner,
            "--scheduler": self.scheduler,
            "--model": self.model,
        }
        named = [option for option, value in given.items() if value]
        if named:
            raise UsageError(
                f"a plain candidate runs on no device, and {', '.join(named)} says on which and how",
                code="HARDWARE_REFUSED",
                hint="leave that out; or --backend cpu, where gates that need a device run on the CPU",
            )


runner_options = options(
    click.option("--runner", type=TEXT, metavar="ssh://HOST", help="Run on that machine (default: here)."),
    click.option("--ssh-config", type=FOLDER, metavar="FILE", help="For --runner, instead of your own."),
)
hardware_options = packed(
    "hardware",
    HardwareChoice,
    click.option("--no-gpu", is_flag=True, help="Only the gates that need no GPU, emulated or not."),
    click.option(
        "--backend",
        type=DEVICE,
        help="Run the gates that need a device on this one (default: the GPU, or the emulated one).",
    ),
    click.option("--emulated", is_flag=True, help="Run them on the emulated GPU even if the GPU is here."),
    click.option(
        "--model",
        type=FOLDER,
        metavar="GGUF",
        help="A model for logits and bench, instead of small ones.",
    ),
    click.option("--text", type=FOLDER, metavar="FILE", help="A text for logits to read with that model."),
    runner_options,
    click.option(
        "--scheduler",
        type=TEXT,
        metavar="tcp://HOST:PORT",
        help="Compilers, and the emulated GPU, on the workers of a Dask cluster that see these folders.",
    ),
    click.option("--fresh", is_flag=True, help="Run again what passed on this very machine before."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFiles:
    """The reports to write beside a run, by their format, and the summary to append to."""

    files: Mapping[str, Path | None]
    summary: Path | None

    def writer(self, settings: Settings, workspace: Workspace) -> Callable[[Path], None]:
        """What writes the wanted reports of a folder of evidence.

        Raises CacheError now for a file that cannot be written, not after the run, REPORT_FILE_TAKEN for one
        that is named twice, and STDOUT_TAKEN.
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
        "--summary", type=FOLDER, metavar="FILE", help="Append Markdown there, as GITHUB_STEP_SUMMARY."
    ),
)
