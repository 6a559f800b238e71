"""Hyper-parameters: their names as environment variables, and what may not collide."""

import json
import re
from collections.abc import Mapping

from schemas.errors import Finding

KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")
KEY_MAX = 64
VALUE_MAX = 4096
KEYS_MAX = 64
PREFIX = "HETEROFLOW_HP_"
ALL_AS_JSON, AS_FILE = "HETEROFLOW_HYPER_PARAMS", "HETEROFLOW_HYPER_PARAMS_FILE"
FILE_NAME = "hyper_params.json"
# Linux takes 128 KiB for one variable and 2 MiB for all (a quarter of the stack limit); containers add their own.
# Above this the object of all goes into a file. One by one they never exceed KEYS_MAX values, which fits beside it.
ENVIRONMENT_MAX = 96 * 1024


def variable_name(key: str) -> str:
    return PREFIX + key.upper().replace(".", "_").replace("-", "_")


def as_json(hyper_params: Mapping[str, str]) -> str:
    return json.dumps(dict(sorted(hyper_params.items())), ensure_ascii=False, separators=(",", ":"))


def collisions(hyper_params: Mapping[str, str], path: str) -> list[Finding]:
    """Keys that become one variable, each pair named: one of them would be lost."""
    first: dict[str, str] = {}
    found: list[Finding] = []
    for key in sorted(hyper_params):
        name = variable_name(key)
        if name in first:
            message = f"{path}.{first[name]} and {path}.{key} both become {name}"
            found.append(Finding("hyper_param_collision", f"{path}.{key}", message, "Keep one, or rename one of them."))
        else:
            first[name] = key
    return found


def needs_file(hyper_params: Mapping[str, str], env: Mapping[str, str]) -> bool:
    return bool(hyper_params) and environment_bytes(hyper_params, env) > ENVIRONMENT_MAX


def environment_bytes(hyper_params: Mapping[str, str], env: Mapping[str, str]) -> int:
    """What the kernel counts for the variables a document causes: name, '=', value and a closing NUL each."""
    pairs = {variable_name(key): value for key, value in hyper_params.items()} | dict(env)
    if hyper_params:
        pairs[ALL_AS_JSON] = as_json(hyper_params)
    return sum(len(name.encode()) + len(value.encode()) + 2 for name, value in pairs.items())
