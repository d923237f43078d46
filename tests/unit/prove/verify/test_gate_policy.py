"""The [gates] table of series.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.base.errors import ConfigError, ErrorGroup
from patchkit.prove.gates.registry import entries, gate_names
from patchkit.prove.verify.policy import GatePolicy, load_proven_series

GATES = gate_names()

ROOT = Path(__file__).resolve().parents[4]


def _series(folder: Path, table: str) -> Path:
    (folder / "series.toml").write_text(f'folders = ["src/"]\n{table}', "utf-8")
    return folder


def _quoted(names: tuple[str, ...]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


def test_without_the_table_every_gate_is_required_that_hardware_can_run(tmp_path: Path) -> None:
    required = tuple(one.name for one in entries() if one.runs_on != "emulated" and not one.plain_only)
    assert load_proven_series(_series(tmp_path, "")).gates.required == required


def test_a_series_that_was_written_before_the_gates_of_the_emulated_gpu_is_as_good(tmp_path: Path) -> None:
    required = tuple(one.name for one in entries() if one.runs_on != "emulated" and not one.plain_only)
    table = f'[gates]\nrequired = {_quoted(required)}\nwhy = "w"\n'
    assert load_proven_series(_series(tmp_path, table)).gates.required == required


def test_the_shipped_series_names_every_gate() -> None:
    policy = load_proven_series(ROOT / "patches").gates
    assert sorted((*policy.required, *policy.optional)) == sorted(
        set(GATES) - {"cpu-build", "cpu-tests"}
    )  # plain patches'
    assert {"anchors", "isolation", "compile", "resources", "launch", "backend-ops", "logits"} <= {
        *policy.required
    }
    assert policy.why


@pytest.mark.parametrize(
    ("hardware", "says"),
    [(("bench",), None), (("launch",), "launch"), (("logits",), "in hardware, but not required: logits")],
    ids=["of the required ones", "needs no device", "not required"],
)
def test_hardware_is_asked_for_required_gates_on_a_device(
    tmp_path: Path, hardware: tuple[str, ...], says: str | None
) -> None:
    required = tuple(name for name in GATES if name != "logits")
    table = (
        f"[gates]\nrequired = {_quoted(required)}\nhardware = {_quoted(hardware)}\n"
        'optional = ["logits"]\nwhy = "w"\n'
    )
    if says is None:
        assert load_proven_series(_series(tmp_path, table)).gates.hardware == hardware
        return
    with pytest.raises((ConfigError, ErrorGroup)) as caught:
        load_proven_series(_series(tmp_path, table))
    error = caught.value.errors[0] if isinstance(caught.value, ErrorGroup) else caught.value
    assert says in f"{error.message} {error.why}"


def test_the_shipped_series_asks_for_hardware_nowhere() -> None:
    assert not load_proven_series(ROOT / "patches").gates.hardware


def test_a_gate_of_an_earlier_version_may_still_be_named(tmp_path: Path) -> None:
    table = f'[gates]\nrequired = {_quoted(GATES)}\noptional = ["numerics"]\nwhy = "w"\n'
    policy = load_proven_series(_series(tmp_path, table)).gates
    assert (policy.required, policy.optional) == (GATES, ())


@pytest.mark.parametrize(
    ("required", "optional", "says"),
    [
        (GATES[:-1], (), "bench"),
        (GATES, ("bench",), "bench"),
        ((*GATES, "speed"), (), "speed"),
    ],
    ids=["one forgotten", "one twice", "one unknown"],
)
def test_each_gate_stands_in_exactly_one_list(
    tmp_path: Path, required: tuple[str, ...], optional: tuple[str, ...], says: str
) -> None:
    table = f'[gates]\nrequired = {_quoted(required)}\noptional = {_quoted(optional)}\nwhy = "w"\n'
    with pytest.raises((ConfigError, ErrorGroup)) as caught:
        load_proven_series(_series(tmp_path, table))
    error = caught.value.errors[0] if isinstance(caught.value, ErrorGroup) else caught.value
    assert says in f"{error.message} {error.why}"
    assert error.where[0].path == str(tmp_path / "series.toml")


def _plain(folder: Path, table: str) -> Path:
    (folder / "series.toml").write_text(f"plain = true\n{table}", "utf-8")
    return folder


def test_a_plain_series_has_the_gates_of_plain_patches_and_no_other(tmp_path: Path) -> None:
    asked = load_proven_series(_plain(tmp_path, "")).gates
    assert asked.required == ("anchors", "cpu-build")
    assert asked.of(("plain",)).required == asked.required
    table = '[gates]\nrequired = ["anchors", "cpu-tests"]\noptional = ["cpu-build"]\nwhy = "w"\n'
    assert load_proven_series(_plain(tmp_path, table)).gates.required == ("anchors", "cpu-tests")
    for wrong, says in (
        (
            '"anchors"',
            "gates that are neither required nor optional: cpu-build",
        ),
        (_quoted(GATES)[1:-1], "launch"),
    ):
        with pytest.raises((ConfigError, ErrorGroup)) as caught:
            load_proven_series(_plain(tmp_path, f'[gates]\nrequired = [{wrong}]\nwhy = "w"\n'))
        error = caught.value.errors[0] if isinstance(caught.value, ErrorGroup) else caught.value
        assert says in f"{error.message} {error.why}"


def test_the_plain_candidate_of_a_series_with_gpus_is_asked_for_what_looks_at_plain_patches() -> None:
    policy = load_proven_series(ROOT / "patches").gates
    assert policy.of(("gfx1151",)) is policy
    assert policy.of(("plain",)).required == ("anchors", "cpu-build")
    named = GatePolicy(required=GATES, why="w")
    assert named.of(("plain",)).required == ("anchors", "cpu-build", "cpu-tests")
    rest = tuple(name for name in GATES if name != "cpu-build")
    spared = GatePolicy(required=rest, optional=("cpu-build",), why="w")
    assert spared.of(("plain",)).required == ("anchors", "cpu-tests")
