"""Shapes of what sessions ask for."""

from __future__ import annotations


def renewal_fault(renewal: object) -> str:
    if (
        not isinstance(renewal, dict)
        or not isinstance(renewal.get("node"), str)
        or not isinstance(renewal.get("uid"), str)
    ):
        return "a renewal is {node, uid, sent_ns}"
    sent_ns = renewal.get("sent_ns")
    if not isinstance(sent_ns, int) or isinstance(sent_ns, bool) or not 0 <= sent_ns < 1 << 63:
        return "sent_ns is the sender's clock in nanoseconds"
    return ""
