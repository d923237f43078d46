"""A wrong timing file says where; an error of the model holds for what it was measured with."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.errors import ErrorGroup
from patchkit.carry.series.profile import load_profile
from patchkit.gpu.emulated.device import device_of
from patchkit.gpu.modelled.machine import load_machine

_ERROR = """
[[error]]
kind = "other"
head_sizes = {sizes}
points = 3
median = 0.1
p90 = 0.2
source = "nobody"
"""


@pytest.fixture
def load(checkout: Path, tmp_path: Path):
    """``load(more)`` is the machine of the shipped file with more text at its end, or other text in it."""
    shipped = (checkout / "arch_profiles" / "timing" / "gfx1151.toml").read_text()
    device = device_of(load_profile(checkout / "arch_profiles", "gfx1151"))
    path = tmp_path / "timing" / "gfx1151.toml"
    path.parent.mkdir()

    def run(more: str = "", *, without: str = "", instead: str = ""):
        assert without in shipped
        path.write_text(shipped.replace(without, instead, 1) + more)
        return load_machine(tmp_path, device)

    return run


def test_errors_of_a_kind_are_told_by_the_head_sizes_they_were_measured_with(load) -> None:
    machine = load(_ERROR.format(sizes=[64]) + _ERROR.format(sizes=[128, 256]))
    assert machine.error_of("other", 256).head_sizes == (128, 256)
    assert machine.error_of("other", 80) is None
    assert str(machine.error_of("other", 256)) == "other, head size 128 and 256"
    assert str(machine.error_of("mmq")) == "mmq"


def test_a_power_limit_scales_the_clock_between_published_powers(load) -> None:
    machine = load()
    assert machine.sustained == 1
    assert "sustained 1\n" in machine.text()
    shares = [machine.at_power(watts).sustained for watts in (80, 87, 95, 111, 120)]
    assert shares == sorted(shares)
    assert shares[0] == 0.74
    assert 0.74 < shares[1] < shares[2] < 1
    assert shares[3] == shares[4], "nobody published more"
    assert "95 W" in machine.at_power(95).box


def test_a_power_that_no_clock_is_published_for_is_refused(load, checkout: Path) -> None:
    with refused("TIMING_UNKNOWN", match="at 60 W") as found:
        load().at_power(60)
    assert found.value.hint == "--power 80 or more"
    other = load_machine(
        checkout / "arch_profiles", device_of(load_profile(checkout / "arch_profiles", "gfx1100"))
    )
    with refused("TIMING_UNKNOWN", match="gfx1100"):
        other.at_power(100)


def test_powers_out_of_order_are_refused(load) -> None:
    with refused("CONFIG_VALUE", match="not sorted"):
        load("\n[[sustained]]\nwatts = 90\nshare = 0.9\nsource = 'nobody'\n")


def test_two_errors_of_one_kind_of_test_are_refused(load) -> None:
    with refused("CONFIG_VALUE", match="two .* of 'prompt'"):
        load(without='kind = "text"', instead='kind = "prompt"')


def test_a_clock_that_falls_with_the_power_is_refused(load) -> None:
    with refused("CONFIG_VALUE", match="lower share"):
        load("\n[[sustained]]\nwatts = 130\nshare = 0.9\nsource = 'nobody'\n")


def test_errors_of_whole_models_are_told_by_kind(load) -> None:
    machine = load()
    moe = "prompt of an MoE model"
    assert "mostly too fast" in machine.rate_error_text(moe, is_timeline=True)
    assert machine.rate_error_text(moe) == f"the error of such tests ({moe}) is unknown"
    assert "too" not in machine.rate_error_text("text")
    other = load(without='kind = "text"', instead='kind = "text of several sequences"')
    assert other.rate_error_text("text") == "the error of such tests (text) is unknown"


@pytest.mark.parametrize("sizes", [([64], [128, 64]), ([], [128]), ([64], []), ([], [])])
def test_two_errors_of_the_same_kernels_are_refused(load, sizes) -> None:
    more = "".join(_ERROR.format(sizes=each) for each in sizes)
    with refused("CONFIG_VALUE", match="errors of other.* overlap") as found:
        load(more)
    (place,) = found.value.where
    line = Path(place.path).read_text().splitlines()[place.line - 1]
    assert (line, place.line) == ("[[error]]", _lines(place.path) - 6)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (_ERROR.format(sizes='["x"]'), "head_sizes[0]' is 'x'"),
        (_ERROR.format(sizes=[0]), "head_sizes[0]' is 0"),
        (_ERROR.format(sizes=64), "head_sizes' is 64"),
        (_ERROR.format(sizes=[64]).replace("median", "mean"), "median' is missing"),
        (_ERROR.format(sizes=[64]) + "ratios = 3\n", "must be given together"),
    ],
)
def test_a_wrong_error_is_refused_with_its_line(load, more, says) -> None:
    with pytest.raises(ErrorGroup) as found:
        load(more)
    first = found.value.errors[0]
    assert says in f"{first.message} {first.why}"
    (place,) = first.where
    assert _lines(place.path) - 8 <= place.line <= _lines(place.path)


def _lines(path: str) -> int:
    return len(Path(path).read_text().splitlines())


def test_a_figure_that_is_missing_is_named(load) -> None:
    with pytest.raises(ErrorGroup) as found:
        load(without="[figures.lds_least]\nvalue = 1.49\n", instead="[figures.lds_leas]\nvalue = 1.49\n")
    assert any("'figures.lds_least' is missing" in error.message for error in found.value.errors)
