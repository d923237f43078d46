"""The builds that pick measures are the sets of patches that it means."""

from __future__ import annotations

from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import find_series_dir
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Request
from patchkit.prove.pick.arms import Arms


def _arms(world) -> Arms:
    assert world.run("apply", "--arch", "gfx1151", "--unlocked").returncode == 0  # the pin is in the cache
    workspace = Workspace(
        series=find_series_dir(world.series), cache_root=world.cache, reporter=NullReporter()
    )
    request = Request(archs=("gfx1151",), with_opt_in=True, unlocked=True)
    return Arms(workspace=workspace, request=request, onto=None, toolchain=None)


def test_an_arm_has_its_patches_and_no_other_whether_on_or_opt_in(world):
    profile = world.series / "arch_profiles/gfx1151.toml"
    profile.write_text(
        profile.read_text().replace('demo-twin = { default = "on"', 'demo-twin = { default = "opt-in"')
    )
    arms = _arms(world)
    assert [member.id for member in arms.members] == ["demo-launch-bounds", "demo-twin"]
    sets = [(), ("demo-launch-bounds",), ("demo-twin",), ("demo-launch-bounds", "demo-twin")]
    assert len({arms.tree_of(arm) for arm in sets}) == 4
    for arm in sets[1:]:
        assert tuple(part.id for part in arms.subject(arm).patches) == arm


def test_patches_of_one_function_touch_each_other_and_requirements_are_known(world):
    patch = world.series / "patches/0002-demo-twin/patch.toml"
    patch.write_text(
        patch.read_text()
        + '\n[[requires]]\npatch = "demo-launch-bounds"\nwhy = "one without the other is wrong"\n'
    )
    one, other = _arms(world).members
    assert (one.requires, other.requires) == (frozenset(), frozenset({"demo-launch-bounds"}))
    assert other.touches == one.touches == frozenset()  # two functions of one file
