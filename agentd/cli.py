"""`heteroflow-agentd`: `guard` keeps an agent running on this host, `run` is the agent itself.

`config` writes the configuration file of both, `doctor` looks at the host, `token` and `cert` let hosts in and out,
`ca` is about the mesh CA, `openapi` describes the API."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from agentd.config import AgentConfig, ConfigError, add_run_flags, config_from_flags
from agentd.config_file import (
    CONFIG_PATH,
    DATA_PATH,
    example_file,
    fill_flags,
    flag_value,
    read_config_file,
    said_settings,
    settings,
)
from agentd.data_dir import DataDirRefused
from agentd.identity.flags import add_verbs

EXIT_REFUSED, EXIT_USAGE, EXIT_DATA_DIR, EXIT_ADDRESS = 1, 2, 3, 4


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    flags = _parsed(arguments)
    if flags.verb == "openapi":
        return _print_openapi()
    try:
        if flags.verb in ("token", "cert", "ca"):
            return _certificates(flags)
        if flags.verb == "config" and not flags.check:
            return _print_config(flags, arguments[1:])
        if flags.verb == "doctor":
            return _visit(flags, arguments[1:])
        config = _config(flags, arguments[1:])
        if flags.verb == "config":
            print(f"the configuration of node {config.name} can be obeyed")
            return 0
        if flags.verb == "guard":
            _become_guard(config, flags.restart, arguments[1:])
        return _run(config)
    except ConfigError as error:
        return _say(error, EXIT_USAGE)
    except DataDirRefused as error:
        return _say(error, EXIT_DATA_DIR)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Raises SystemExit. A flag that there is not is answered with the one it looks like."""
    parser, verbs = _parser()
    flags, left = parser.parse_known_args(arguments)
    if left:
        verb = verbs[flags.verb]
        known = [option for action in verb._actions for option in action.option_strings]
        near = get_close_matches(left[0].partition("=")[0], known, n=1)
        verb.error(f"unrecognized arguments: {' '.join(left)}" + (f"; did you mean {near[0]}?" if near else ""))
    return flags


def _parser() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """And that of each verb."""
    parser = argparse.ArgumentParser(prog="heteroflow-agentd", description=__doc__)
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and end")
    verbs = parser.add_subparsers(dest="verb", required=True)
    guard = verbs.add_parser(
        "guard", allow_abbrev=False, help="start and restart the agent, and stop tasks whose lease ran out (production)"
    )
    guard.add_argument("--restart", choices=("always", "never"), default="always", help="never: for drills")
    _add_settings(guard)
    _add_settings(verbs.add_parser("run", allow_abbrev=False, help="the agent alone (a guard runs this)"))
    config = verbs.add_parser(
        "config", allow_abbrev=False, help="print a configuration file, with the settings given here set"
    )
    config.add_argument("--check", action="store_true", help="print nothing: say whether the settings can be obeyed")
    _add_settings(config)
    doctor = verbs.add_parser(
        "doctor", allow_abbrev=False, help="say what this host lacks, and how to mend it; 1 where it cannot do its work"
    )
    doctor.add_argument("--json", action="store_true", help="the findings as a list")
    _add_settings(doctor)
    verbs.add_parser("openapi", allow_abbrev=False, help="print the description of the API (OpenAPI 3.1)")
    add_verbs(verbs)
    return parser, dict(verbs.choices)


def _certificates(flags: argparse.Namespace) -> int:
    from agentd.identity.verbs import Refused, run_verb

    try:
        run_verb(flags)
    except Refused as error:
        return _say(error, EXIT_REFUSED)
    return 0


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML; flags win over it")
    add_run_flags(parser)


class _Version(argparse.Action):
    """Looked up only when asked for: no start of an agent pays for it."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"heteroflow-agentd {version('heteroflow-mesh')}")
        parser.exit()


def _config(flags: argparse.Namespace, said: Sequence[str]) -> AgentConfig:
    if flags.config is None:
        return config_from_flags(flags)
    fill_flags(flags, read_config_file(flags.config), said)
    try:
        return config_from_flags(flags)
    except ConfigError as error:
        raise ConfigError(f"{error} (settings come from {flags.config} and the flags)") from error


def _print_config(flags: argparse.Namespace, said: Sequence[str]) -> int:
    from_file = read_config_file(flags.config) if flags.config is not None else {}
    fill_flags(flags, from_file, said)
    said_keys = from_file.keys() | said_settings(said)
    print(example_file({key: flag_value(flags, key) for key in settings() if key in said_keys}), end="")
    return 0


def _visit(flags: argparse.Namespace, said: Sequence[str]) -> int:
    """Without a word it is about the agent that the installer put here."""
    if flags.config is None and CONFIG_PATH.is_file():
        flags.config = CONFIG_PATH
    elif flags.config is None:
        flags.data_dir = flags.data_dir or DATA_PATH
    config = _config(flags, said)
    from agentd.doctor.visit import visit

    return visit(config, flags.json)


def _print_openapi() -> int:
    import json

    from agentd.http.app import api_description

    print(json.dumps(api_description(), indent=1))
    return 0


def _run(config: AgentConfig) -> int:
    from agentd.daemon import VoterRefused, run_agent
    from agentd.listener import AddressInUse

    try:
        return asyncio.run(run_agent(config))
    except AddressInUse as error:
        return _say(error, EXIT_ADDRESS)
    except VoterRefused as error:
        return _say(error, error.code)


def _become_guard(config: AgentConfig, restart: str, arguments: list[str]) -> None:
    """Replaces this process: the guard is the standard library and its own few files, and stays that small."""
    guard = Path(__file__).with_name("guard.py")
    agent = [sys.executable, "-m", "agentd.cli", "run", *_without_restart(arguments)]
    command = [sys.executable, "-I", "-S", str(guard), "--data-dir", str(config.data_dir), "--restart", restart]
    os.execv(sys.executable, [*command, "--", *agent])


def _without_restart(arguments: list[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if not skip and not argument.startswith("--restart"):
            kept.append(argument)
        skip = argument == "--restart" and not skip
    return kept


def _say(error: Exception, code: int) -> int:
    print(f"heteroflow-agentd: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
