"""The plan of the driver that runs batches of a model, and what it says."""

from __future__ import annotations

import json

import pytest

from patchkit.gpu.emulated.log import RecordingUnreadable
from patchkit.gpu.modelled.batches import BatchTest, LibraryCall, Moved, Started, parse_batches, plan_of

_TENSOR = {"name": "blk.0.attn_q.weight", "at": 4096, "bytes": 144, "type": "q4_K", "leaf": True}
_LAUNCH = {"started": "_Z1kv", "grid": [2, 1, 1], "block": [32, 1, 1], "lds": 0, "number": 0, "pointers": [1]}


def test_several_sequences_have_a_context_of_their_own_and_depth_grows() -> None:
    tests = [
        BatchTest(name="deep", depth=16384, tokens=512),
        BatchTest(name="four", depth=16384, tokens=1, sequences=4),
        BatchTest(name="flat", depth=0, tokens=512),
    ]
    assert plan_of(tests, "f16").splitlines() == [
        "context 16896 1 f16",
        "test flat 0 512 1",
        "test deep 16384 512 1",
        "context 16640 4 f16",
        "test four 16384 1 4",
    ]


def test_a_log_becomes_the_events_of_each_test_in_order() -> None:
    lines = [
        {"moved": "to the GPU", "bytes": 7, "to": 1},  # before any test
        {"test": "one"},
        {
            "node": "MUL_MAT",
            "result": {**_TENSOR, "shape": [4, 1, 1, 1]},
            "from": [{**_TENSOR, "shape": [4, 4, 1, 1]}],
        },
        {**_LAUNCH, "trace": 3},
        {"blas": "hipblasGemmEx", "m": 2, "n": 3, "k": 4},
        {**_LAUNCH, "trace": -1},
        {"moved": "filled", "bytes": 8, "to": 1},
        {"test": ""},
        {"moved": "to the GPU", "bytes": 9, "to": 1},  # of the tokens before the next
    ]
    runs, traces = parse_batches(map(json.dumps, lines), "log")
    assert traces == {0: 3}
    assert list(runs) == ["one"]
    launch = Started(kernel="_Z1kv", grid=(2, 1, 1), block=(32, 1, 1), lds=0, number=0, pointers=(1,))
    assert runs["one"].events == (
        launch,
        LibraryCall(call="hipblasGemmEx 2x3x4"),
        launch,
        Moved(how="filled", bytes=8, to=1),
    )
    assert [source.name for source in runs["one"].nodes[0].sources] == ["blk.0.attn_q.weight"]


@pytest.mark.parametrize("line", ["{", "[]", '{"started": "k"}', '{"odd": 1}'])
def test_a_line_of_nobody_is_told_with_its_place(line: str) -> None:
    with pytest.raises(RecordingUnreadable) as raised:
        parse_batches(['{"test": "one"}', line], "log")
    assert [place.line for place in raised.value.where] == [2]
