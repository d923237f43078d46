"""The headers that all units of a family include, parsed once instead of once per candidate.

Half of the time of a candidate is parsing (1.9 of 2.7 s of a small one alone on a core), and that is
the same for all of them. clang keeps its result as a *precompiled header*; the code that comes out is the
same but for an identifier that the compiler makes of its command line (compared on <256, 32, half>).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from patchkit.build.compile import Job, compiler_argv
from patchkit.build.compiler import Compiler, run_clang
from patchkit.build.store import key_of

_FILE = "prelude.pch"
_TIMEOUT_S = 300.0
# Files are compared by content where their times differ: trees are exported anew now and then.
_BY_CONTENT = ("-Xclang", "-fvalidate-ast-input-files-content")


def precompile(job: Job, compiler: Compiler) -> Path | None:
    """The precompiled form of a header, ``job.unit``; None when this compiler does not make one.

    Raises:
        ToolMissing, ToolStopped, ToolTimeout, CacheError: as for any other run of the compiler.
    """
    making = replace(job, flags=(*job.flags, *_BY_CONTENT, "-Xclang", "-emit-pch"))
    argv = compiler_argv(compiler.toolchain, making)
    key = key_of(
        {
            "compiler": compiler.identity,
            "argv": compiler.portable(argv),
            "sources": job.tree.digest(job.unit),
            "root": str(job.tree.root),  # it names the files that it was made from
        }
    )
    found = compiler.store.find(key)
    if found is not None:
        return found / _FILE
    with compiler.store.filling(key) as folder:
        done = run_clang(
            [*argv, "-o", str(folder / _FILE)], compiler, cwd=job.tree.root, timeout_s=_TIMEOUT_S
        )
        if done.returncode != 0:
            compiler.store.keep_failure(key, done.stderr)
            return None
        place = folder
    found = compiler.store.find(key)
    if found is None:
        raise AssertionError(f"the store lost {key}, made in {place}")
    return found / _FILE


def with_prelude(job: Job, prelude: Path | None) -> Job:
    """The job, reading the precompiled form first."""
    if prelude is None:
        return job
    flags = (*job.flags, *_BY_CONTENT, "-Xclang", "-include-pch", "-Xclang", str(prelude))
    return replace(job, flags=flags)
