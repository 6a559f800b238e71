"""The offline bundle: `heteroflow-VERSION-linux-MACHINE.tar.gz`, the same bytes from the same commit and wheels."""

import argparse
import gzip
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from scripts.installer.label import Label, label_of
from scripts.installer.source import MANIFEST, digest_of

ROOT = Path(__file__).resolve().parents[1]
# Newest first: what pip may take for a host with a current glibc, down to that of 2018.
_PLATFORMS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")


class BundleTrouble(Exception):
    """No bundle was made: why, and what to do."""


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bundle", description=__doc__, allow_abbrev=False)
    parser.add_argument("out", nargs="?", type=Path, default=ROOT / "dist")
    parser.add_argument("--python", default=f"{sys.version_info.major}.{sys.version_info.minor}")
    parser.add_argument("--wheels", type=Path)
    flags = parser.parse_args(argv)
    try:
        print(make_bundle(flags.out, flags.python.split(","), flags.wheels))
    except BundleTrouble as error:
        print(f"scripts/bundle: {error}", file=sys.stderr)
        return 1
    return 0


def make_bundle(out: Path, pythons: Sequence[str], wheels: Path | None) -> Path:
    label = label_of(ROOT)
    name = f"heteroflow-{label.text}-linux-{platform.machine()}"
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="heteroflow-bundle-") as scratch:
        tree = Path(scratch, name)
        (tree / "wheels").mkdir(parents=True)
        own = _own_wheel(Path(scratch, "source"), tree / "wheels", label, wheels)
        for python in pythons:
            _fetch(own, tree / "wheels", python, wheels)
        shutil.copytree(
            ROOT / "scripts" / "installer", tree / "scripts" / "installer", ignore=shutil.ignore_patterns("__pycache__")
        )
        shutil.copy2(ROOT / "scripts" / "install.sh", tree / "install.sh")
        shutil.copy2(ROOT / "docs" / "install.md", tree / "README.md")
        files = sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file())
        manifest = {
            "version": label.text,
            "commit": label.commit,
            "machine": platform.machine(),
            "pythons": list(pythons),
            "files": {file: digest_of(tree / file) for file in files},
        }
        (tree / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
        return _pack(tree, [MANIFEST, *files], out / f"{name}.tar.gz")


def _own_wheel(source: Path, wheels: Path, label: Label, given: Path | None) -> Path:
    """Its version names the commit, so that a host can tell which one it runs."""
    tracked = ["LICENSE", "README.md", "pyproject.toml", "agentd", "console", "mesh", "schemas"]
    source.mkdir()
    for entry in tracked:
        if (ROOT / entry).is_dir():
            shutil.copytree(ROOT / entry, source / entry, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / entry, source / entry)
    project = source / "pyproject.toml"
    project.write_text(
        re.sub(r'^version = ".*"$', f'version = "{label.text}"', project.read_text(), count=1, flags=re.M)
    )
    # What builds it is looked for there too, and in the index where it is not.
    builder = _from(given) if given is not None and list(given.glob("hatchling-*.whl")) else []
    _pip("wheel", "--no-deps", *builder, "--wheel-dir", str(wheels), str(source))
    (wheel,) = wheels.glob("heteroflow_mesh-*.whl")
    return wheel


def _fetch(own: Path, wheels: Path, python: str, given: Path | None) -> None:
    """pip itself comes along: it runs out of its wheel, on hosts that have none."""
    machine = platform.machine()
    kinds = [word for kind in _PLATFORMS for word in ("--platform", f"{kind}_{machine}")]
    _pip(
        "download", "--only-binary", ":all:", "--python-version", python, *kinds, *_from(given), "--dest", str(wheels),
        str(own), "pip",
    )  # fmt: skip


def _from(wheels: Path | None) -> list[str]:
    """Of the index where no directory is given."""
    return [] if wheels is None else ["--no-index", "--find-links", str(wheels)]


def _pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", *words[:1], "--quiet", "--disable-pip-version-check", *words[1:]]
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(_commit_time())}
    ran = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=environment
    )
    if ran.returncode:
        raise BundleTrouble(f"pip {words[0]} failed: {' / '.join(ran.stderr.strip().splitlines()[-3:])}")


def _commit_time() -> int:
    """Seconds since 1970; a fixed time outside a checkout of git. zip knows no year before 1980."""
    ran = subprocess.run(
        ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False
    )
    return int(ran.stdout) if ran.returncode == 0 and ran.stdout.strip() else 1_577_836_800


def _pack(tree: Path, files: Sequence[str], target: Path) -> Path:
    """Files in their order, without owner or time of this machine; by rename."""
    fresh = target.with_name(f".{target.name}.new")
    with (
        fresh.open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=1, fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for file in files:
            entry = archive.gettarinfo(str(tree / file), f"{tree.name}/{file}")
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = "root"
            entry.mtime = _commit_time()
            entry.mode = 0o755 if entry.mode & 0o100 else 0o644
            with (tree / file).open("rb") as content:
                archive.addfile(entry, content)
    os.replace(fresh, target)
    return target


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
