"""Versions side by side: whole or none, one link, and none taken away under a process that runs from it."""

import os
import subprocess
import sys

import pytest

from scripts.installer import versions
from scripts.installer.places import InstallRefused, Places
from scripts.installer.source import Source


class Quick(Source):
    """A source whose environment is one file; fails where `fail` lies in its directory."""

    def install_into(self, python, version_dir, lock):
        (version_dir / "bin").mkdir(parents=True)
        if (self.directory / "fail").exists():
            raise InstallRefused("interrupted")
        (version_dir / "bin" / "program").write_text(self.label)


@pytest.fixture
def places(tmp_path):
    places = Places(tmp_path / "root")
    places.versions.mkdir(parents=True)
    return places


@pytest.fixture
def build(places, tmp_path):
    (tmp_path / "install.sh").write_text("#!/bin/sh\n")

    def build(label):
        return versions.build(places, Quick(tmp_path, label, {}), 0)

    return build


def test_a_version_that_was_interrupted_is_made_anew(places, build, tmp_path):
    (tmp_path / "fail").touch()
    with pytest.raises(InstallRefused):
        build("1")
    assert not versions.is_whole(places, "1")
    with pytest.raises(InstallRefused, match="not whole"):
        versions.switch(places, "1")
    (tmp_path / "fail").unlink()
    (places.versions / "1" / "half").write_text("left over")
    assert build("1") and versions.is_whole(places, "1") and not (places.versions / "1" / "half").exists()
    assert not build("1"), "it is there already"


def test_the_link_leads_to_one_whole_version(places, build):
    assert versions.current_version(places) is None
    for label in ("1", "2"):
        build(label)
        versions.switch(places, label)
        assert versions.current_version(places) == label
        assert (places.current / "bin" / "program").read_text() == label
    (places.home / ".current.new").symlink_to("versions/none")  # of a switch that was interrupted
    versions.switch(places, "1")
    assert versions.current_version(places) == "1" and not (places.home / ".current.new").exists()


def test_what_is_pruned(places, build):
    for age, label in enumerate(("used", "old", "before", "now")):
        build(label)
        os.utime(places.versions / label / ".complete", (age, age))
    versions.switch(places, "now")
    script = places.versions / "used" / "shim.py"
    script.write_text("import sys; print('up', flush=True); sys.stdin.read()")
    shim = subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert shim.stdout.readline() == b"up\n"
        assert versions.prune(places) == ["old"]
    finally:
        shim.communicate()
    assert versions.prune(places) == ["used"]
    assert sorted(path.name for path in places.versions.iterdir()) == ["before", "now"]
