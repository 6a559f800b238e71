"""The configuration file of an agent: every flag of `guard` and `run` as a key, in TOML; what a flag says wins.

The flags themselves are the table: names, kinds and defaults are read from the parser, and REASONS says why a host
would set each one. `example_file` is the shipped file, and what the installer writes.
"""

import argparse
import json
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from agentd.config import ConfigError, add_run_flags

CONFIG_PATH, DATA_PATH = Path("/etc/heteroflow/agent.toml"), Path("/var/lib/heteroflow")
Value = str | int | float | bool | list[str]

REASONS: Mapping[str, str] = {
    "data-dir": "Who this node is, its part of the log and its tasks. On a local disk that survives a reboot, never on "
    "a share; for a voter on one whose fsync takes a few milliseconds.",
    "name": "How people and the mesh call this host, for good: a data directory belongs to one name. When not said, "
    "the host's name without its domain.",
    "api": "Where people, the console and the other agents reach this one: an address that the other hosts reach too.",
    "advertise": "The host others call, where it is another than the one listened on: with 0.0.0.0, or behind NAT.",
    "tls": "Off is for trying out on loopback, where it is the default. Anywhere else each host has a certificate.",
    "voter": "Where voters talk to one another. A voter does not move to another address later.",
    "bootstrap": "On exactly one host, which founds the mesh; two hosts that say it are two meshes.",
    "voters": "With bootstrap: 3 outlive the loss of one voter, 5 of two; 1 is for trying out.",
    "join": "Any agent of the mesh to join. Asked once; after that this host knows the others by itself.",
    "token-file": "With join: what proves that this host may. A file with mode 0600: the token itself is no setting.",
    "profile": "How long a host may be silent: fast (15 s) for small meshes on one switch, lan (50 s), wan (105 s) for "
    "voters in several sites. Said once, by the host that says bootstrap; lan when not said.",
    "gpus": "nvml for the NVIDIA cards of this host, nvml:UUID,UUID for some of them, none for a host that only votes, "
    "simulated:2xH100 for trying out.",
    "runtime": "docker runs tasks in containers and needs root and a local engine; process runs them as this agent's "
    "user; memory runs nothing and is for tests.",
    "docker-socket": "With runtime docker: the engine's socket. An engine over TCP is not used.",
    "label": "What people may select hosts by. KEY=VALUE, each key once.",
    "allow-path": "Where groups may have checkpoints and data, beside /data, /mnt, /opt, /workspace, /tmp/heteroflow, "
    "/home/*/heteroflow and /root/models. The same on every host, and on a share for groups of several hosts.",
    "rendezvous-address": "Where ranks on other hosts look for rank 0 when it is here, the best first; a start takes "
    "the first that all of them reach. Not said: the addresses of this host's interfaces, private ones first.",
    "telemetry-every": "Seconds between two looks at tasks and cards: shorter shows more and costs more.",
    "stall-after": "Seconds without a step, with idle cards and silent logs, that raise the alert. Longer than the "
    "longest evaluation or checkpoint of your jobs, and the same on every host.",
    "stall-fails-after": "Seconds of standing still after which the group is failed as stalled and its cards come "
    "free; not less than stall-after; 0 for never. The leader's setting counts, so the same on every host.",
    "rendezvous-after": "Seconds after all ranks run in which they have to find each other; then the missing, silent "
    "or split world is named, long before a launcher's own 900 s. Longer than what your jobs do before they meet.",
    "keep-days": "How long ended groups stay in the records, with their events and, on the hosts, their logs; 0 for "
    "ever. The leader's setting counts, so the same on every host. Checkpoints are never touched.",
    "keep-groups": "How many ended groups stay; the ones that ended first go. Each takes some KB on every voter.",
}
# Shown by an example instead of an empty value.
_SAMPLES: Mapping[str, Value] = {
    "data-dir": "/var/lib/heteroflow",
    "name": "gpu-01",
    "join": "10.0.0.1:7460",
    "token-file": "/etc/heteroflow/join.token",
    "profile": "lan",
    "advertise": "gpu-01.example",
    "tls": "on",
    "label": ["rack=a1"],
    "rendezvous-address": ["10.0.0.1", "203.0.113.5"],
    "allow-path": ["/srv/checkpoints"],
}
_HEAD = """# Configuration of heteroflow-agentd. Lines that begin with `#` and a key show its default or an example.
# Read at the start of the agent: after a change, `systemctl restart heteroflow-agentd` (running tasks go on).
# A flag on the command line wins over its key here. `heteroflow-agentd doctor` checks the host against this file.
"""


@cache
def settings() -> Mapping[str, argparse.Action]:
    """Key of the file -> the flag that it stands for, in the flags' order."""
    parser = argparse.ArgumentParser(add_help=False)
    add_run_flags(parser)
    return {action.option_strings[0].removeprefix("--"): action for action in parser._actions}


def read_config_file(path: Path) -> dict[str, Value]:
    """Checked for names and kinds. Raises ConfigError with all that is wrong, a line each."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the configuration file {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the configuration file {path} is not TOML: {error}") from error
    wrong = [text for key, value in raw.items() if (text := _refusal(key, value))]
    if wrong:
        raise ConfigError(f"the configuration file {path} cannot be obeyed: " + "; ".join(wrong))
    return raw


def said_settings(said: Sequence[str]) -> set[str]:
    """The settings among arguments as they were given."""
    return {word.partition("=")[0].removeprefix("--") for word in said if word.startswith("--")} & settings().keys()


def fill_flags(flags: argparse.Namespace, values: Mapping[str, Value], said: Sequence[str]) -> None:
    """What the file says, where no flag does. said: the arguments as given."""
    given = said_settings(said)
    for key, value in values.items():
        if key not in given:
            as_path = isinstance(value, str) and settings()[key].type is Path
            setattr(flags, key.replace("-", "_"), Path(str(value)) if as_path else value)


def flag_value(flags: argparse.Namespace, key: str) -> Value:
    value = getattr(flags, key.replace("-", "_"))
    return str(value) if isinstance(value, Path) else value


def example_file(values: Mapping[str, Value] | None = None) -> str:
    """Every key with its reason; those in `values` set, the others behind `#`."""
    values = values or {}
    parts = [_HEAD]
    for key, action in settings().items():
        reason = textwrap.fill(REASONS[key], 110, initial_indent="# ", subsequent_indent="# ")
        mark, value = ("", values[key]) if key in values else ("#", _shown(key, action))
        # A JSON string, list, number or boolean is one of TOML too.
        parts.append(f"\n{reason}\n{mark}{key} = {json.dumps(value, ensure_ascii=False)}\n")
    return "".join(parts)


def _shown(key: str, action: argparse.Action) -> Value:
    sample = _SAMPLES.get(key)
    value: Value = action.default if sample is None else sample
    return value


def _refusal(key: str, value: object) -> str:
    action = settings().get(key)
    if action is None:
        near = get_close_matches(key.replace("_", "-").lower(), settings(), n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}?" if near else f"the settings are {', '.join(settings())}"
        return f"{key} is no setting ({hint})"
    wanted, fits = _kind(action, value)
    if not fits:
        return f"{key} = {json.dumps(value, default=str)} must be {wanted}"
    if action.choices is not None and value not in action.choices:
        return f"{key} = {json.dumps(value)} must be one of {', '.join(map(str, action.choices))}"
    return ""


def _kind(action: argparse.Action, value: object) -> tuple[str, bool]:
    number = isinstance(value, int) and not isinstance(value, bool)
    if action.nargs == 0:
        return "true or false", isinstance(value, bool)
    if isinstance(action, argparse._AppendAction):
        whole = isinstance(value, list) and all(isinstance(one, str) for one in value)
        return 'a list of strings such as ["A", "B"]', whole
    if action.type is int:
        return "a whole number", number
    if action.type is float:
        return "a number", number or isinstance(value, float)
    return 'a string such as "A"', isinstance(value, str)
