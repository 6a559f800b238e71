"""Versions are ordered as dpkg orders them, and a distribution's mend of an old version counts."""

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentd.core.doctor.package_versions import RUNC_BACKPORTS, at_least, backport, compare, upstream_of

# As policy allows them, and close to one another, so that every rule of the order decides somewhere.
PART = st.text("01aZ~+.", max_size=6).map(lambda text: "1" + text)
VERSION = st.builds(
    lambda epoch, upstream, revision: epoch + upstream + revision,
    st.sampled_from(["", "", "0:", "1:"]),
    PART,
    st.one_of(st.just(""), PART.map(lambda text: "-" + text)),
)


def dpkg(left, relation, right):
    return subprocess.run(["dpkg", "--compare-versions", left, relation, right], check=False).returncode == 0


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="needs dpkg: it is the reference (Debian, Ubuntu)")
@settings(max_examples=150, deadline=None)
@given(VERSION, VERSION)
def test_beside_dpkg(left, right):
    relation = {-1: "lt", 0: "eq", 1: "gt"}[compare(left, right)]
    assert dpkg(left, relation, right)


@given(VERSION, VERSION)
def test_an_order(left, right):
    assert compare(left, right) == -compare(right, left) and compare(left, left) == 0


@pytest.mark.parametrize(
    ("said", "number"),
    [("runc version 1.1.12", "1.1.12"), ("v1.2", "1.2"), ("1.1.5+ds1", "1.1.5"), ("", ""), ("unknown", ""), ("7", "")],
)
def test_the_number_in_what_a_program_says(said, number):
    assert upstream_of(said) == number


def test_a_mend_of_the_distribution():
    bookworm = ("debian", "12")
    assert not at_least("1.1.5", "1.1.12")
    assert backport("1.1.5+ds1-1+deb12u1", bookworm, RUNC_BACKPORTS)
    assert backport("1.1.5+ds1-1+deb12u2", bookworm, RUNC_BACKPORTS)
    assert backport("1.1.5+ds1-1", bookworm, RUNC_BACKPORTS) is False
    assert backport("1.1.5-0ubuntu1", ("ubuntu", "19.10"), RUNC_BACKPORTS) is None
