"""Pull requests against a small project whose upstream has one source file: everything but the compiler.

What ends before the gates that compile is judged here in full; what needs them, in ``test_ten_pulls``.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from demo_world import FOLDER, SOURCE, World, git, make_series, make_upstream, pin_text
from refusing import refused

from patchkit.base.errors import ConfigError, ErrorGroup, ExitCode
from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import SeriesDir
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Request
from patchkit.carry.candidate.relock import relock
from patchkit.carry.series.lock import Followed, format_lock, load_lock
from patchkit.prove.gates.registry import entries, gate_names
from patchkit.prove.pulls.first_look import GateRequest, look_first
from patchkit.prove.pulls.run import run_gate
from patchkit.prove.pulls.text import gate_lines, gate_markdown
from patchkit.prove.pulls.verdict import PullVerdict
from patchkit.prove.verify.hardware import Hardware, choose_hardware

ROOT = Path(__file__).resolve().parents[3]
FIRST = "patches/0001-demo-launch-bounds/patch.toml"
SECOND = "patches/0002-demo-twin/patch.toml"
PROFILE = "arch_profiles/gfx1151.toml"
GATES = gate_names()


def judge_now(request: GateRequest, workspace: Workspace) -> PullVerdict:
    # A ROCm that is named and not there: so on every machine nothing compiles here.
    environ = {"ROCM_PATH": str(workspace.cache_root / "no-rocm")}
    return run_gate(look_first(request, workspace.reporter), workspace, environ=environ)


@dataclass(frozen=True)
class Small(World):
    """A place whose series is a git repository with a branch ``main``."""

    def workspace(self, root: Path | None = None) -> Workspace:
        series = SeriesDir(root=root or self.series, origin="named")
        return Workspace(series=series, cache_root=self.cache, reporter=NullReporter())

    def relock(self, upstream: str | None = None) -> None:
        relock(Request(archs=("gfx1151",), upstream=upstream), self.workspace())

    def text(self, path: str) -> str:
        return (self.series / path).read_text("utf-8")

    def edited(self, path: str, old: str, new: str) -> dict[str, str | None]:
        text = self.text(path)
        assert old in text
        return {path: text.replace(old, new)}

    def pull(self, changes: Mapping[str, str | None], *, lock: bool = False) -> str:
        for path, text in changes.items():
            place = self.series / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.unlink() if text is None else place.write_text(text, "utf-8")
        if lock:
            self.relock()
        git(self.series, "add", "-A")
        git(self.series, "commit", "-q", "--allow-empty", "-m", "pull")
        return git(self.series, "rev-parse", "HEAD")

    def gate(self, head: str = "HEAD", at: Path | None = None, **options: object) -> PullVerdict:
        request = GateRequest(repository=at or self.series, base="main", head=head)
        return judge_now(replace(request, **options), self.workspace())

    def judge(
        self, changes: Mapping[str, str | None], *, lock: bool = False, **options: object
    ) -> PullVerdict:
        self.pull(changes, lock=lock)
        return self.gate(**options)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Small:
    """To be copied."""
    small = Small(tmp_path_factory.mktemp("small"), ROOT)
    files = {
        f"{FOLDER}/demo.cu": SOURCE,
        f"{FOLDER}/common.cuh": "#pragma once\n// GGML_USE_HIP\n",
        "ggml/CMakeLists.txt": "project(ggml)\n",
        "README.md": "upstream\n",
    }
    later = SOURCE.replace("int twin_a(int x) {\n", "int twin_a(int x) {\n    x += 1;\n")
    make_upstream(small.upstream, {1: files, 2: {f"{FOLDER}/demo.cu": later}})
    make_series(small, 1, ("gfx1151",), config=True, last=None)
    for path in ("README.md", "docs/how.md", "patchkit/thing.py"):
        (small.series / path).parent.mkdir(exist_ok=True)
        (small.series / path).write_text("one\n")
    (small.series / "templates" / "README").write_text("shared\n")
    small.relock()
    git(small.series, "init", "-q", "-b", "main")
    git(small.series, "add", "-A")
    git(small.series, "commit", "-q", "-m", "base")
    return small


@pytest.fixture
def small(source: Small, tmp_path: Path) -> Small:
    shutil.copytree(source.series, tmp_path / "series")
    shutil.copytree(source.cache, tmp_path / "cache")
    (tmp_path / "upstream").symlink_to(source.upstream)
    git(tmp_path / "series", "checkout", "-q", "-b", "pr")
    return Small(tmp_path, ROOT)


def codes(verdict: PullVerdict) -> list[str]:
    return [finding.problem.code for finding in verdict.findings]


def states(verdict: PullVerdict) -> dict[str, str]:
    (one,) = verdict.judged
    return {row.gate: row.state for row in one.rows}


def would_run(verdict: PullVerdict) -> set[str]:
    return {name for name, state in states(verdict).items() if state == "would run"}


def test_documents_run_no_gate_and_touch_no_cache(small: Small) -> None:
    shutil.rmtree(small.cache)
    verdict = small.judge({"docs/how.md": "two\n", "README.md": "two\n"})
    assert (verdict.word, verdict.exit_code, verdict.judged) == ("nothing to prove", ExitCode.OK, ())
    assert not small.cache.exists()


def test_a_look_at_documents_imports_nothing_large() -> None:
    program = """
import sys
import patchkit.prove.pulls.first_look, patchkit.prove.pulls.text
print([name for name in ("clang", "jinja2", "gguf", "patchkit.toolchain") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_no_change_at_all_is_nothing_to_prove(small: Small) -> None:
    assert small.judge({}).word == "nothing to prove"


def test_code_of_the_project_is_not_proven_and_not_run(small: Small, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    evil = f"open({str(ran)!r}, 'w')\n"
    changes = {"patchkit/thing.py": evil, "patchkit/__init__.py": evil, "conftest.py": evil, "setup.py": evil}
    verdict = small.judge(changes)
    assert (verdict.word, verdict.exit_code) == ("not proven", ExitCode.GATE_FAILED)
    assert codes(verdict) == ["GATE_OWN_TESTS_NEEDED"]
    assert verdict.judged == ()
    assert not ran.exists()
    told = small.gate(own_tests_passed=True)
    assert (told.word, told.findings) == ("passed", ())
    assert "according to the caller" in told.attention[0]


def test_a_text_in_a_profile_needs_the_place_and_nothing_that_compiles(small: Small) -> None:
    verdict = small.judge(small.edited(PROFILE, 'why = "for the test"', 'why = "for two tests"'), lock=True)
    assert verdict.word == "passed"
    assert verdict.ran == ("anchors",)
    assert states(verdict) == dict.fromkeys(GATES, "not needed") | {"anchors": "passed"}
    assert verdict.judged[0].reasons[0] == PROFILE


def test_the_profile_of_another_gpu_reaches_no_candidate(small: Small) -> None:
    path = "arch_profiles/gfx906.toml"
    verdict = small.judge({path: small.text(path) + "\n# a remark\n"})
    assert (verdict.word, verdict.judged) == ("nothing to prove", ())


def test_a_gpu_that_goes_is_looked_for_in_the_others_candidates(small: Small) -> None:
    verdict = small.judge({"arch_profiles/gfx906.toml": None}, explain=True)
    looking = {entry.name for entry in entries() if entry.sees_every_gpu}
    assert {"isolation", "launch"} <= looking
    assert would_run(verdict) == {"anchors", *looking}


def test_a_shared_template_reaches_every_candidate(small: Small) -> None:
    verdict = small.judge({"templates/README": "shared by all\n"}, lock=True)
    assert verdict.judged[0].reasons[0] == "templates/README"
    assert verdict.ran == ("anchors",)


@pytest.mark.parametrize(
    ("old", "new", "gates"),
    [
        ("\n[[edit]]", '\n[resources]\nmore_spills = 4\nwhy = "x"\n\n[[edit]]', {"resources"}),
        ('effect = "none"', 'effect = "none at all"', set()),
    ],
)
def test_a_rule_of_a_patch_needs_the_gate_that_reads_it(
    small: Small, old: str, new: str, gates: set[str]
) -> None:
    text = small.text(SECOND)
    assert old in text
    small.pull({SECOND: text.replace(old, new, 1)}, lock=True)
    verdict = small.gate(explain=True)
    assert would_run(verdict) == {"anchors", *gates}
    assert any("how many resources its kernels may need" in text for text in verdict.attention) == bool(gates)


def test_a_fact_of_the_target_needs_the_gates_that_count_with_it(small: Small) -> None:
    text, count = re.subn(r"(?m)^(compute_units = \{ value = )\d+", r"\g<1>7", small.text(PROFILE))
    assert count == 1
    small.pull(
        {PROFILE: text.replace('why = "', 'why = "Other: ').replace("GGML_HIP = ", "GGML_HIP_X = ")},
        lock=True,
    )
    verdict = small.gate(explain=True)
    counting = {entry.name for entry in entries() if entry.reads_facts}
    assert {"resources", "launch", "speed"} <= counting
    assert would_run(verdict) == {"anchors", *counting}
    assert f"{PROFILE} changes how llama.cpp is built for it" in verdict.attention


def test_other_bytes_need_the_whole_ladder(small: Small) -> None:
    verdict = small.judge(small.edited(SECOND, "scale = 3", "scale = 4"), lock=True, explain=True)
    assert set(states(verdict).values()) == {"would run"}
    assert verdict.needed == GATES
    assert verdict.word == "explained"


def test_a_missing_compiler_is_no_pass(small: Small) -> None:
    verdict = small.judge(small.edited(SECOND, "scale = 3", "scale = 4"), lock=True)
    assert (verdict.word, verdict.exit_code) == ("blocked", ExitCode.TOOLCHAIN)
    assert set(states(verdict).values()) == {"not run"}


def test_a_template_that_is_none_points_at_the_patch(small: Small) -> None:
    path = "patches/0001-demo-launch-bounds/demo-config.cuh.jinja"
    verdict = small.judge({path: "one\n//% for arch in\n"})
    assert (verdict.word, verdict.exit_code) == ("blocked", ExitCode.RENDER)
    # Who cannot render cannot record it either: the cause is told first.
    assert codes(verdict) == ["TEMPLATE_BAD", "GATE_LOCK_WRONG"]
    assert verdict.ran == ()
    assert str(verdict.findings[0].patch_places[0]) == f"{path}:2"


@pytest.mark.parametrize(
    ("evil", "code"),
    [
        ("@{ ''.__class__.__mro__ }@", "TEMPLATE_BAD"),
        ("@{ archs.__init__.__globals__ }@", "TEMPLATE_BAD"),
        ("@% for a in range(1000000000) %@x@% endfor %@", "TEMPLATE_BAD"),
        ("@% include '../../../../../etc/passwd' %@", "TEMPLATE_BAD"),
    ],
)
def test_a_template_of_an_enemy_gets_nowhere(small: Small, evil: str, code: str) -> None:
    text = f"#pragma once\n//% for arch in archs\n// @{{ arch.name }}@\n//% endfor\n// {evil}\n"
    verdict = small.judge({"patches/0001-demo-launch-bounds/demo-config.cuh.jinja": text})
    assert (verdict.word, verdict.exit_code, codes(verdict)[0]) == ("blocked", ExitCode.RENDER, code)
    assert verdict.ran == ()


def test_a_dropped_guard_points_at_the_line_and_names_whom_it_reaches(small: Small) -> None:
    text = small.text(FIRST).replace("@{ guard.host('cc') }@ ? 128", "cc > 0 ? 128")
    verdict = small.judge({FIRST: text.replace('["archs", "guard"]', '["archs"]')})
    found = next(one for one in verdict.findings if one.problem.code == "HOST_GUARD_MISSING")
    line = small.text(FIRST).splitlines().index('id = "threads"') + 1
    assert str(found.patch_places[0]).startswith(f"{FIRST}:{line}")
    assert "hip gfx1100 host" in found.leaks
    assert "hip gfx1151 host" not in found.leaks
    assert verdict.exit_code is ExitCode.RENDER


def test_a_place_that_is_not_there_is_told_with_the_line_of_the_patch(small: Small) -> None:
    verdict = small.judge(small.edited(SECOND, "twin_b", "twin_z"))
    assert verdict.exit_code is ExitCode.ANCHOR
    assert all(str(small.cache) not in str(place) for one in verdict.findings for place in one.problem.where)


def test_data_that_is_wrong_is_told_all_at_once_and_by_its_name_in_the_head(small: Small) -> None:
    changes = {SECOND: "id = \n", PROFILE: "families = 3\n", "patches/upstream.lock": "version = 2\n"}
    verdict = small.judge(changes)
    assert verdict.exit_code is ExitCode.USAGE
    places = {place.path for one in verdict.findings for place in one.problem.where}
    assert {SECOND, PROFILE, "patches/upstream.lock"} <= places
    texts = " ".join(f"{one.problem.message} {one.problem.hint}" for one in verdict.findings)
    assert str(small.root) not in texts


def test_a_link_in_the_head_is_refused(small: Small) -> None:
    (small.series / "patches" / "0002-demo-twin" / "secret.jinja").symlink_to("/etc/passwd")
    assert codes(small.judge({})) == ["GATE_ENTRY_REFUSED"]


def _digest(small: Small, commit: str, path: str) -> str:
    # Not through git(), which strips the last line's end.
    data = subprocess.run(
        ["git", "-C", str(small.series), "cat-file", "blob", f"{commit}:{path}"],
        capture_output=True,
        check=True,
    )
    return hashlib.sha256(data.stdout).hexdigest()[:12]


@pytest.mark.parametrize("explain", [True, False])
def test_a_forgotten_lock_ends_it_before_any_gate_with_both_digests(small: Small, explain: bool) -> None:
    small.pull(small.edited(SECOND, "scale = 3", "scale = 4"))
    verdict = small.gate(explain=explain)
    assert (verdict.word, verdict.exit_code) == ("blocked", ExitCode.USAGE)
    assert (verdict.ran, verdict.needed) == ((), ())
    (finding,) = verdict.findings
    (_, place) = finding.problem.where
    assert finding.problem.hint == "patchkit lock --arch gfx1151 --upstream b1"
    told = f"sha256 {_digest(small, 'HEAD', SECOND)}, recorded {_digest(small, 'main', SECOND)}"
    assert (finding.problem.code, place.path, place.label) == ("GATE_LOCK_WRONG", SECOND, told)
    (one,) = verdict.judged
    assert one.no_gates == "no gate runs: the lock of the head does not match its series"


def test_a_forgotten_lock_is_found_in_git_objects_alone(small: Small) -> None:
    small.pull(small.edited(SECOND, "scale = 3", "scale = 4"))
    shutil.rmtree(small.cache)  # and with it the pin: nothing can be placed
    (small.root / "upstream").unlink()  # nor fetched
    assert codes(small.gate(explain=True)) == ["GATE_LOCK_WRONG"]
    assert not list(small.cache.iterdir())


def test_a_patch_turned_on_and_not_recorded_names_the_profile(small: Small) -> None:
    small.pull(small.edited(PROFILE, 'demo-twin = { default = "on"', 'demo-twin = { default = "opt-in"'))
    for explain in (True, False):
        verdict = small.gate(explain=explain)
        (finding,) = verdict.findings
        assert (finding.problem.code, verdict.ran, verdict.needed) == ("GATE_LOCK_WRONG", (), ())
        assert [place.path for place in finding.problem.where] == ["patches/upstream.lock", PROFILE]
        assert finding.problem.hint == "patchkit lock --all"


def test_a_file_that_came_and_one_that_went_are_told_as_that(small: Small) -> None:
    new = "patches/0002-demo-twin/notes.txt"
    small.pull({new: "why\n", "templates/README": None})
    (finding,) = small.gate(explain=True).findings
    labels = {place.path: place.label for place in finding.problem.where[1:]}
    assert labels == {new: "new", "templates/README": "gone"}


def _empty_too(small: Small) -> None:
    """A result of a GPU without a patch in the lock of main, too."""
    git(small.series, "checkout", "-q", "main")
    relock(Request(archs=("gfx1030",)), small.workspace())
    small.pull({})
    git(small.series, "checkout", "-q", "-B", "pr")


def test_a_candidate_without_a_patch_has_nothing_to_prove_and_is_no_fault(small: Small) -> None:
    _empty_too(small)
    path = "arch_profiles/gfx1030.toml"
    small.pull({path: small.text(path) + "\n# a remark\n"})
    relock(Request(archs=("gfx1030",)), small.workspace())
    small.pull({})
    for explain, word in ((True, "explained"), (False, "nothing to prove")):
        verdict = small.gate(explain=explain)
        assert (verdict.word, verdict.exit_code) == (word, ExitCode.OK)
        assert (verdict.ran, verdict.needed) == ((), ())
        (one,) = verdict.judged
        assert (one.name, one.patches, one.nothing_to_prove) == ("gfx1030 on b1", (), True)
        assert "No pin of the lock has a patch for gfx1030" in (one.no_gates or "")
        text = "\n".join(gate_lines(verdict))
        assert "gfx1030 on b1: nothing to prove" in text
        assert "  ok " not in text
        assert "it is upstream's own tree" in gate_markdown(verdict)


def test_a_result_that_no_path_reaches_is_held_against_its_files_too(small: Small) -> None:
    """A shared template makes nothing of a candidate without a patch; the lock records it all the same."""
    _empty_too(small)
    small.pull({"templates/README": "shared by all\n"}, lock=True)
    verdict = small.gate(explain=True)
    (finding,) = verdict.findings
    assert finding.problem.code == "GATE_LOCK_WRONG"
    assert "gfx1030 on b1" in finding.problem.message
    small.pull({"templates/README": "shared by everybody\n"})
    assert [one.problem.hint for one in small.gate(explain=True).findings] == ["patchkit lock --all"] * 2


_KINDS: Mapping[str, tuple[Callable[[Small], Mapping[str, str | None]], bool]] = {
    "words of a profile": (
        lambda at: at.edited(PROFILE, 'why = "for the test"', 'why = "for two tests"'),
        True,
    ),
    "the same, lock forgotten": (
        lambda at: at.edited(PROFILE, 'why = "for the test"', 'why = "for two tests"'),
        False,
    ),
    "other bytes": (lambda at: at.edited(SECOND, "scale = 3", "scale = 4"), True),
    "the same bytes, lock forgotten": (lambda at: at.edited(SECOND, "scale = 3", "scale = 4"), False),
    "a rule": (
        lambda at: {
            SECOND: at.text(SECOND).replace(
                "\n[[edit]]", '\n[resources]\nmore_spills = 4\nwhy = "x"\n\n[[edit]]', 1
            )
        },
        True,
    ),
    "a GPU that goes": (lambda _: {"arch_profiles/gfx906.toml": None}, False),
    "a patch that goes off": (
        lambda at: at.edited(PROFILE, 'demo-twin = { default = "on"', 'demo-twin = { default = "off"'),
        True,
    ),
    "a template that does not render": (lambda at: {FIRST: at.text(FIRST) + "@{"}, False),
    "a shared template": (lambda _: {"templates/README": "shared by all\n"}, True),
    "documents": (lambda _: {"docs/how.md": "two\n"}, False),
}


@pytest.mark.parametrize(
    ("kind", "backend"),
    [*((kind, None) for kind in _KINDS), ("words of a profile", "cpu"), ("other bytes", "cpu")],
)
def test_what_would_run_is_what_runs(small: Small, kind: str, backend: str | None) -> None:
    make, lock = _KINDS[kind]
    small.pull(make(small), lock=lock)
    look = look_first(GateRequest(repository=small.series, base="main", head="HEAD"), NullReporter())
    environ = {"ROCM_PATH": str(small.cache / "no-rocm")}

    def hardware(archs: Sequence[str]) -> Hardware:
        return choose_hardware(archs, backend, model=None, no_gpu=backend is None)

    told, done = (
        run_gate(replace(look, request=replace(look.request, explain=explain)), small.workspace(),
                 environ=environ, hardware=hardware)
        for explain in (True, False)
    )  # fmt: skip
    assert set(done.needed) == set(told.needed)
    assert set(done.ran) <= set(told.needed)
    assert [one.name for one in done.judged] == [one.name for one in told.judged]
    if told.findings:
        assert {one.problem.code for one in told.findings} <= {one.problem.code for one in done.findings}


def test_a_lock_that_tells_another_tree_keeps_the_gates_from_judging_either(small: Small) -> None:
    small.pull(small.edited(SECOND, "scale = 3", "scale = 4"), lock=True)
    (made,) = load_lock(small.lock).results
    text = small.text("patches/upstream.lock").replace(made.tree, "0" * 40)
    verdict = small.judge({"patches/upstream.lock": text})
    assert (codes(verdict), verdict.ran, verdict.needed) == (["GATE_LOCK_WRONG"], (), ())


def test_a_candidate_that_the_lock_does_not_record_is_told(small: Small) -> None:
    text = small.text("patches/upstream.lock").partition("[[result]]")[0]
    small.pull({"patches/upstream.lock": text, **small.edited(SECOND, "scale = 3", "scale = 4")})
    assert "GATE_LOCK_WRONG" in codes(small.gate())


def test_a_pin_is_not_rewritten_and_a_new_address_not_asked(small: Small) -> None:
    text = small.text("patches/upstream.lock")
    other = re.sub(r'url = ".*"', 'url = "https://evil.invalid/x.git"', text)
    verdict = small.judge({"patches/upstream.lock": other})
    assert "GATE_SOURCE_NEW" in codes(verdict)
    assert verdict.judged == ()
    tree = re.search(r'tree = "([0-9a-f]{40})"', text)
    assert tree is not None
    verdict = small.judge({"patches/upstream.lock": text.replace(tree[1], "1" * 40)})
    # A commit object that has another tree is refused while the lock is read.
    assert codes(verdict) == ["LOCK_BAD"]
    assert verdict.exit_code is ExitCode.USAGE


def test_a_pin_with_another_tree_is_refused_before_anything_is_fetched(small: Small) -> None:
    text = re.sub(r"commit_object = (\"[^\"]*\"|'''[^']*''')\n", "", small.text("patches/upstream.lock"))
    tree = re.search(r'tree = "([0-9a-f]{40})"', text)
    assert tree is not None
    verdict = small.judge({"patches/upstream.lock": text.replace(tree[1], "1" * 40, 1)})
    assert "GATE_LOCK_WRONG" in codes(verdict)
    assert verdict.judged == ()


def test_a_new_pin_is_a_new_candidate(small: Small) -> None:
    base = small.text("patches/upstream.lock")
    pin = pin_text(small.upstream, 2).partition("\n\n")[2]
    url = re.search(r'url = "(.*)"', base)
    assert url is not None
    pin = re.sub(r'url = ".*"', f'url = "{url[1]}"', pin)
    head, rest = base.split("\n[[result]]", 1)
    small.pull({"patches/upstream.lock": f"{head}\n{pin}\n[[result]]{rest}"})
    small.relock("b2")
    small.pull({})
    verdict = small.gate(explain=True)
    (one,) = verdict.judged
    assert (one.build, one.tree_before) == (2, None)
    assert "patches/upstream.lock: b2 is a new pin" in one.reasons
    assert verdict.needed == GATES


def test_another_place_in_the_lock_is_told_and_places_anew(small: Small) -> None:
    path = "patches/upstream.lock"
    workspace = small.workspace()
    lock = load_lock(workspace.series.lock)
    (pin,) = lock.pins
    moved = Followed(
        file=f"{FOLDER}/demo.cu", function="twin_b", now_file=f"{FOLDER}/demo.cu", now_function="twin_a"
    )
    text = format_lock(replace(lock, pins=(replace(pin, followed=(moved,)),)))
    small.pull({path: text})
    verdict = small.gate(explain=True)
    (one,) = verdict.judged
    assert f"{path}: functions of b1 are followed to other places" in one.reasons
    assert any("twin_b" in told and "twin_a" in told for told in verdict.attention)
    assert "GATE_LOCK_WRONG" in codes(small.gate())  # the row of the result is still the old one


def test_a_release_that_is_named_in_the_lock_is_to_be_seen_and_asks_for_no_proof(small: Small) -> None:
    path = "patches/upstream.lock"
    small.pull({path: small.text(path).replace('name = "b1"\n', 'name = "b1"\nreleases = ["v0.5.0"]\n', 1)})
    verdict = small.gate(explain=True)
    assert verdict.judged == ()
    assert any("the lock names b1 as v0.5.0" in told for told in verdict.attention)


def test_what_loosens_the_rules_is_to_be_seen(small: Small) -> None:
    changes = {
        **small.edited(FIRST, 'macros = ["GGML_USE_HIP"]', 'macros = ["GGML_USE_HIP", "NDEBUG"]'),
        **small.edited(PROFILE, 'demo-twin = { default = "on"', 'demo-twin = { default = "opt-in"'),
        "patches/series.toml": 'folders = ["ggml/"]\n',
    }
    told = " / ".join(small.judge(changes, explain=True).attention)
    assert "is guarded by GGML_USE_HIP, NDEBUG instead of GGML_USE_HIP" in told
    assert "makes demo-twin opt-in (it was on)" in told
    assert "lets patches edit more folders of upstream: ggml/" in told


def test_a_patch_that_is_no_longer_on_makes_another_candidate(small: Small) -> None:
    changes = small.edited(PROFILE, 'demo-twin = { default = "on"', 'demo-twin = { default = "opt-in"')
    small.pull(changes, lock=True)
    verdict = small.gate(explain=True)
    (one,) = verdict.judged
    assert (one.name, one.patches) == ("gfx1151 on b1", ("demo-launch-bounds",))
    assert "its patches are demo-launch-bounds instead of demo-launch-bounds, demo-twin" in one.reasons
    assert verdict.needed == GATES


def test_a_head_that_is_behind_is_told(small: Small) -> None:
    small.pull({"docs/how.md": "two\n"})
    git(small.series, "checkout", "-q", "main")
    small.pull({"docs/other.md": "three\n"})
    assert "1 commit behind the base" in small.gate("pr").attention[0]


def test_a_base_that_is_broken_is_no_fault_of_the_head(small: Small) -> None:
    git(small.series, "checkout", "-q", "main")
    small.pull({SECOND: "id = \n"})
    git(small.series, "checkout", "-q", "-B", "pr")
    small.pull(small.edited(PROFILE, 'why = "for the test"', 'why = "for two tests"'))
    with pytest.raises((ConfigError, ErrorGroup)):
        small.gate()


class _Impatient(NullReporter):
    """Somebody who presses Ctrl-C while the first candidate is judged."""

    def step(self, text: str) -> None:
        if text.startswith("judging"):
            assert list(self.cache.glob("gate-*"))
            raise KeyboardInterrupt

    def __init__(self, cache: Path) -> None:
        self.cache = cache


def test_an_interruption_leaves_nothing_behind(small: Small) -> None:
    small.pull(small.edited(SECOND, "scale = 3", "scale = 4"), lock=True)
    before = git(small.repository, "for-each-ref")
    request = GateRequest(repository=small.series, base="main", head="HEAD")
    workspace = replace(small.workspace(), reporter=_Impatient(small.cache))
    with pytest.raises(KeyboardInterrupt):
        judge_now(request, workspace)
    assert not list(small.cache.glob("gate-*"))
    assert git(small.repository, "for-each-ref") == before


def test_a_run_removes_what_a_killed_one_left_and_leaves_nothing(small: Small) -> None:
    dead = small.cache / f"gate-{2**22 + 1}-x"  # above the largest number of a process
    dead.mkdir()
    small.judge(small.edited(PROFILE, 'why = "for the test"', 'why = "for two tests"'), lock=True)
    assert not list(small.cache.glob("gate-*"))
    assert git(small.series, "status", "--porcelain") == ""


@pytest.fixture(scope="module")
def carrying(source: Small, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of the upstream with our candidate on b1 as branch ``pr``, and b1 as branch ``main``."""
    made = Small(tmp_path_factory.mktemp("fork"), ROOT)
    shutil.copytree(source.series, made.series)
    shutil.copytree(source.cache, made.cache)
    done = made.run("apply", "--arch", "gfx1151")
    assert done.returncode == 0, done.stderr
    folder = made.root / "fork"
    git(made.root, "clone", "-q", str(source.upstream), str(folder))
    bundle = made.cache / "handover" / "candidate-gfx1151-b1.bundle"
    git(folder, "fetch", "-q", str(bundle), "candidate/gfx1151/b1")
    git(folder, "checkout", "-q", "-b", "main", "b1")
    git(folder, "checkout", "-q", "-b", "pr", "FETCH_HEAD")
    return folder


@pytest.fixture
def fork(small: Small, carrying: Path) -> Small:
    """A copy of that clone beside a series and a cache."""
    shutil.copytree(carrying, small.root / "fork")
    return small


def carried(fork: Small, path: str, old: str, new: str) -> None:
    place = fork.root / "fork" / path
    text = place.read_text() if place.exists() else ""
    assert old in text
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text.replace(old, new) if old else new)
    git(place.parent, "add", "-A")
    git(place.parent, "commit", "-q", "-m", "by hand")


def judged(fork: Small, base: str = "main", **options: object) -> PullVerdict:
    request = GateRequest(repository=fork.root / "fork", base=base, head="pr", explain=True)
    return judge_now(replace(request, **options), fork.workspace())


def test_a_fork_that_carries_what_the_series_gives_needs_the_ladder(fork: Small) -> None:
    verdict = judged(fork)
    assert (verdict.pull.kind, verdict.word) == ("fork", "explained")
    assert verdict.needed == GATES
    assert verdict.judged[0].patches == ("demo-launch-bounds", "demo-twin")


def test_a_fork_whose_candidate_did_not_change_needs_nothing(fork: Small) -> None:
    git(fork.root / "fork", "branch", "-f", "main", "pr")
    carried(fork, "README.md", "upstream", "ours")
    verdict = judged(fork, own_files=("*.md",), explain=False)
    assert (verdict.word, verdict.needed) == ("nothing to prove", ())
    assert "README.md" in verdict.attention[0]


def test_a_hand_in_a_carried_file_is_found_with_its_line(fork: Small) -> None:
    carried(fork, f"{FOLDER}/demo.cu", "int nblocks = 4", "int nblocks = 5")
    verdict = judged(fork, explain=False)
    assert codes(verdict) == ["GATE_FORK_WRONG"]
    (place,) = verdict.findings[0].problem.where
    text = (fork.root / "fork" / place.path).read_text().splitlines()
    assert place.line is not None
    assert "nblocks = 5" in text[place.line - 1]
    assert verdict.exit_code is ExitCode.GATE_FAILED
    assert verdict.ran == ()
    # Naming it as the fork's own does not help.
    assert codes(judged(fork, own_files=("*",))) == ["GATE_FORK_WRONG"]


def test_a_mode_of_a_carried_file_is_found_too(fork: Small) -> None:
    place = fork.root / "fork" / FOLDER / "demo.cu"
    place.chmod(0o755)
    git(place.parent, "commit", "-q", "-a", "-m", "by hand")
    verdict = judged(fork)
    assert codes(verdict) == ["GATE_FORK_WRONG"]
    assert "mode" in (verdict.findings[0].problem.why or "")


@pytest.mark.parametrize(
    ("path", "old"), [("src/llama.cpp", ""), ("README.md", "upstream"), (f"{FOLDER}/new.cu", "")]
)
def test_what_no_patch_touches_is_a_stray_unless_it_is_named(fork: Small, path: str, old: str) -> None:
    carried(fork, path, old, "by hand\n")
    verdict = judged(fork)
    assert codes(verdict) == ["GATE_FORK_WRONG"]
    assert path in verdict.findings[0].problem.message
    assert codes(judged(fork, own_files=(path,))) == []


def test_a_fork_without_our_commits_is_told(fork: Small) -> None:
    request = GateRequest(repository=fork.root / "fork", base="main", head="b2")
    with refused("GATE_FORK_WRONG", match="contains no candidate"):
        judge_now(request, fork.workspace())
