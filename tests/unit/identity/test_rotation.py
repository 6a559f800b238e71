"""A CA is replaced step by step, and no step is taken over a node that would be shut out."""

import pytest

from mesh.core.identity.ledger import Certificate, Ledger, Revocation
from mesh.core.identity.rotation import advanced, begin, turned, waiting_for
from schemas.errors import Conflict


def ledger(*nodes: str) -> Ledger:
    return Ledger(certificates={f"s-{n}": Certificate(f"s-{n}", n, f"u-{n}", 1000) for n in nodes})


def said(of: Ledger, node: str, number: int, authority: str = "") -> Ledger:
    return Ledger(**{**{f: getattr(of, f) for f in of.__slots__}, "heard": {**of.heard, node: (number, authority)}})


def test_it_goes_through_belief_and_renewal_to_the_end() -> None:
    now = begin(ledger("a", "b"), "old", "new")
    assert now.authorities == ("old", "new") and now.issuer == "old" and now.trust == 1
    assert waiting_for(now, 10) == ("a", "b") and advanced(now, 10) is now
    now = said(said(now, "a", 1), "b", 1)
    now = advanced(now, 10)
    assert (
        turned(now) and now.issuer == "new" and now.authorities == ("old", "new") and (now.trust, now.number) == (2, 1)
    )
    now = said(said(now, "a", 2, "new"), "b", 2, "old")
    assert waiting_for(now, 10) == ("b",) and advanced(now, 10) is now
    now = said(now, "b", 1, "new")
    assert waiting_for(now, 10) == ("b",)
    now = advanced(said(now, "b", 2, "new"), 10)
    assert now.authorities == ("new",) and now.issuer == "new" and now.trust == 3
    assert advanced(now, 10) is now and waiting_for(now, 10) == ()


def test_who_is_revoked_or_expired_holds_nothing_up() -> None:
    now = said(begin(ledger("a", "b"), "old", "new"), "a", 1)
    gone = Ledger(
        **{
            **{f: getattr(now, f) for f in now.__slots__},
            "revocations": {"s-b": Revocation("s-b", "b", 5, 1000)},
        }
    )
    assert advanced(now, 10) is now
    assert turned(advanced(gone, 10))
    assert turned(advanced(now, 1000))


def test_a_second_one_waits_for_the_first() -> None:
    with pytest.raises(Conflict, match="being replaced already"):
        begin(begin(ledger("a"), "old", "new"), "new", "newer")


def test_a_ledger_of_an_older_release_means_the_first_ca() -> None:
    old = {"tokens": [], "certificates": [{"serial": "1", "node": "a", "uid": "u", "expires_s": 9}], "revocations": [],
           "number": 3}  # fmt: skip
    read = Ledger.from_dict(old)
    assert read.authorities == () and read.issuer == "" and read.trust == 0 and read.certificates["1"].authority == ""
    now = said(begin(read, "old", "new"), "a", 1)
    assert Ledger.from_dict(now.to_dict()) == now
