"""Join tokens are counted and end; names have one holder; what is revoked stays so."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.core.identity.join_token import JoinToken
from mesh.core.identity.ledger import LIFE_MAX_S, TOKENS_MAX, USES_MAX, Certificate, Ledger
from schemas.errors import Conflict, InvalidInput, NotAuthorised, NotFound

NOW = 1_800_000_000
TOKEN = JoinToken("0123456789ab", "s" * 43, "f" * 64)


def certificate(node: str, uid: str, serial: str | None = None, expires_s: int = NOW + 1000) -> Certificate:
    return Certificate(serial or f"{node}-{uid}", node, uid, expires_s)


def ledger(uses: int = 1, life_s: int = 3600) -> Ledger:
    return Ledger().with_token(TOKEN, uses, life_s, NOW)


def refusal(step) -> str:
    with pytest.raises((NotAuthorised, Conflict, InvalidInput, NotFound)) as caught:
        step()
    return caught.value.code


def test_the_text_of_a_token_is_the_token():
    assert JoinToken.parse(str(TOKEN)) == TOKEN
    assert "s" * 43 not in repr(TOKEN)


@pytest.mark.parametrize("change", ["{}x", "{}\n", " {}", "x{}", "hfjoin.", "", "hfjoin.0123456789ab." + "s" * 43])
def test_what_is_no_token(change):
    assert JoinToken.parse(change.format(TOKEN)) is None


@given(st.integers(0, len(str(TOKEN)) - 1), st.sampled_from("0123456789abcdefXYZ.-_"))
def test_a_token_with_one_other_character_opens_nothing(at, other):
    text = str(TOKEN)
    changed = text[:at] + other + text[at + 1 :]
    token = JoinToken.parse(changed)
    if changed != text and token is not None and token.fingerprint == TOKEN.fingerprint:
        assert refusal(lambda: ledger().check_token(token, "u1", "k", NOW)) == "unknown_join_token"


def test_a_token_lets_in_as_many_as_it_says_and_the_same_host_again():
    one = ledger(uses=2).admit(TOKEN, "k1", certificate("a", "u1"), NOW)
    again = one.admit(TOKEN, "k1", certificate("a", "u1", "other"), NOW)
    two = again.admit(TOKEN, "k2", certificate("b", "u2"), NOW)
    assert refusal(lambda: two.admit(TOKEN, "k3", certificate("c", "u3"), NOW)) == "join_token_used_up"
    assert refusal(lambda: two.admit(TOKEN, "k9", certificate("a", "u1"), NOW)) == "join_token_used_up"
    assert two.admit(TOKEN, "k1", certificate("a", "u1"), NOW).tokens[TOKEN.id].used == {"u1": "k1", "u2": "k2"}


@pytest.mark.parametrize(("when", "code"), [(NOW + 3600, "join_token_expired"), (NOW + 3599, None), (NOW - 10, None)])
def test_a_token_ends(when, code):
    if code is None:
        ledger().check_token(TOKEN, "u1", "k1", when)
    else:
        assert refusal(lambda: ledger().check_token(TOKEN, "u1", "k1", when)) == code


def test_a_revoked_token_lets_nobody_in_not_even_again():
    one = ledger(uses=2).admit(TOKEN, "k1", certificate("a", "u1"), NOW).without_token(TOKEN.id)
    assert refusal(lambda: one.admit(TOKEN, "k1", certificate("a", "u1"), NOW)) == "join_token_revoked"
    assert refusal(lambda: one.without_token("ffffffffffff")) == "no_such_token"


def test_who_does_not_know_the_secret_learns_nothing_of_the_token():
    guess = replace(TOKEN, secret="x" * 43)
    revoked = ledger().without_token(TOKEN.id)
    for state in (ledger(), revoked, Ledger()):
        assert refusal(lambda state=state: state.check_token(guess, "u", "k", NOW)) == "unknown_join_token"


@pytest.mark.parametrize(("uses", "life_s"), [(0, 60), (-1, 60), (USES_MAX + 1, 60), (1, 0), (1, LIFE_MAX_S + 1)])
def test_tokens_that_are_not_made(uses, life_s):
    assert refusal(lambda: ledger(uses, life_s)) in ("invalid_uses", "invalid_life")


def test_tokens_are_bounded_and_old_ones_forgotten():
    full = Ledger()
    for n in range(TOKENS_MAX):
        full = full.with_token(replace(TOKEN, id=f"{n:012x}"), 1, 60, NOW)
    assert refusal(lambda: full.with_token(TOKEN, 1, 60, NOW)) == "too_many_tokens"
    assert list(full.with_token(TOKEN, 1, 60, NOW + 30 * 86_400).tokens) == [TOKEN.id]


def test_a_name_has_one_holder_until_it_is_revoked_or_expired():
    held = ledger(uses=9).admit(TOKEN, "k1", certificate("a", "u1"), NOW)
    other = certificate("a", "u2")
    assert refusal(lambda: held.admit(TOKEN, "k2", other, NOW)) == "node_name_taken"
    assert held.admit(TOKEN, "k2", other, NOW + 1000)
    freed = held.revoke("a", NOW)
    assert freed.admit(TOKEN, "k2", other, NOW).certificates["a-u2"].uid == "u2"


@pytest.mark.attack(32)
def test_what_is_revoked_renews_nothing():
    held = ledger(uses=9).admit(TOKEN, "k1", certificate("a", "u1"), NOW)
    assert held.holder_of("a", "a-u1", 0).uid == "u1"
    assert refusal(lambda: held.holder_of("b", "a-u1", 0)) == "certificate_revoked"
    gone = held.revoke("a", NOW)
    assert gone.number == 1 and refusal(lambda: gone.holder_of("a", "a-u1", 0)) == "certificate_revoked"
    assert refusal(lambda: gone.revoke("a", NOW)) == "no_such_node"


def test_expired_certificates_are_forgotten_with_their_revocations():
    gone = Ledger().with_certificate(certificate("a", "u1"), NOW).revoke("a", NOW)
    later = gone.with_certificate(certificate("b", "u2", expires_s=NOW + 9999), NOW + 1000)
    assert list(later.certificates) == ["b-u2"] and not later.revocations and later.number == 1


def test_a_ledger_survives_its_file():
    full = ledger(uses=9).admit(TOKEN, "k1", certificate("a", "u1"), NOW).revoke("a", NOW)
    assert Ledger.from_dict(json.loads(json.dumps(full.to_dict()))) == full
    assert TOKEN.secret not in json.dumps(full.to_dict())
