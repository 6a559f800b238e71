"""The agent's side of a lease: when to renew, and until when this host may run its tasks.

All times are nanoseconds of this host's CLOCK_BOOTTIME, which goes on during suspend; the leader's clock is never
compared with it."""

from dataclasses import dataclass
from typing import Any

MS = 1_000_000


def deadline_ns(sent_ns: int, received_ns: int, ttl_ms: int) -> int:
    """Counted from the sending of the renewal: the leader's clock for this node starts later than that, however long
    the answer took."""
    return sent_ns + ttl_ms * MS


@dataclass(slots=True)
class Holder:
    """until_ns: the deadline that stands, 0 before the first grant; refusal: why the last renewal was not granted, None
    after a grant."""

    node: str
    uid: str
    renew_ms: int
    until_ns: int = 0
    next_ns: int = 0
    granted_sent_ns: int = 0
    refusal: str | None = None

    def renewal(self, now_ns: int) -> dict[str, Any] | None:
        """The renewal to send now, or None until `next_ns`. Each is sent on its own: none waits for the answer of the
        one before."""
        if now_ns < self.next_ns:
            return None
        self.next_ns = now_ns + self.renew_ms * MS
        return {"node": self.node, "uid": self.uid, "sent_ns": now_ns}

    def answered(self, answer: dict[str, Any], now_ns: int) -> str | None:
        """Takes an answer to a renewal. None when the lease was extended, else the reason why not: answers overtake one
        another and come late."""
        if not answer["granted"]:
            self.refusal = str(answer["reason"])
            return self.refusal
        sent_ns = answer["sent_ns"]
        if sent_ns > now_ns:
            return "the grant names a renewal that was not sent yet; it belongs to an earlier boot of this host"
        if sent_ns <= self.granted_sent_ns:
            return "a later renewal was granted already"
        until_ns = deadline_ns(sent_ns, now_ns, answer["ttl_ms"])
        if until_ns <= now_ns:
            return "the grant came after its own deadline"
        self.granted_sent_ns = sent_ns
        self.until_ns = max(self.until_ns, until_ns)
        self.refusal = None
        return None

    def left_ms(self, now_ns: int) -> int:
        """0 when no lease stands."""
        return max(0, (self.until_ns - now_ns) // MS)
