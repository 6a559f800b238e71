"""A mesh CA is replaced in three steps, each taken once every node has taken the one before.

1. The new CA is believed beside the old one, which goes on signing. 2. The new one signs; nodes renew. 3. The old one
is believed no more. A node that is away holds the step up: with what it believes or shows it would be shut out.
"""

from __future__ import annotations

from dataclasses import replace

from mesh.core.identity.ledger import Ledger
from schemas.errors import Conflict


def begin(ledger: Ledger, old: str, new: str) -> Ledger:
    """Fingerprints of the CA that signs and of the one to come. Raises Conflict."""
    if len(ledger.authorities) > 1:
        raise Conflict("rotation_under_way", "the mesh CA is being replaced already", "see how far it is: ca show")
    return replace(ledger, authorities=(old, new), issuer=old, trust=ledger.trust + 1, heard={})


def turned(ledger: Ledger) -> bool:
    """Whether the new CA signs."""
    return len(ledger.authorities) > 1 and ledger.issuer == ledger.authorities[-1]


def waiting_for(ledger: Ledger, now_s: int) -> tuple[str, ...]:
    """The nodes that have not taken the present step, by name."""
    if len(ledger.authorities) < 2:
        return ()
    nodes = {c.node for c in ledger.certificates.values() if c.expires_s > now_s and c.serial not in ledger.revocations}

    def taken(node: str) -> bool:
        number, shown = ledger.heard.get(node, (0, ""))
        return number >= ledger.trust and (not turned(ledger) or shown == ledger.issuer)

    return tuple(sorted(node for node in nodes if not taken(node)))


def advanced(ledger: Ledger, now_s: int) -> Ledger:
    """After the next step, where it can be taken."""
    if len(ledger.authorities) < 2 or waiting_for(ledger, now_s):
        return ledger
    if turned(ledger):
        return replace(ledger, authorities=(ledger.issuer,), trust=ledger.trust + 1)
    # The list of revocations is signed anew as well: nobody shall be left with one that only the old CA vouches for.
    return replace(ledger, issuer=ledger.authorities[-1], trust=ledger.trust + 1, number=ledger.number + 1)
