"""The rules of who may what, over everything they can be asked."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from schemas.rules.api_keys import (
    ID_BYTES,
    SECRET_BYTES,
    id_of_key,
    key_digest,
    key_id,
    key_refusal,
    key_text,
    person_of,
)
from schemas.rules.permissions import (
    ADMIN,
    KINDS,
    MESH,
    NODE,
    OPERATOR,
    PERSON,
    ROLES,
    SCOPES,
    Caller,
    Permission,
    granted,
    least_role,
)

PERMISSIONS = st.sampled_from(list(Permission))
WORDS = st.text(max_size=8)
ROLE = st.sampled_from(ROLES) | WORDS
SCOPE_SETS = st.none() | st.frozensets(st.sampled_from(SCOPES) | WORDS, max_size=6)
TENANTS = st.sampled_from(["", "red", "blue"]) | WORDS
CALLERS = st.builds(
    Caller, kind=st.sampled_from(KINDS) | WORDS, name=WORDS, role=ROLE, tenant=TENANTS, scopes=SCOPE_SETS, key=WORDS
)


@given(CALLERS, PERMISSIONS)
def test_a_refusal_is_exactly_what_is_not_allowed_and_says_what_to_do(caller, permission):
    refusal = caller.refusal(permission)
    assert (refusal is None) == caller.may(permission)
    assert refusal is None or all(refusal)


@given(ROLE, SCOPE_SETS)
def test_scopes_only_take_away(role, scopes):
    assert granted(role, scopes) <= granted(role)
    assert role in ROLES or granted(role, scopes) == frozenset()


def test_each_role_has_what_the_one_below_has_and_nobody_is_a_peer():
    steps = [granted(role) for role in ROLES]
    assert all(low < high for low, high in pairwise(steps))
    assert all(Permission.PEER not in step and Permission.OPEN not in step for step in steps)
    assert {least_role(permission) for permission in Permission} == {*ROLES, None}
    assert set(SCOPES) == {str(item) for item in granted(ADMIN) - {Permission.SELF}}


@given(CALLERS, PERMISSIONS, TENANTS)
def test_what_is_not_known_may_nothing_and_sees_nothing(caller, permission, tenant):
    if caller.kind not in KINDS or (caller.kind == PERSON and caller.role not in ROLES):
        assert not caller.may(permission) or permission is Permission.OPEN
    if caller.kind not in KINDS:
        assert not caller.sees(tenant)


@given(CALLERS, TENANTS)
def test_only_the_mesh_its_agents_and_operators_see_another_tenant(caller, tenant):
    everywhere = caller.kind in (MESH, NODE) or (caller.kind == PERSON and caller.role in (OPERATOR, ADMIN))
    assert caller.sees_all == everywhere
    if not everywhere:
        assert not caller.sees(tenant) or (tenant == caller.tenant and tenant)


@given(CALLERS)
def test_an_agent_may_only_what_agents_do(caller):
    if caller.kind == NODE:
        assert [permission for permission in Permission if caller.may(permission)] == [Permission.OPEN, Permission.PEER]


@given(st.binary(min_size=ID_BYTES, max_size=ID_BYTES), st.binary(min_size=SECRET_BYTES, max_size=SECRET_BYTES), WORDS)
def test_a_key_names_its_id_and_no_other_text_does(identity, secret, noise):
    made_id = key_id(identity)
    text = key_text(made_id, secret)
    assert id_of_key(text) == made_id
    assert made_id not in key_digest(text) and text.split("_", 2)[2] not in key_digest(text)
    for other in (text + noise, noise + text, text[:-1], text.upper(), f"{text}\n", noise):
        assert other == text or id_of_key(other) is None or id_of_key(other) != made_id or len(other) == len(text)


@given(st.none() | st.integers(0, 20), st.none() | st.integers(0, 20), st.integers(0, 20))
def test_a_key_is_good_until_it_expires_or_is_revoked(expires_ms, revoked_ms, now_ms):
    row = {"name": "n", "role": "viewer", "tenant": "t", "expires_ms": expires_ms, "revoked_ms": revoked_ms}
    good = key_refusal(row, now_ms) is None
    assert good == (revoked_ms is None and (expires_ms is None or now_ms < expires_ms))
    assert key_refusal(None, now_ms) is not None


@given(SCOPE_SETS, ROLE)
def test_an_empty_list_of_scopes_is_not_all_of_them(scopes, role):
    row = {"name": "n", "role": role, "tenant": "t", "scopes": None if scopes is None else sorted(scopes)}
    person = person_of("k", row)
    assert (person.scopes is None) == (scopes is None)
    if scopes == frozenset():
        assert granted(role, person.scopes) <= {Permission.SELF}
