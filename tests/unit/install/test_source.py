"""A bundle is used whole or not at all, on the Python and machine it was made for."""

import json
import platform
import sys

import pytest

from scripts.installer.places import InstallRefused
from scripts.installer.source import digest_of, find_source

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def bundle(tmp_path):
    """Writes one with changes to its manifest."""
    (tmp_path / "wheels").mkdir()
    wheel = tmp_path / "wheels" / "one.whl"
    wheel.write_bytes(b"wheel")

    def write(**changes):
        manifest = {
            "version": "0.1.0+gabc",
            "commit": "abc",
            "machine": platform.machine(),
            "pythons": [HERE],
            "files": {"wheels/one.whl": digest_of(wheel)},
        }
        (tmp_path / "manifest.json").write_text(json.dumps(manifest | changes))
        return tmp_path

    return write


def test_a_whole_one(bundle):
    source = find_source(bundle())
    source.check()
    assert source.label == "0.1.0+gabc"


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b"whee1"), lambda path: path.unlink()])
def test_a_file_changed_or_lost_on_its_way(bundle, damage):
    directory = bundle()
    damage(directory / "wheels" / "one.whl")
    with pytest.raises(InstallRefused, match=r"damaged: wheels/one\.whl.*copy the bundle again"):
        find_source(directory).check()


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"pythons": ["3.9"]}, f"--python {HERE}"), ({"machine": "riscv64"}, "is for riscv64")],
)
def test_another_host_s(bundle, changes, words):
    with pytest.raises(InstallRefused, match=words):
        find_source(bundle(**changes)).check()


@pytest.mark.parametrize("text", ["", "[]", "{}", "\x00"])
def test_a_manifest_cut_short(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(InstallRefused, match="damaged"):
        find_source(tmp_path)


def test_neither_bundle_nor_checkout(tmp_path):
    with pytest.raises(InstallRefused, match="nothing to install from"):
        find_source(tmp_path)
