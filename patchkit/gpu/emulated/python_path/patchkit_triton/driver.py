"""The driver that Triton selects in a program that patchkit started."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from .hip import Hip
from .hooks import after_import
from .host_arrays import as_argument
from .launcher import WAVE, Launcher, memory_of, packed
from .mirrors import Mirrors
from .pointers import Pointers, watch
from .timing import Timer

_DEVICE = "PATCHKIT_RECORDER_DEVICE"  # file of "name value" lines: the emulated GPU
_MOST_PLACES = 4  # of the program's stack, in findings
_NOT_THE_PROGRAMS = (str(Path(triton.__file__).parent), str(Path(__file__).parent), "<")


def _is_emulated() -> bool:
    return _DEVICE in os.environ and "PATCHKIT_EMULATOR" in os.environ


def _places_of_program() -> list[tuple[str, int, str]]:
    """File, line and function of the stack's frames outside of Triton and this package, innermost first."""
    places: list[tuple[str, int, str]] = []
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to read one's own stack
    while frame is not None and len(places) < _MOST_PLACES:
        if not frame.f_code.co_filename.startswith(_NOT_THE_PROGRAMS):
            places.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return places


def _is_called_by_program() -> bool:
    """Whether the caller of the calling function is neither Triton nor this package."""
    return not sys._getframe(2).f_code.co_filename.startswith(_NOT_THE_PROGRAMS)  # noqa: SLF001 - as above


class _Utils:
    """The methods of a device that Triton calls."""

    def __init__(self, hip: Hip, device: dict[str, str]) -> None:
        self._hip = hip
        self._device = device

    def get_device_properties(self, device: int) -> dict[str, Any]:
        """Limits of the GPU. Clocks and bus width are unknown to the emulated GPU, and 0."""
        del device
        lanes = int(self._device["simds_per_multiprocessor"]) * int(self._device["wave_size"])
        return {
            "max_shared_mem": int(self._device["lds_per_block"]),
            "max_num_regs": int(self._device["vgprs_per_simd"]) * lanes,
            "multiprocessor_count": int(self._device["multiprocessors"]),
            "warpSize": int(self._device["wave_size"]),
            "max_threads_per_sm": int(self._device["max_waves_per_simd"]) * lanes,
            "arch": self._device["arch"],
            "cooperativeLaunch": 1,
            "sm_clock_rate": 0,
            "mem_clock_rate": 0,
            "mem_bus_width": 0,
        }

    def load_binary(self, name: str, code: bytes, shared: int, device: int) -> tuple[int, int, int, int, int]:
        """Load a kernel: handles of module and kernel, VGPRs, dwords of scratch, maximum of threads."""
        del shared, device
        module, function = self._hip.load(code, name)
        vgprs, scratch, threads = self._hip.resources(function)
        return module, function, vgprs, scratch // 4, threads

    def unload_module(self, module: int) -> None:
        """Unload the module of a kernel."""
        self._hip.unload(module)


class _Interface:
    """The functions of ``torch.cuda`` that Triton's own modules call."""

    def __init__(self, hip: Hip) -> None:
        self.synchronize = hip.synchronize

    def current_device(self) -> int:
        """The only device."""
        return 0


class EmulatedDriver(DriverBase):  # type: ignore[misc] # Triton is not installed where this is checked
    """Launches kernels on the emulated GPU.

    The arrays of a launch are copied to device memory before it, and back when it has ended. So the program
    never needs to wait, and no array has to be created for the device.
    """

    launcher_cls = Launcher

    def __init__(self) -> None:
        super().__init__()
        lines = Path(os.environ[_DEVICE]).read_text("utf-8").splitlines()
        self._device = dict(line.split(" ", 1) for line in lines)
        self._hip = Hip()
        self._mirrors = Mirrors(self._hip)
        self._pointers = Pointers(self._hip)
        self._is_checked = "PATCHKIT_EMULATOR_CHECK" in os.environ
        self.utils = _Utils(self._hip, self._device)
        self.timer = Timer(self._hip, self._device["arch"])

    @classmethod
    def is_active(cls) -> bool:
        """Whether patchkit started this program."""
        return _is_emulated()

    def launch(
        self, function: int, grid: tuple[int, int, int], metadata: Any, arguments: list[tuple[str, Any]]
    ) -> None:
        """Run a kernel to its end; ``arguments``: type and value of each.

        Raises:
            RuntimeError: the runtime refused the launch.
            TypeError, ValueError: an argument cannot be passed, or was changed although it is read-only.
        """
        if self.timer.is_dry:
            return
        if self._is_checked:
            self._hip.called_from(_places_of_program())
        entries = self._pointers.entries(arguments)
        pointed = ((storage.data_ptr(), storage.nbytes(), True) for *_, storage in entries)
        mirrored = self._mirrors.upload([*memory_of(arguments), *pointed])
        self._pointers.translate(entries, mirrored)
        blocks = grid[0] * grid[1] * grid[2]
        scratch = [
            self._scratch(blocks * (getattr(metadata, name, 0) or 0))
            for name in ("global_scratch_size", "profile_scratch_size")
        ]
        values = [packed(type_, value, mirrored) for type_, value in arguments]
        self._hip.launch(
            function,
            grid,
            threads=WAVE * metadata.num_warps,
            lds=metadata.shared,
            arguments=[*values, *(packed("*i8", one, mirrored) for one in scratch)],
            cooperative=bool(metadata.launch_cooperative_grid),
        )
        self._hip.synchronize()
        if not self.timer.is_timing:
            self._pointers.restore(entries, mirrored)
            self._mirrors.download(mirrored, metadata.name)
        for one in filter(None, scratch):
            self._hip.free(one)

    def _scratch(self, size: int) -> int:
        """Memory of a launch that its kernel requires: the address, 0 if it requires none."""
        return self._hip.allocate(size) if size else 0

    def get_current_target(self) -> GPUTarget:
        """What Triton's AMD backend compiles for."""
        return GPUTarget("hip", self._device["arch"], WAVE)

    def get_active_torch_device(self) -> Any:
        """The device for tensors of PyTorch: the CPU."""
        import torch  # noqa: PLC0415 - optional

        return torch.device("cpu")

    def get_device_interface(self) -> _Interface:
        """The substitute for ``torch.cuda``."""
        return _Interface(self._hip)

    def get_benchmarker(self) -> Any:
        """The autotuner's benchmark: modelled times."""
        return lambda call, quantiles, **_: self.timer.tune(call, quantiles)

    def get_current_device(self) -> int:
        """The only device."""
        return 0

    def set_current_device(self, device: int) -> None:
        """There is only one device."""

    def get_current_stream(self, device: int) -> int:
        """The default stream."""
        del device
        return 0

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        """Major and minor version, as PyTorch derives them from the name of an AMD GPU."""
        del device
        return int(self._device["arch"][3:-2]), int(self._device["arch"][-2], 16)

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Only ahead-of-time compilation of launchers in C uses it."""
        from triton.backends.amd.driver import ty_to_cpp  # noqa: PLC0415 - only if called

        return str(ty_to_cpp(ty))

    def get_empty_cache_for_benchmark(self) -> None:
        """Nothing to clear: modelled times assume cold caches."""

    def clear_cache(self, cache: Any) -> None:
        """Nothing to clear."""


def _adapt_triton() -> None:
    """Let kernels take NumPy arrays, and the program's own benchmarks modelled times."""
    from triton import testing  # noqa: PLC0415 - complete only now
    from triton.runtime import autotuner, driver, jit  # noqa: PLC0415 - as above

    def bind(kernel: Any, grid: Any) -> Any:
        def launch(*arguments: Any, **named: Any) -> Any:
            given = {name: as_argument(value) for name, value in named.items()}
            return kernel.run(*map(as_argument, arguments), grid=grid, warmup=False, **given)

        return launch

    def do_bench(fn: Any, *_: Any, quantiles: Any = None, return_mode: str = "mean", **__: Any) -> Any:
        return driver.active.timer.bench(fn, quantiles, return_mode)

    prune = autotuner.Autotuner.prune_configs

    def prune_configs(self: Any, named: Any) -> Any:
        driver.active.timer.begin_tuning()
        return prune(self, named)

    jit.KernelInterface.__getitem__ = bind
    autotuner.Autotuner.prune_configs = prune_configs
    testing.do_bench = do_bench


def _adapt_descriptors() -> None:
    """Let tensor descriptors have arrays of NumPy and DLPack as their base."""
    from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: PLC0415 - it was just imported

    check, of_tensor = TensorDescriptor.__post_init__, TensorDescriptor.from_tensor

    def post_init(self: Any) -> None:
        self.base = as_argument(self.base)
        check(self)

    def from_tensor(tensor: Any, *others: Any, **named: Any) -> Any:
        return of_tensor(as_argument(tensor), *others, **named)

    TensorDescriptor.__post_init__ = post_init
    TensorDescriptor.from_tensor = staticmethod(from_tensor)


def _adapt_torch() -> None:
    """Note the addresses of tensors that the program reads."""
    watch(sys.modules["torch"].Tensor, _is_called_by_program)


if _is_emulated():
    if "torch" in sys.modules:
        _adapt_torch()
    else:
        after_import("torch", _adapt_torch)
    after_import("triton.testing", _adapt_triton)
    after_import("triton.tools.tensor_descriptor", _adapt_descriptors)
