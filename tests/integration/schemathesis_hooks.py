"""What Schemathesis has to know of this API: msgpack, answers without surplus fields, and what its requests are spared
(a stream that never ends, directories outside of the test's own)."""

import os
from typing import Any

import msgpack
import schemathesis

_INSIDE = os.environ.get("HF_FUZZ_DIR", "/nonexistent")
MSGPACK = "application/msgpack"


@schemathesis.serializer(MSGPACK)
def pack(context: Any, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    packed: bytes = msgpack.packb(_carried(value), unicode_errors="replace")
    return packed


def _carried(value: Any) -> Any:
    """A whole number beyond 64 bits, which msgpack has no place for, as text."""
    if isinstance(value, dict):
        return {key: _carried(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_carried(item) for item in value]
    beyond = isinstance(value, int) and not -(1 << 63) <= value < 1 << 64
    return str(value) if beyond else value


@schemathesis.serializer("application/x-pem-file")
def as_text(context: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@schemathesis.deserializer(MSGPACK)
def unpack(context: Any, response: Any) -> Any:
    return _spoken(msgpack.unpackb(response.content, strict_map_key=False))


def _spoken(value: Any) -> Any:
    """What JSON schema knows no word for, as text."""
    if isinstance(value, dict):
        return {str(key): _spoken(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_spoken(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value


@schemathesis.hook
def before_load_schema(context: Any, raw_schema: dict[str, Any]) -> None:
    """Clients must bear fields that they do not know; here one that is not described is a fault."""
    for schema in raw_schema["components"]["schemas"].values():
        if "properties" in schema:
            schema["additionalProperties"] = False


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    query = case.query
    if isinstance(query, dict) and str(query.get("follow", "")).lower() in ("true", "1"):
        query["follow"] = "false"
    training = case.body.get("training") if isinstance(case.body, dict) else None
    if isinstance(training, dict) and isinstance(training.get("checkpoint_path"), str):
        training["checkpoint_path"] = f"{_INSIDE}/checkpoints"
    # Every third request is answered in msgpack; which one is a function of the request, so a seed replays it.
    if len(repr((case.path_parameters, query))) % 3 == 0 and case.headers is not None:
        case.headers.setdefault("Accept", MSGPACK)
