"""PutKey, RevokeKey, PutSigner: who may open the API, and what the mesh signs its short-lived tokens with."""

from mesh.core.state.outcome import Outcome, done, refused
from mesh.core.state.store import Row, StateStore
from schemas.limits import API_KEYS_MAX, SIGNERS_KEPT


def put_key(store: StateStore, idx: int, command: Row) -> Outcome:
    key_id = command["key_id"]
    if store.get("api_key", key_id) is not None:
        return refused("key_exists", f"API key {key_id} exists already.")
    if sum(1 for _ in store.scan("api_key", limit=API_KEYS_MAX)) >= API_KEYS_MAX and not _drop_dead(store, command):
        return refused("too_many_keys", f"the mesh keeps {API_KEYS_MAX} API keys; revoke some that are not used.")
    row = {
        "name": command["name"],
        "role": command["role"],
        "tenant": command["tenant"],
        "scopes": command.get("scopes"),
        "sha256": command["sha256"],
        "made_ms": command["at_ms"],
        "made_by": command["caller"]["name"],
        "expires_ms": command.get("expires_ms"),
        "revoked_ms": None,
        "revoked_by": None,
    }
    store.put("api_key", key_id, row)
    return done(key_id=key_id)


def _drop_dead(store: StateStore, command: Row) -> bool:
    """The one that has been revoked or expired for longest makes room."""
    dead = []
    for key_id, row in store.scan("api_key"):
        ended = [at for at in (row["revoked_ms"], row["expires_ms"]) if at is not None and at <= command["at_ms"]]
        if ended:
            dead.append((min(ended), key_id))
    if dead:
        store.delete("api_key", min(dead)[1])
    return bool(dead)


def revoke_key(store: StateStore, idx: int, command: Row) -> Outcome:
    row = store.get("api_key", command["key_id"])
    if row is None:
        return refused("no_such_key", f"there is no API key {command['key_id']}.")
    if row["revoked_ms"] is not None:
        said = f"API key {command['key_id']} is revoked already."
        return Outcome(True, "already_revoked", said, {"key_id": command["key_id"], "name": row["name"]})
    row["revoked_ms"], row["revoked_by"] = command["at_ms"], command["caller"]["name"]
    store.put("api_key", command["key_id"], row)
    return done(key_id=command["key_id"], name=row["name"])


def put_signer(store: StateStore, idx: int, command: Row) -> Outcome:
    """The newest signs; those before it are kept while a token of theirs may still be good. `after` is the newest that
    the proposer saw: of two agents that both find it too old, one makes the next."""
    signers = list(store.scan("signer"))
    newest = max(signers, key=lambda item: int(item[1]["idx"]), default=("", {}))[0]
    if command["after"] != newest:
        return refused("signer_exists", f"the mesh has another signer since: {newest}.")
    for signer_id, _ in sorted(signers, key=lambda item: -int(item[1]["idx"]))[SIGNERS_KEPT - 1 :]:
        store.delete("signer", signer_id)
    store.put("signer", command["signer_id"], {"secret": command["secret"], "made_ms": command["at_ms"], "idx": idx})
    return done(signer_id=command["signer_id"])
