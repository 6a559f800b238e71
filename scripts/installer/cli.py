"""`install.sh`: what it can be told."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.installer import verbs
from scripts.installer.places import InstallRefused, Places
from scripts.installer.source import find_source

_VERBS = ("install", "upgrade", "uninstall")
_EPILOG = """Every setting of the agent may be said too (--api, --runtime docker, --gpus, --label k=v, ...) and goes
into /etc/heteroflow/agent.toml. docs/install.md tells the whole story."""


def main(argv: Sequence[str], directory: Path) -> int:
    """directory: of the bundle or checkout."""
    os.umask(0o022)
    verb, arguments = (argv[0], argv[1:]) if argv and argv[0] in _VERBS else ("install", argv)
    flags, settings = _parser().parse_known_args(arguments)
    try:
        places = Places(_root(flags.root))
        if verb == "install":
            return verbs.install(places, find_source(directory), _options(flags, settings))
        if settings:
            raise InstallRefused(f"{' '.join(settings)} is not for {verb}; the settings are in {places.config}")
        if verb == "upgrade":
            return verbs.upgrade(places, find_source(directory))
        return verbs.uninstall(places, _options(flags, ()))
    except InstallRefused as error:
        print(f"install.sh: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(
            f"install.sh: {where}{error.strerror or error}; what is done stays, run it again once that is mended",
            file=sys.stderr,
        )
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="install.sh", usage="install.sh [install|upgrade|uninstall] [options]", epilog=_EPILOG, allow_abbrev=False
    )
    parser.add_argument("--root", default="/", metavar="DIR", help="install below DIR, beside what the host has")
    parser.add_argument("--join", metavar="HOST:PORT", help="install: API address of an agent of the mesh")
    parser.add_argument("--token-file", type=Path, help="install, with --join: file with the token, mode 0600")
    parser.add_argument("--bootstrap", action="store_true", help="install: found a new mesh, on exactly one host")
    parser.add_argument("--address", default="", metavar="IP", help="install: this host's, that the others reach")
    parser.add_argument("--user", default="", help="install: that the agent runs as (heteroflow; root for docker)")
    parser.add_argument("--by-hand", action="store_true", help="install: start it where no systemd runs")
    parser.add_argument("--purge", action="store_true", help="uninstall: configuration and data too")
    parser.add_argument("--force", action="store_true", help="uninstall: kill the tasks that run here")
    return parser


def _options(flags: argparse.Namespace, settings: Sequence[str]) -> verbs.Options:
    words = list(settings)
    if flags.bootstrap:
        words.insert(0, "--bootstrap")
    if flags.join:
        words += ["--join", flags.join]
    return verbs.Options(
        flags.user, flags.address, flags.token_file, flags.by_hand, flags.purge, flags.force, tuple(words)
    )


def _root(said: str) -> Path:
    root = Path(said).expanduser().absolute()
    if any(letter.isspace() for letter in str(root)):
        raise InstallRefused(f"--root {said} has white space, which no interpreter line can hold; choose another")
    return root
