"""What a certificate may say of a node, and what no node is called."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.core.identity.node_name import NodeName, NotANode

labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
names = st.builds(NodeName, st.from_regex(r"[a-z0-9]{4,16}", fullmatch=True), labels, st.booleans())


@given(names)
def test_a_name_survives_its_certificate(name):
    assert NodeName.from_uris(name.uris()) == name


@pytest.mark.parametrize(
    "uris",
    [
        (),
        ("heteroflow://c1/voter/a",),
        ("heteroflow://c1/node/a", "heteroflow://c1/node/b"),
        ("heteroflow://c1/node/a", "heteroflow://c1/voter/b"),
        ("heteroflow://c1/node/a", "heteroflow://c2/voter/a"),
        ("heteroflow://c1/node/A",),
        ("heteroflow://c1/node/a/b",),
        ("heteroflow://c1/node/../b",),
        ("heteroflow:///node/a",),
        ("heteroflow://c1/root/a",),
        ("heteroflow://c1/node/a", "https://c1/node/a"),
        ("spiffe://c1/node/a",),
    ],
)
def test_what_names_no_node(uris):
    with pytest.raises(NotANode):
        NodeName.from_uris(uris)


@given(st.lists(st.text(max_size=60), max_size=3))
def test_any_text_is_a_name_or_refused(uris):
    with contextlib.suppress(NotANode):
        assert set(NodeName.from_uris(uris).uris()) == set(uris)
