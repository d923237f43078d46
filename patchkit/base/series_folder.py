"""Finds the folder of the patch series on disk."""

from __future__ import annotations

import errno
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import ClassVar, Literal

from patchkit.base.errors import ConfigError, Location

Origin = Literal["named", "checkout", "installed"]

TEXTS = "patchkit"
"""The folder of ``templates/`` with patchkit's own texts; patches cannot use them."""

EVIDENCE = "evidence.toml"
"""Claims about a patch, in its folder. They decide whether the patch is included, not what it writes."""

_FOLDERS = ("patches", "arch_profiles")

PLAIN = "plain"
"""Used in place of a gfx id for plain patches, which are for every GPU and backend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesDir:
    """The folder of a series, and how it was found; a plain (GPU-independent) series has no profiles."""

    json_keys: ClassVar = "root origin"

    root: Path
    origin: Origin

    @property
    def patches(self) -> Path:
        """One folder per patch, and the lock."""
        return self.root / "patches"

    @property
    def templates(self) -> Path:
        """Templates that several patches share; the folder may be missing."""
        return self.root / "templates"

    @property
    def profiles(self) -> Path:
        """One TOML file per GPU; a plain series has no such folder."""
        return self.root / "arch_profiles"

    @property
    def evidence(self) -> Path:
        """Evidence files with measurements of the patches; the folder may be missing."""
        return self.root / "evidence"

    @property
    def folders(self) -> tuple[Path, ...]:
        """The four folders above."""
        return (self.patches, self.templates, self.profiles, self.evidence)

    @property
    def catalogue(self) -> Path:
        """Known upstream builds besides the pins of the lock; the file may be missing."""
        return self.patches / "upstreams.toml"

    @property
    def lock(self) -> Path:
        """The lock file: the pins, and the results that the series must give on them."""
        return self.patches / "upstream.lock"


def refuse_installed(series: SeriesDir) -> None:
    """Raise SERIES_INSTALLED for the copy inside an installed patchkit, which must not be changed."""
    if series.origin == "installed":
        raise ConfigError(
            "cannot write to the series that is installed with patchkit",
            code="SERIES_INSTALLED",
            where=Location(path=str(series.root)),
            why="changes there are lost with the next update of patchkit",
            hint="create your own series: patchkit init my-series && export PATCHKIT_SERIES=$PWD/my-series",
        )


def is_plain(profiles: Path) -> bool:
    """Whether ``profiles`` is the missing profiles folder of a plain (GPU-independent) series."""
    return not profiles.is_dir() and (profiles.with_name("patches") / "series.toml").is_file()


def arch_options(archs: Iterable[str], profiles: Path) -> list[str]:
    """The ``--arch`` options for these GPUs; ``profiles`` is the profiles folder of the series.

    Empty for a plain series, which takes no ``--arch``.
    """
    return [] if is_plain(profiles) else [word for arch in archs for word in ("--arch", arch)]


def format_archs(archs: Sequence[str]) -> str:
    """The GPUs of a candidate for a message; ``every backend`` for a plain one."""
    return " ".join(archs) if tuple(archs) != (PLAIN,) else "every backend"


def is_editor_file(path: PurePath) -> bool:
    """Whether ``path``, relative to a folder of the series, is hidden or a backup (``a~``, ``#a#``)."""
    return any(part.startswith((".", "#")) or part.endswith("~") for part in path.parts)


def is_no_template(path: PurePath, folder: PurePath) -> bool:
    """Whether ``path``, in a patch's folder or in templates/, is not a template; digests exclude such files.

    patchkit's own texts are only in templates/: a patch may have a folder of that name.
    """
    within = path.relative_to(folder)
    own = (TEXTS,) if folder.name == "templates" else (EVIDENCE,)
    return is_editor_file(within) or within.parts[:1] == own


_PACKAGE = Path(__file__).resolve().parents[1]


def find_series_dir(explicit: Path | None) -> SeriesDir:
    """The series to use: ``explicit``, else that of the checkout around the code, else the installed copy.

    Raises SERIES_DIR_MISSING if ``explicit`` is not a folder, and SERIES_DIR_MISSING if a part is
    missing. Only existence is checked here; loading checks the content.
    """
    if explicit is not None:
        _refuse_impossible(explicit)
        if not explicit.is_dir():
            reason = "it is a file" if explicit.exists() else "the path does not exist"
            raise ConfigError(
                f"'{explicit}' is not a series folder",
                code="SERIES_DIR_MISSING",
                where=Location(path=str(explicit), label="from --series-dir or PATCHKIT_SERIES"),
                why=reason,
                hint=f"use a folder that contains {_listing(_FOLDERS)}, or create one: "
                "unset PATCHKIT_SERIES; patchkit init DIR",
            )
        return _complete(SeriesDir(root=explicit.resolve(), origin="named"))
    checkout = _PACKAGE.parent
    # Without pyproject.toml it is site-packages, which may contain the patches/ of another project.
    if (checkout / "pyproject.toml").is_file() and (checkout / "patches").is_dir():
        return _complete(SeriesDir(root=checkout, origin="checkout"))
    return _complete(SeriesDir(root=_PACKAGE / "data", origin="installed"))


def find_texts() -> Path:
    """The templates of patchkit's own texts, whichever series is in use.

    Raises SERIES_DIR_MISSING.
    """
    return _complete(find_series_dir(None), (f"templates/{TEXTS}",)).templates / TEXTS


def find_upstreams() -> Path:
    """The folder with the descriptions of upstream projects: patchkit's own, whichever series is in use.

    Raises SERIES_DIR_MISSING.
    """
    return _complete(find_series_dir(None), ("upstreams",)).root / "upstreams"


def _refuse_impossible(path: Path) -> None:
    """Raise OSError for a path that the system rejects; since Python 3.14 ``is_dir`` returns False for it."""
    try:
        path.lstat()
    except ValueError:  # a zero byte
        return
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
            raise


def _complete(found: SeriesDir, parts: tuple[str, ...] = _FOLDERS) -> SeriesDir:
    missing = [name for name in parts if not (found.root / name).is_dir()]
    if missing == ["arch_profiles"] and found.origin == "named" and declares_plain(found.patches):
        return found
    if missing:
        hint = {
            "named": f"a series folder contains {_listing(_FOLDERS)}",
            "checkout": f"git restore {' '.join(missing)}",
            "installed": "pip install --force-reinstall patchkit",
        }[found.origin]
        raise ConfigError(
            f"{_listing(missing)} missing from the series folder",
            code="SERIES_DIR_MISSING",
            where=Location(path=str(found.root), label=f"{found.origin} series"),
            hint=hint,
        )
    return found


def declares_plain(patches: Path) -> bool:
    """Whether series.toml has ``plain = true``, or cannot be read: then loading it reports the reason."""
    try:
        return tomllib.loads((patches / "series.toml").read_text("utf-8")).get("plain") is True
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True


def _listing(names: tuple[str, ...] | list[str]) -> str:
    quoted = [f"{name}/" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
