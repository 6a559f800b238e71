"""What people type who come from Slurm, SkyPilot, Nomad, Kubernetes or Docker, and what it is called here."""

from collections.abc import Sequence
from difflib import get_close_matches

_AGENT = "heteroflow-agentd"
_VERBS = {
    "alias": "context",
    "alloc": "show",
    "apply": "submit",
    "attach": "logs -f",
    "ca": f"{_AGENT} ca",
    "cancel": "stop",
    "cert": f"{_AGENT} cert",
    "certs": f"{_AGENT} cert",
    "check": "lint",
    "cp": "files get",
    "create": "submit",
    "dashboard": "console",
    "del": "delete",
    "describe": "show",
    "diagnose": "why",
    "doctor": f"{_AGENT} doctor",
    "download": "files get",
    "explain": "why",
    "get": "ls",
    "gpus": "nodes",
    "history": "events",
    "info": "nodes",
    "inspect": "show",
    "job": "ls",
    "jobs": "ls",
    "join": f"{_AGENT} guard --join",
    "keys": "key",
    "kill": "stop",
    "launch": "submit",
    "list": "ls",
    "monitor": "top",
    "node": "nodes",
    "plan": "lint",
    "ps": "ls",
    "purge": "delete",
    "remove": "delete",
    "requeue": "resubmit",
    "restart": "resubmit",
    "rm": "delete",
    "run": "submit",
    "sacct": "ls",
    "sbatch": "submit",
    "scancel": "stop",
    "scontrol": "show",
    "server": "mesh show",
    "sinfo": "nodes",
    "squeue": "queue",
    "srun": "submit --follow",
    "ssh": "exec",
    "start": "submit",
    "stat": "show",
    "status": "ls",
    "tail": "logs -f",
    "templates": "template",
    "timeline": "events",
    "token": f"{_AGENT} token",
    "tui": "console",
    "ui": "console",
    "undrain": "uncordon",
    "upload": "files put",
    "validate": "lint",
}
_OPTIONS = {
    "--dry-run": "heteroflow lint FILE judges it without submitting it, heteroflow render FILE shows what a rank gets",
    "--format": "write -o json or -o yaml",
    "--json": "write -o json",
    "--yaml": "write -o yaml",
    "--token": "a secret is no argument, which everyone on the host can read: write it into a file, for --token-file",
}


def verb_hint(word: str, verbs: Sequence[str]) -> str:
    """What to type instead of a verb that there is not; "" where nothing is like it."""
    wanted = word.lower()
    if (meant := _VERBS.get(wanted)) is not None:
        return f"That is `{meant if meant.startswith(_AGENT) else f'heteroflow {meant}'}` here."
    near = get_close_matches(wanted, verbs, n=1, cutoff=0.6)
    return f"Did you mean `heteroflow {near[0]}`?" if near else ""


def option_hint(word: str, options: Sequence[str]) -> str:
    """The same of an option of one verb."""
    name = word.partition("=")[0]
    near = get_close_matches(name, options, n=1, cutoff=0.75)
    if near:
        return f"Did you mean {near[0]}?"
    known = _OPTIONS.get(name, "")
    return known if known.startswith("heteroflow") else f"{known[:1].upper()}{known[1:]}." if known else ""


def value_hint(word: str, values: Sequence[str]) -> str:
    """The same of one of some words."""
    near = get_close_matches(word.lower(), values, n=1, cutoff=0.6)
    return f"Did you mean {near[0]}?" if near else ""
