"""The figures of docs/records/estimate.md are what the estimate gives."""

from __future__ import annotations

import re

import pytest

from patchkit.gpu.gguf import tensor_kinds_by_name
from patchkit.gpu.modelled.roofline import Figure, Peaks, bound_of
from patchkit.gpu.modelled.roofline import Test as Run
from patchkit.gpu.modelled.shape import shape_of_file

_SHAPES = ("llama-3.2-1b-q4_k_m", "gpt-oss-20b-f16")
# The speeds that the document names for its tables; the profile may change without them.
_PEAKS = Peaks(
    bandwidth=Figure(value=212, unit="GB/s", kind="given", source="document", confidence="-"),
    compute=Figure(value=59.4, unit="TFLOPS", kind="given", source="document", confidence="-"),
)


def _rows(checkout, mark: str) -> list[list[str]]:
    text = (checkout / "docs" / "records" / "estimate.md").read_text("utf-8")
    table = text.split(f"<!-- {mark} -->\n")[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def _run(test: str) -> Run:
    found = re.fullmatch(r"(pp|tg)(\d+)(?: @ d(\d+))?", test)
    assert found is not None
    tokens = int(found[2])
    return Run(tokens=tokens, depth=int(found[3] or 0), batch=1 if found[1] == "tg" else tokens)


@pytest.mark.parametrize("shape", _SHAPES)
def test_bounds_shares_gains_and_errors_of_the_tables(checkout, shape):
    model = shape_of_file(checkout / "arch_profiles" / "models" / f"{shape}.toml")
    rows = _rows(checkout, shape)
    assert rows
    for test, most, share, gain, *measured in rows:
        bound = bound_of(model, _run(test), _PEAKS, tensor_kinds_by_name()["F16"])
        assert [f"{bound.rate:.2f}", f"{bound.share:.1%}", f"x{bound.gain:.2f}"] == [most, share, gain]
        errors = [f"{bound.rate / float(rate) - 1:+.0%}" for rate in measured[::2]]
        assert errors == measured[1::2]
