"""Where the series lies on this disk."""

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
"""The folder of ``templates/`` with the texts that patchkit itself writes; no patch may use them."""

EVIDENCE = "evidence.toml"
"""In a patch's folder: who says what of it. It decides whether the patch is in, and not one byte."""

_FOLDERS = ("patches", "arch_profiles")

PLAIN = "plain"
"""What stands for a GPU where there is none: the plain patches of a series, for every build."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesDir:
    """A folder with the parts of a series, and how it was found; a plain one has no profiles."""

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
        """What machines measured of the patches, a file each; the folder may be missing."""
        return self.root / "evidence"

    @property
    def folders(self) -> tuple[Path, ...]:
        """All four."""
        return (self.patches, self.templates, self.profiles, self.evidence)

    @property
    def catalogue(self) -> Path:
        """Builds of upstream that a series knows besides the pins of its lock; the file may be missing."""
        return self.patches / "upstreams.toml"

    @property
    def lock(self) -> Path:
        """The pins and the results they must give."""
        return self.patches / "upstream.lock"


def refuse_installed(series: SeriesDir) -> None:
    """Raise SERIES_INSTALLED for the copy inside of an installed patchkit: nobody's patches belong there."""
    if series.origin == "installed":
        raise ConfigError(
            "the series in use is the installed patchkit's own",
            code="SERIES_INSTALLED",
            where=Location(path=str(series.root)),
            why="what is written there is lost with the next update",
            hint="make one of your own: patchkit init my-series && export PATCHKIT_SERIES=$PWD/my-series",
        )


def is_plain(profiles: Path) -> bool:
    """Whether ``profiles`` is where a plain series would have its profiles: it has none."""
    return not profiles.is_dir() and (profiles.with_name("patches") / "series.toml").is_file()


def arch_options(archs: Iterable[str], profiles: Path) -> list[str]:
    """The words that name these GPUs on a command line, where the profiles lie in ``profiles``.

    None in a plain series: nothing else can be meant there.
    """
    return [] if is_plain(profiles) else [word for arch in archs for word in ("--arch", arch)]


def format_archs(archs: Sequence[str]) -> str:
    """The GPUs of a candidate for a message; ``every build`` for a GPU-independent one."""
    return " ".join(archs) if tuple(archs) != (PLAIN,) else "every build"


def is_editors(path: PurePath) -> bool:
    """Whether ``path``, relative to a folder of the series, is hidden or a backup (``a~``, ``#a#``)."""
    return any(part.startswith((".", "#")) or part.endswith("~") for part in path.parts)


def is_no_template(path: PurePath, folder: PurePath) -> bool:
    """Whether no patch may use ``path``, which lies in its own folder or in templates/: no digest covers it.

    What patchkit itself writes lies in templates/ only: a patch may have a folder of that name.
    """
    within = path.relative_to(folder)
    own = (TEXTS,) if folder.name == "templates" else (EVIDENCE,)
    return is_editors(within) or within.parts[:1] == own


_PACKAGE = Path(__file__).resolve().parents[1]  # as this code runs from it


def find_series_dir(explicit: Path | None) -> SeriesDir:
    """The series to work with: the named one, else the checkout around the code, else the installed copy.

    Raises SERIES_DIR_MISSING when ``explicit`` is no folder and SERIES_DIR_INCOMPLETE when a part is
    missing. Only existence is checked here; the content is checked by whoever loads it.
    """
    if explicit is not None:
        _refuse_impossible(explicit)
        if not explicit.is_dir():
            reason = "it is a file" if explicit.exists() else "there is nothing at that path"
            raise ConfigError(
                f"'{explicit}' is not a series folder",
                code="SERIES_DIR_MISSING",
                where=Location(path=str(explicit), label="named by --series-dir or PATCHKIT_SERIES"),
                why=reason,
                hint=f"name a folder that holds {_listing(_FOLDERS)}; patchkit init DIR makes one",
            )
        return _complete(SeriesDir(root=explicit.resolve(), origin="named"))
    checkout = _PACKAGE.parent
    # A site-packages folder may hold a stray patches/ of another project: the build file tells them apart.
    if (checkout / "pyproject.toml").is_file() and (checkout / "patches").is_dir():
        return _complete(SeriesDir(root=checkout, origin="checkout"))
    return _complete(SeriesDir(root=_PACKAGE / "data", origin="installed"))


def find_texts() -> Path:
    """The templates of what patchkit itself writes: always its own, whichever series is in use.

    Raises SERIES_DIR_INCOMPLETE.
    """
    return _complete(find_series_dir(None), (f"templates/{TEXTS}",)).templates / TEXTS


def find_upstreams() -> Path:
    """The folder with a description of each upstream project: always patchkit's own.

    Raises SERIES_DIR_INCOMPLETE.
    """
    return _complete(find_series_dir(None), ("upstreams",)).root / "upstreams"


def _refuse_impossible(path: Path) -> None:
    """Raise OSError for a path that the system will not look at; since Python 3.14 ``is_dir`` says no."""
    try:
        path.lstat()
    except ValueError:  # a zero byte
        return
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
            raise


def _complete(found: SeriesDir, parts: tuple[str, ...] = _FOLDERS) -> SeriesDir:
    missing = [name for name in parts if not (found.root / name).is_dir()]
    if missing == ["arch_profiles"] and found.origin == "named" and says_plain(found.patches):
        return found
    if missing:
        hint = {
            "named": f"a series folder holds {_listing(_FOLDERS)}",
            "checkout": f"git restore {' '.join(missing)}",
            "installed": "pip install --force-reinstall patchkit",
        }[found.origin]
        raise ConfigError(
            f"the series folder lacks {_listing(missing)}",
            code="SERIES_DIR_INCOMPLETE",
            where=Location(path=str(found.root), label=f"{found.origin} series"),
            hint=hint,
        )
    return found


def says_plain(patches: Path) -> bool:
    """Whether the rules say ``plain = true``, or cannot be read: whoever loads them will say why."""
    try:
        return tomllib.loads((patches / "series.toml").read_text("utf-8")).get("plain") is True
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True


def _listing(names: tuple[str, ...] | list[str]) -> str:
    quoted = [f"{name}/" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
