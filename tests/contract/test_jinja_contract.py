"""What the code takes for granted about Jinja; an upgrade that changes it must fail here."""

from __future__ import annotations

import traceback

import jinja2
import jinja2.meta
import pytest
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from patchkit.carry.placing.templates import FILTERS, BoundedEnvironment, ChargedTree


def test_constants_are_not_folded_past_the_sandbox():
    environment = BoundedEnvironment([])
    template = environment.from_string("@{ 'x' * 10**9 }@")
    with pytest.raises(SecurityError):
        template.render()


def test_only_intercepted_operators_reach_the_sandbox():
    class Plain(ImmutableSandboxedEnvironment):
        pass

    assert Plain().from_string("{{ 2 ** 3 }}").render() == "8"
    assert Plain.intercepted_binops == frozenset()


def test_every_filter_on_our_list_is_one_of_jinja_or_ours():
    spelled = {name for name in FILTERS if not name.startswith("@")}
    assert spelled <= set(jinja2.filters.FILTERS)


def test_a_template_cannot_spell_the_internal_filters():
    with pytest.raises(jinja2.TemplateSyntaxError):
        BoundedEnvironment([]).from_string("@{ 1|@charge }@")


def test_the_tree_is_changed_on_its_way_to_the_compiler():
    tree = BoundedEnvironment([]).parse("@% for a in b %@x@% endfor %@@{ a ~ b }@")
    assert tree.find(nodes.Concat) is None
    names = [each.name for each in tree.find_all(nodes.Filter)]
    assert names == ["@charge", "@join"]
    assert isinstance(ChargedTree().visit(tree), nodes.Template)


def test_undeclared_names_ignore_what_the_tree_added():
    environment = BoundedEnvironment([])
    assert jinja2.meta.find_undeclared_variables(
        environment.parse("@% for a in b %@@{ a }@@% endfor %@")
    ) == {"b"}


def test_frames_of_a_template_without_a_file_carry_a_mark():
    with pytest.raises(ZeroDivisionError) as caught:
        BoundedEnvironment([]).from_string("a\n@{ 1 // 0 }@").render()
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert ("<template>", 2) in frames


def test_format_of_a_string_method_is_out_of_reach():
    with pytest.raises(SecurityError):
        BoundedEnvironment([]).from_string("@{ '{0}'.format(1) }@").render()
