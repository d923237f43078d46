"""Where work grows faster than the size of a file, the file is refused or cut: no report runs away."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from patchkit.base.document import (
    EvidenceContradicts,
    EvidenceMalformed,
    EvidenceUnreadable,
    parse_model,
)
from patchkit.prove.gates.record import ProblemPlace
from patchkit.prove.report.model import Run


def test_a_key_repeated_among_very_many_is_found() -> None:
    pairs = ", ".join(f'"{number}": 0' for number in range(200_000))
    with pytest.raises(EvidenceUnreadable) as caught:
        parse_model(f'{{{pairs}, "199999": 1}}'.encode(), Run, "x.json")
    assert "duplicate key '199999'" in (caught.value.why or "")


def test_a_run_has_a_bounded_number_of_gates_and_each_once(whole_but: Callable[..., Run]) -> None:
    def gates(names: list[str]) -> Callable[[dict], None]:
        return lambda report: report.update(gates=[{**report["gates"][-1], "gate": name} for name in names])

    with pytest.raises(EvidenceMalformed) as caught:
        whole_but("report.json", gates([f"gate-{number}" for number in range(101)]))
    assert "$.gates is not a list of at most 100" in caught.value.message
    with pytest.raises(EvidenceContradicts) as again:
        whole_but("report.json", gates(["bench", "bench"]))
    assert again.value.where[0].label == "$.gates[1]"


def _more_rounds(tests: list[dict]) -> None:
    for test in tests:
        test["samples_ns"]["baseline"] = [[1000]] * 101


def _more_tests(tests: list[dict]) -> None:
    tests[:] = tests[:1] * 51


@pytest.mark.parametrize("change", [_more_rounds, _more_tests])
def test_a_measurement_has_bounded_rounds_and_tests(
    whole_but: Callable[..., Run], change: Callable[[list[dict]], None]
) -> None:
    with pytest.raises(EvidenceMalformed) as caught:
        whole_but("bench@cpu.json", lambda document: change(document["evidence"]["samples"]["tests"]))
    assert ".samples" in (caught.value.where[0].label or "")


def test_a_path_longer_than_any_is_no_file_of_the_tree() -> None:
    assert ProblemPlace(path=f"{'a.' * 3000}cu").side == "other"
    assert ProblemPlace(path=f"{'a/' * 100}x.cu").side == "upstream"


def test_gpus_beyond_any_number_get_no_tables_of_their_own(whole_but: Callable[..., Run]) -> None:
    def many(document: dict) -> None:
        small = document["evidence"]["archs"]["gfx1151"] | {"transitions": [], "samples": [], "models": []}
        document["evidence"]["archs"] = {f"gfx{number}": small for number in range(300)}

    (gate,) = (gate for gate in whole_but("launch.json", many).gates if gate.name == "launch")
    assert len(gate.blocks) == 3 * 64
