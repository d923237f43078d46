"""Modelled times for the autotuner and for ``triton.testing.do_bench``."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .hip import Hip

_SETTING = "PATCHKIT_TIMING"  # JSON: the timing program and what it reads, from patchkit.gpu.api
_CONFIGURATIONS = "PATCHKIT_AUTOTUNE_CONFIGS"  # by the user
_COLD = _ALL_WORK = "1.0"  # data come from DRAM, as do_bench clears the caches; all blocks have work


class Timer:
    """Times launches with the timing model.

    While ``is_timing``, launches are recorded, and their results must be discarded. Without a model,
    ``is_dry`` is set as well: then a launch only has to be possible.
    """

    def __init__(self, hip: Hip, arch: str) -> None:
        self._hip = hip
        self._arch = arch
        text = os.environ.get(_SETTING)
        self._model = json.loads(text) if text else None
        self._tried = 0
        self._has_warned = False
        self.is_timing = False

    @property
    def is_dry(self) -> bool:
        """Whether launches are skipped."""
        return self.is_timing and self._model is None

    def begin_tuning(self) -> None:
        """The autotuner begins with another kernel, or with other arguments."""
        self._tried = 0

    def tune(self, call: Callable[[], Any], quantiles: Sequence[float]) -> list[float]:
        """The autotuner's benchmark of one configuration, in ms.

        Infinite for further ones if enough were tried: without a timing model the first one that compiles and
        fits is taken, with a time of 0. Raises what ``call`` raises if the configuration does not fit.
        """
        if self._tried >= self._most_configurations:
            return [math.inf] * len(quantiles)
        time = self.bench(call)
        self._tried += 1
        return [0.0 if self._model is None else time] * len(quantiles)

    @property
    def _most_configurations(self) -> float:
        if self._model is None:
            return 1
        given = os.environ.get(_CONFIGURATIONS, "")
        return max(1, int(given)) if given.isdigit() else math.inf

    def bench(
        self, call: Callable[[], Any], quantiles: Sequence[float] | None = None, return_mode: str = "mean"
    ) -> Any:
        """The modelled time of the launches in a call, in ms, in the form of ``triton.testing.do_bench``.

        The launches run only in part, and their results are discarded. The time is NaN if the call launches
        no kernel, or if there is no timing model for this GPU.
        """
        with tempfile.TemporaryDirectory(prefix="patchkit-triton-") as name, self._recording(Path(name)):
            call()
            traces = sorted(Path(name).glob("*.trace"), key=lambda path: int(path.stem))
            us = [_simulated(self._model, trace) for trace in traces if self._model is not None]
        time = sum(us) / 1000 if us else math.nan
        if quantiles is not None:
            return [time] * len(quantiles) if len(quantiles) > 1 else time
        return [time] if return_mode == "all" else time

    @contextlib.contextmanager
    def _recording(self, folder: Path) -> Iterator[None]:
        if self._model is None:
            self._warn()
        else:
            self._hip.record_to(folder)
        self.is_timing = True
        try:
            yield
        finally:
            self.is_timing = False
            if self._model is not None:
                self._hip.record_to(None)

    def _warn(self) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        text = f"patchkit: there is no timing model for {self._arch}: benchmarks have no times\n"
        sys.stderr.write(text)


def _simulated(model: dict[str, Any], trace: Path) -> float:
    """Microseconds of a recorded launch, with its overhead. Raises RuntimeError if it cannot be simulated."""
    words = [model["program"], model["figures"], str(model["most"]), _COLD, _ALL_WORK, str(trace)]
    done = subprocess.run(words, capture_output=True, check=False)  # noqa: S603 - patchkit's own program
    trace.unlink()
    if done.returncode:
        why = done.stderr.decode("utf-8", "replace").strip()
        raise RuntimeError(f"a launch could not be simulated by the timing model: {why}")
    return float(json.loads(done.stdout)["us"]) + float(model["launch_us"])
