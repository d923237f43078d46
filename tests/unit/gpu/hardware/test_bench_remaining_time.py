"""How long a sweep will still take, from what its runs took."""

from __future__ import annotations

import pytest

from patchkit.gpu.hardware.bench.remaining_time import format_duration, seconds_left


def test_before_the_first_run_nothing_is_known() -> None:
    assert seconds_left({}, [0, 1024]) is None
    assert seconds_left({0: []}, [0]) is None


def test_a_depth_that_was_measured_takes_its_median_again() -> None:
    assert seconds_left({0: [1, 2, 30], 1024: [5]}, [0, 0, 1024]) == 9
    assert seconds_left({0: [1]}, []) == 0


@pytest.mark.parametrize(
    ("took", "depth", "expected"),
    [
        ({1024: [4.0]}, 4096, 16.0),
        ({1024: [4.0], 4096: [10.0]}, 16384, 40.0),
        ({1024: [4.0]}, 512, 4.0),
        ({0: [3.0]}, 1024, 3.0),
    ],
)
def test_a_depth_that_was_not_takes_as_the_nearest_below(
    took: dict[int, list[float]], depth: int, expected: float
) -> None:
    assert seconds_left(took, [depth]) == expected


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.4, "0 s"), (59, "59 s"), (60, "1 min"), (3599, "60 min"), (11_100, "3 h 05 min")]
)
def test_durations_are_told_as_people_do(seconds: float, told: str) -> None:
    assert format_duration(seconds) == told
