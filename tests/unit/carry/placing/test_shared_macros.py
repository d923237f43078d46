"""The macros of templates/ that the shipped patches share, on one GPU and on two."""

from __future__ import annotations

from pathlib import Path

from patchkit.base.errors import Location
from patchkit.carry.placing.context import make_context, make_guard
from patchkit.carry.placing.templates import PatchRenderer
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.profile import load_profile

HERE = Location(path="patch.toml")
ONE = ("gfx1151",)
TWO = ("gfx1150", "gfx1151")
TEXT = """
//% from "gpus.jinja" import {macro}
//% call(arch) {macro}(archs{more})
    f_@{{ arch.name }}@();
//% endcall
"""


def render(checkout: Path, archs: tuple[str, ...], macro: str, more: str = "") -> str:
    series = load_series(checkout / "patches")
    patch = next(each for each in series.patches if each.context == ("archs",))
    profiles = [load_profile(checkout / "arch_profiles", arch) for arch in archs]
    context = make_context(make_guard(patch.guard, profiles), profiles)
    renderer = PatchRenderer(patch, checkout / "patches" / patch.folder, checkout / "templates", context)
    return renderer.text(TEXT.format(macro=macro, more=more).lstrip(), HERE)


def test_host_code_asks_for_each_gpu(checkout: Path) -> None:
    assert render(checkout, TWO, "on_host") == (
        "if (cc == GGML_CUDA_CC_OFFSET_AMD + 0x1150) {\n    f_gfx1150();\n}\n"
        "if (cc == GGML_CUDA_CC_OFFSET_AMD + 0x1151) {\n    f_gfx1151();\n}\n"
    )
    assert render(checkout, ONE, "on_host", ", 'id'") == (
        "if (id == GGML_CUDA_CC_OFFSET_AMD + 0x1151) {\n    f_gfx1151();\n}\n"
    )


def test_device_code_asks_only_where_there_are_several(checkout: Path) -> None:
    assert render(checkout, ONE, "on_device") == "    f_gfx1151();\n"
    assert render(checkout, TWO, "on_device") == (
        "#if defined(__gfx1150__)\n    f_gfx1150();\n#endif\n"
        "#if defined(__gfx1151__)\n    f_gfx1151();\n#endif\n"
    )
