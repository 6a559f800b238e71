"""Requests: the same (client, id) gets the same answer for 24 hours, and does its work once.

`request` holds the answers, `request_queue` their order by age (so that each new one can drop up to PRUNE old ones,
whoever made them), `client` how many a client has. A full client is refused rather than forgotten: forgetting an answer
would do the work twice."""

from typing import Any

from mesh.core.state.keys import request_key, request_queue_key
from mesh.core.state.outcome import Outcome, refused
from mesh.core.state.store import StateStore
from schemas.ids import request_age_refusal
from schemas.limits import REQUEST_TTL_MS, REQUESTS_PER_CLIENT

PRUNE = 4


def recall(store: StateStore, request: dict[str, Any], now_ms: int) -> Outcome | None:
    """The answer that stands already, or None when the work is to be done."""
    client, request_id = request["client"], request["id"]
    too_old = request_age_refusal(request_id, now_ms)
    if too_old is not None:
        return refused("request_expired", f"{too_old}; look whether the work was done, then use a new request id.")
    row = store.get("request", request_key(client, request_id))
    if row is not None and now_ms - row["at_ms"] <= REQUEST_TTL_MS:
        if row["digest"] != request["digest"]:
            return refused(
                "request_conflict",
                f"request id {request_id} was used by {client} for another body; "
                "use a new request id for a new request.",
            )
        answer = row["answer"]
        return Outcome(answer["ok"], answer["code"], answer["text"], answer["data"])
    counted = store.get("client", client)
    if counted is not None and counted["requests"] >= REQUESTS_PER_CLIENT and not _prune(store, now_ms, PRUNE):
        return refused(
            "too_many_requests",
            f"{client} has {counted['requests']} requests of the last 24 h remembered, which is the limit; "
            "retry later or as another client.",
        )
    return None


def remember(store: StateStore, idx: int, request: dict[str, Any], now_ms: int, outcome: Outcome) -> None:
    _prune(store, now_ms, PRUNE)
    client, key = request["client"], request_key(request["client"], request["id"])
    if store.get("request", key) is None:
        counted = store.get("client", client) or {"requests": 0}
        store.put("client", client, {"requests": counted["requests"] + 1})
    store.put(
        "request",
        key,
        {
            "digest": request["digest"],
            "status": "accepted" if outcome.ok else "refused",
            "answer": outcome.to_dict(),
            "at_ms": now_ms,
            "idx": idx,
        },
    )
    store.put("request_queue", request_queue_key(idx), {"client": client, "id": request["id"], "at_ms": now_ms})


def _prune(store: StateStore, now_ms: int, limit: int) -> int:
    dropped = 0
    for queue_key, queued in store.scan("request_queue", limit=limit):
        if now_ms - queued["at_ms"] <= REQUEST_TTL_MS:
            break
        store.delete("request_queue", queue_key)
        key = request_key(queued["client"], queued["id"])
        row = store.get("request", key)
        # A foreign id may have been used again after its day: that younger answer has a queue entry of its own.
        if row is not None and request_queue_key(row["idx"]) == queue_key:
            store.delete("request", key)
            _uncount(store, queued["client"])
        dropped += 1
    return dropped


def _uncount(store: StateStore, client: str) -> None:
    counted = store.get("client", client)
    if counted is not None and counted["requests"] > 1:
        store.put("client", client, {"requests": counted["requests"] - 1})
    else:
        store.delete("client", client)
