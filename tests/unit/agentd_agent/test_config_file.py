"""The configuration file: every flag a key with its reason, flags win, and what cannot be obeyed is told by name."""

import os
import tomllib
from pathlib import Path

import pytest

from agentd import cli
from agentd.config_file import REASONS, example_file, read_config_file, settings

ROOT = Path(__file__).resolve().parents[3]
SOME = 'data-dir = "/var/lib/hf"\nname = "gpu-7"\nbootstrap = true\nvoters = 3\nlabel = ["rack=a1"]\nstall-after = 60\n'


@pytest.fixture
def obeyed(monkeypatch):
    """What an agent would be started with."""
    seen = []

    def instead(config):
        seen.append(config)
        return 0

    monkeypatch.setattr(cli, "_run", instead)
    return seen


def test_every_flag_is_a_key_with_a_reason():
    assert set(settings()) == set(REASONS) and {"data-dir", "api", "label", "stall-after"} <= set(REASONS)


def test_the_shipped_file_is_the_one_the_table_gives():
    assert (ROOT / "docs" / "agent.toml").read_text() == example_file(), "run scripts/docs_config.py"


def test_an_example_is_a_file_that_says_nothing_and_each_of_its_lines_can_be_said(tmp_path, capsys):
    assert tomllib.loads(example_file()) == {}
    lines = [line[1:] for line in example_file().splitlines() if line[:1] == "#" and line[1:2] not in ("", " ")]
    assert len(lines) == len(REASONS)
    for line in lines:
        path = tmp_path / "one.toml"
        path.write_text(line)
        read_config_file(path)


def test_a_file_is_obeyed_and_flags_win(tmp_path, obeyed):
    path = tmp_path / "agent.toml"
    path.write_text(SOME)
    assert cli.main(["run", "--config", str(path), "--name=gpu-8", "--label", "rack=b2", "--stall-after", "90"]) == 0
    (config,) = obeyed
    assert config.data_dir == Path("/var/lib/hf") and config.bootstrap and config.voters == 3
    assert (config.name, config.labels, config.stall_after_s) == ("gpu-8", {"rack": "b2"}, 90.0)


def test_what_config_prints_is_the_same_configuration(tmp_path, obeyed, capsys):
    first = tmp_path / "first.toml"
    first.write_text(SOME)
    assert cli.main(["config", "--config", str(first), "--voters", "5", "--allow-path", "/srv/x"]) == 0
    second = tmp_path / "second.toml"
    second.write_text(capsys.readouterr().out)
    assert cli.main(["run", "--config", str(first), "--voters", "5", "--allow-path", "/srv/x"]) == 0
    assert cli.main(["run", "--config", str(second)]) == 0
    assert obeyed[0] == obeyed[1] and obeyed[1].voters == 5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("data_dir = '/x'", "did you mean data-dir?"),
        ("Voters = 3", "did you mean voters?"),
        ("frobnicate = 3", "the settings are data-dir"),
        ("token = 'x'", "is no setting"),
        ("voters = '3'", "whole number"),
        ("voters = true", "whole number"),
        ("bootstrap = 'yes'", "true or false"),
        ("label = 'a=1'", "list of strings"),
        ("label = [1]", "list of strings"),
        ("name = 7", "must be a string"),
        ("stall-after = 'long'", "a number"),
        ("stall-after = nan", "out of range"),
        ("runtime = 'podman'", "process, docker, memory"),
        ("[agent]\nname = 'x'", "is no setting"),
        ("when = 2026-01-01", "is no setting"),
        ("api = '0.0.0.0'", "HOST:PORT"),
        ("name = ", "not TOML"),
        ("name = '\x00'", "not TOML"),
    ],
)
def test_what_cannot_be_obeyed(tmp_path, capsys, text, words):
    path = tmp_path / "agent.toml"
    path.write_text(text)
    data = tmp_path / "d"
    for verb in (["run"], ["config", "--check"]):
        assert cli.main([*verb, "--config", str(path), "--data-dir", str(data), "--bootstrap"]) == 2
        said = capsys.readouterr().err
        assert words in said and str(path) in said and not data.exists()


def test_all_that_is_wrong_is_told_at_once(tmp_path, capsys):
    path = tmp_path / "agent.toml"
    path.write_text("apy = 'x'\nvoters = 'x'\n")
    assert cli.main(["run", "--config", str(path)]) == 2
    said = capsys.readouterr().err
    assert "did you mean api?" in said and "voters" in said


def test_a_file_that_is_not_there_or_no_text(tmp_path, capsys):
    assert cli.main(["run", "--config", str(tmp_path / "none.toml")]) == 2
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    assert cli.main(["run", "--config", str(tmp_path / "bytes.toml")]) == 2
    said = capsys.readouterr().err
    assert "cannot be read" in said and "not TOML" in said


def test_the_guard_passes_the_file_on(tmp_path, monkeypatch):
    """The agent reads it again at each of its starts."""
    seen = []

    def instead(path, argv):
        seen.append(" ".join(argv))
        raise SystemExit(0)

    monkeypatch.setattr(os, "execv", instead)
    path = tmp_path / "agent.toml"
    path.write_text(SOME)
    with pytest.raises(SystemExit):
        cli.main(["guard", "--config", str(path)])
    own, _, agent = seen[0].partition(" -- ")
    assert "--data-dir /var/lib/hf" in own and agent.endswith(f"-m agentd.cli run --config {path}")
