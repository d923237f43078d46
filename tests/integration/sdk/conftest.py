"""A real prefix in the test cache, and a mirror of our own that serves its files as packages.

The *mirror* is a folder laid out as a package archive, signed by a key made for the tests;
apt reads it as it reads any other. What it serves are the files of the real prefix, so that what is
installed from it compiles.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from patchkit.carry.upstream.exported import fetch_folder
from patchkit.toolchain.hip import rocm_locations
from patchkit.toolchain.sdk.install import InstallRequest
from patchkit.toolchain.sdk.pins import load_pins
from patchkit.toolchain.sdk.prefix import Prefix, current_prefix
from patchkit.toolchain.sdk.sources import AptSource

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def no_rocm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A ROCm of the machine would be preferred over the SDK; these tests look for it in an empty folder."""
    monkeypatch.setattr(
        "patchkit.toolchain.hip.rocm_locations",
        lambda environ: rocm_locations(environ, system=tmp_path / "no-rocm"),
    )


@pytest.fixture(scope="session")
def sdk_cache(request: pytest.FixtureRequest) -> Path:
    """A cache folder with an installed SDK, to be read only. Fails when it cannot be installed."""
    if shutil.which("apt-get") is None:
        pytest.skip("the SDK is made of packages for apt, which this system has not")
    if shutil.which("gpg") is None:
        pytest.fail("the packages of the tests are signed with gpg: apt install gnupg")
    return request.getfixturevalue("sdk_folder")


@pytest.fixture(scope="session")
def real(sdk_cache: Path) -> Prefix:
    """The prefix in it."""
    prefix = current_prefix(sdk_cache)
    assert prefix is not None
    return prefix


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """A package archive at ``root`` whose suite ``forky`` is signed by ``keyring``'s key."""

    root: Path
    keyring: Path
    gnupg: Path

    @property
    def entry(self) -> AptSource:
        return AptSource(
            uris=(f"copy:{self.root}",), suites=("sid",), components=("main",), signed_by=str(self.keyring)
        )

    def publish(self, suite: str, *, without: str = "") -> None:
        """Index the packages of the pool as a suite, and sign it."""
        dist = self.root / "dists" / suite
        index = dist / "main" / f"binary-{_architecture()}"
        index.mkdir(parents=True, exist_ok=True)
        stanzas = [
            stanza
            for path in sorted((self.root / "pool").glob("*.deb"))
            if not (without and path.name.startswith(without))
            for stanza in [_stanza(path, self.root)]
        ]
        (index / "Packages").write_text("\n".join(stanzas))
        (index / "Packages.gz").write_bytes(gzip.compress((index / "Packages").read_bytes(), mtime=0))
        self.sign(suite)

    def sign(self, suite: str) -> None:
        """Write the suite's Release and sign it."""
        dist = self.root / "dists" / suite
        head = (
            f"Origin: tests\nSuite: {suite}\nCodename: {suite}\nComponents: main\n"
            f"Architectures: {_architecture()}\nDate: Wed, 01 Jan 2025 00:00:00 UTC\nSHA256:"
        )
        lines = [head]
        for path in sorted(dist.glob("main/**/Packages*")):
            data = path.read_bytes()
            lines.append(f" {hashlib.sha256(data).hexdigest()} {len(data)} {path.relative_to(dist)}")
        (dist / "Release").write_text("\n".join(lines) + "\n")
        self.gpg("--yes", "--clearsign", "--output", str(dist / "InRelease"), str(dist / "Release"))

    def build(self, name: str, version: str, files: dict[str, Path] | None = None) -> Path:
        """Put a package into the pool that holds each folder at its place."""
        tree = self.root / f".{name}"
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN/control").write_text(
            f"Package: {name}\nVersion: {version}\nArchitecture: {_architecture()}\n"
            f"Maintainer: tests <tests@localhost>\nDescription: for tests\n"
        )
        for place, folder in (files or {}).items():
            shutil.copytree(folder, tree / place, symlinks=True)
        path = self.root / "pool" / f"{name}_{version}_{_architecture()}.deb"
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(tree), str(path)],
            check=True,
            capture_output=True,
        )
        shutil.rmtree(tree)
        return path

    def gpg(self, *args: str) -> None:
        """gpg with the tests' key."""
        argv = ["gpg", "--batch", "--quiet", "--homedir", str(self.gnupg), "--passphrase", ""]
        subprocess.run([*argv, "--pinentry-mode", "loopback", *args], check=True, capture_output=True)


@pytest.fixture(scope="session")
def master(real: Prefix, tmp_path_factory: pytest.TempPathFactory) -> Mirror:
    """The mirror that each test gets a copy of."""
    root = tmp_path_factory.mktemp("mirror")
    mirror = Mirror(root=root, keyring=root / "key.gpg", gnupg=root / "gnupg")
    mirror.gnupg.mkdir(mode=0o700)
    mirror.gpg("--quick-generate-key", "patchkit tests <tests@localhost>", "ed25519", "sign", "never")
    mirror.gpg("--output", str(mirror.keyring), "--export")
    (root / "pool").mkdir()
    files = root / "files"
    shutil.copytree(real.root, files / "usr", symlinks=True)
    for stub in files.glob("usr/lib/*-linux-gnu/*.so.*"):
        stub.unlink()
    bitcode = files / "usr/lib" / "llvm-21"
    mirror.build("rocm-device-libs-21", "7.0.2-1", {"usr/lib/llvm-21": bitcode})
    shutil.rmtree(bitcode)
    mirror.build("libamdhip64-dev", "6.4.3-5", {"usr": files / "usr"})
    for name in load_pins().packages:
        if name != "libamdhip64-dev":
            mirror.build(name, "6.4.4-1")
    shutil.rmtree(files)
    mirror.publish("forky")
    return mirror


@pytest.fixture
def mirror(master: Mirror, tmp_path: Path) -> Mirror:
    """A mirror that the test may spoil."""
    root = tmp_path / "mirror"
    shutil.copytree(master.root, root, ignore=shutil.ignore_patterns("gnupg"))
    return Mirror(root=root, keyring=root / "key.gpg", gnupg=master.gnupg)


@pytest.fixture
def request_of(mirror: Mirror, real: Prefix, tmp_path: Path):
    """Makes the request to install from the mirror, with the real prefix's compiler as the installed one."""

    def make(**changes: object) -> InstallRequest:
        pins = load_pins().model_copy(update=changes.pop("pins", {}))  # type: ignore[arg-type]
        values: dict[str, object] = {
            "cache_root": tmp_path / "cache",
            "pins": pins,
            "fetch": fetch_folder,
            "environ": {"PATH": f"{real.path}/bin:/usr/bin:/bin"},
            "rocwmma": "stand-in",
            "entries": (mirror.entry,),
        }
        return InstallRequest(**{**values, **changes})  # type: ignore[arg-type]

    return make


def _architecture() -> str:
    return subprocess.run(
        ["dpkg", "--print-architecture"], check=True, capture_output=True, text=True
    ).stdout.strip()


def _stanza(path: Path, root: Path) -> str:
    fields = subprocess.run(
        ["dpkg-deb", "--field", str(path)], check=True, capture_output=True, text=True
    ).stdout
    data = path.read_bytes()
    return (
        f"{fields.rstrip()}\nFilename: {path.relative_to(root)}\nSize: {len(data)}\n"
        f"SHA256: {hashlib.sha256(data).hexdigest()}\n"
    )
