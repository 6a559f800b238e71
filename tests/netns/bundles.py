"""Real bundles: of this tree, and of commits made on a copy of it."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.unpacked import unpack

ROOT = Path(__file__).resolve().parents[2]
_GIT = ("git", "-c", "user.name=test", "-c", "user.email=test@localhost")


def unpacked_bundle(checkout: Path, directory: Path) -> Path:
    """Where its install.sh is."""
    directory.mkdir(parents=True)
    cache = _wheel_cache()
    words = ["--wheels", str(cache)] if cache.is_dir() else []
    made = subprocess.run(
        [sys.executable, "-m", "scripts.bundle_run", str(directory), *words],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert made.returncode == 0, made.stderr
    packed = Path(made.stdout.strip())
    unpack(packed, directory)
    bundle = directory / packed.name.removesuffix(".tar.gz")
    if not words:
        _keep_wheels(bundle / "wheels", cache)
    return bundle


def _wheel_cache() -> Path:
    """Outside the tree, and another one when what is needed changes."""
    needs = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()[:12]
    return Path(f"/var/tmp/heteroflow-wheels/{needs}-{sys.version_info.major}.{sys.version_info.minor}")


def _keep_wheels(wheels: Path, cache: Path) -> None:
    fresh = cache.with_name(f".{cache.name}.{os.getpid()}")
    shutil.copytree(wheels, fresh, ignore=shutil.ignore_patterns("heteroflow_mesh-*"))
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:", "--dest", str(fresh)]
    subprocess.run([*pip, "hatchling>=1.25"], check=True, capture_output=True, timeout=120)
    try:
        fresh.rename(cache)
    except OSError:  # another run was first
        shutil.rmtree(fresh)


def next_commit(directory: Path, file: str, added: str) -> Path:
    """A checkout whose newest commit adds text to the end of a file of this tree as it is now."""
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(directory)], check=True, timeout=60)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, timeout=60).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, directory / name)
    with (directory / file).open("a") as text:
        text.write(added)
    subprocess.run([*_GIT, "commit", "--quiet", "--all", "-m", "next"], cwd=directory, check=True, timeout=60)
    return directory
