"""What the installer writes on a host: the configuration, the token, the unit."""

import os
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from schemas.limits import PROFILES
from scripts.installer import account, configuration, host
from scripts.installer.places import InstallRefused, Places
from scripts.installer.unit import unit_text

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def places(tmp_path):
    places = Places(tmp_path / "root")
    for directory in (places.versions / "1" / "bin", places.config_dir, places.data):
        directory.mkdir(parents=True)
    return places


@pytest.fixture
def version(places):
    """The agent of this checkout as an installed version."""
    agentd = places.versions / "1" / "bin" / "heteroflow-agentd"
    agentd.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m agentd.cli "$@"\n')
    agentd.chmod(0o755)
    return places.versions / "1"


def words(places, *said):
    return configuration.completed(["--bootstrap", *said], places, "127.0.0.1")


def test_what_is_known_better_than_a_default(places):
    said = configuration.settings_of(words(places, "--name=gpu-7", "--voter", "[::1]:9"))
    assert said["--api"] == "127.0.0.1:7460" and said["--voter"] == "[::1]:9" and said["--name"] == "gpu-7"
    assert said["--data-dir"] == str(places.data)
    assert configuration.settings_of(configuration.completed([], places, "::1"))["--api"] == "[::1]:7460"


def test_the_address_that_a_peer_sees(places):
    assert configuration.own_address("127.0.0.1:7460") == "127.0.0.1"
    assert configuration.own_address("[::1]:7460") == "::1"
    with pytest.raises(InstallRefused, match="--address"):
        configuration.own_address("no-such-host.invalid:7460")
    with pytest.raises(InstallRefused, match="HOST:PORT"):
        configuration.own_address("127.0.0.1:x")


def test_a_configuration_is_the_operator_s_once_the_host_is_a_member(places, version):
    first = words(places, "--name", "gpu-7", "--label", "rack=a1")
    assert configuration.write_config(places, version, first) == "written"
    assert tomllib.loads(places.config.read_text())["label"] == ["rack=a1"]
    assert configuration.write_config(places, version, first) == "kept"
    other = words(places, "--name", "gpu-8")
    assert "agent.toml.before" in configuration.write_config(places, version, other)
    assert host.settings(places)["name"] == "gpu-8"
    (places.data / "founding.json").write_text("{}")
    assert "member already" in configuration.write_config(places, version, first)
    assert host.settings(places)["name"] == "gpu-8"


def test_settings_that_cannot_be_obeyed_are_never_written(places, version):
    with pytest.raises(InstallRefused, match="1, 3 or 5"):
        configuration.write_config(places, version, words(places, "--voters", "4"))
    with pytest.raises(InstallRefused, match="unrecognized arguments: --colour"):
        configuration.write_config(places, version, words(places, "--colour", "red"))
    assert not places.config.exists()


def test_a_token_is_kept_from_others(places, tmp_path):
    given = tmp_path / "token"
    given.write_text("secret\n")
    given.chmod(0o644)
    with pytest.raises(InstallRefused, match="chmod 600"):
        configuration.keep_token(places, given, None)
    given.chmod(0o600)
    for _ in range(2):
        configuration.keep_token(places, given, None)
    assert places.token.read_text() == "secret\n" and stat.S_IMODE(places.token.stat().st_mode) == 0o600
    assert [path.name for path in places.config_dir.iterdir()] == ["join.token"]
    with pytest.raises(InstallRefused, match="cannot be read"):
        configuration.keep_token(places, tmp_path / "none", None)


def test_who_the_agent_runs_as():
    host_itself, own = Places(Path("/")), Places(Path("/srv/x"))
    assert account.choose_user(host_itself, "", "docker") == "root"
    assert account.choose_user(host_itself, "", "") == "heteroflow" and account.choose_user(own, "", "") == "root"
    assert account.choose_user(host_itself, "train", "process") == "train"
    with pytest.raises(InstallRefused, match="needs the user root"):
        account.choose_user(host_itself, "train", "docker")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_an_interpreter_that_the_user_cannot_reach(tmp_path):
    below = tmp_path / "python"
    below.symlink_to(sys.executable)
    tmp_path.chmod(0o700)
    assert account.can_run("root", below) and not account.can_run("daemon", below)


@pytest.mark.need("systemd")
@pytest.mark.parametrize("user", ["root", "daemon"])
def test_the_unit_is_one_that_systemd_takes(places, version, user):
    places.current.symlink_to("versions/1")
    places.unit.parent.mkdir(parents=True)
    places.unit.write_text(unit_text(places, user))
    ran = subprocess.run(["systemd-analyze", "verify", str(places.unit)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    # It tells of what does not exist: the check can fail.
    shutil.rmtree(version)
    ran = subprocess.run(["systemd-analyze", "verify", str(places.unit)], capture_output=True, text=True, check=False)
    assert ran.returncode or "not executable" in ran.stderr


@pytest.mark.parametrize("line", ["KillMode=process", "Delegate=yes", "Restart=always", "OOMPolicy=continue"])
def test_a_stop_of_the_unit_stops_no_task(line):
    assert f"\n{line}\n" in unit_text(Places(Path("/")), "root")


def test_the_unit_waits_for_what_tasks_need():
    text = unit_text(Places(Path("/")), "root")
    for unit in ("network-online.target", "remote-fs.target", "docker.service", "nvidia-persistenced.service"):
        assert unit in text.partition("After=")[2].partition("\n")[0]
    assert "ExecStart=/opt/heteroflow/current/bin/heteroflow-agentd guard --config /etc/heteroflow/agent.toml" in text


def test_how_long_tasks_outlive_their_agent(places):
    assert {name: profile.t_stop_ms / 1000 for name, profile in PROFILES.items()} == host.T_STOP_S
    assert host.stop_after_s(places) == 40.0
    (places.data / "founding.json").write_text('{"profile": "wan"}')
    assert host.stop_after_s(places) == 90.0


def test_an_agent_that_keeps_ending_is_given_up(places):
    log = places.data / "log" / "guard.log"
    log.parent.mkdir()
    again = "2026-11-30T03:20:47Z agent ended with code 1, restarting\n"
    log.write_text(again * 3)
    since = host.guard_log_size(places)
    assert host.gave_up(places, 0) and not host.gave_up(places, since)
    log.write_text(again * 5)
    assert not host.gave_up(places, since)
    log.write_text("rotated: agent ended with code 2, no restart\n")
    assert host.gave_up(places, since)


def test_a_guard_is_known_by_its_lock_and_not_by_a_number_left_behind(places):
    (places.data / "guard.lock").write_text(f"{os.getpid()}\n")
    assert host.guard_pid(places) == 0
