"""Flags that cannot be obeyed are told at once, with code 2, and leave no trace."""

import argparse
import os

import pytest

from agentd import cli
from agentd.config import ConfigError, add_run_flags, config_from_flags, parse_address


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--api", "0.0.0.0:7460"], "--advertise HOST"),
        (["--voter", "[::]:7461"], "--advertise HOST"),
        (["--api", "0.0.0.0:7460", "--advertise", "10.0.0.7", "--tls", "off"], "without TLS"),
        (["--api", "gpu-7.example:7460", "--tls", "off"], "without TLS"),
        (["--voter", "10.0.0.7:7461", "--tls", "off"], "without TLS"),
        (["--voter", "[fe80::1]:7461", "--tls", "off"], "without TLS"),
        (["--advertise", "0.0.0.0"], "every address"),
        (["--advertise", "gpu-7:7460"], "without a port"),
        (["--advertise", "gpu 7"], "is no host"),
        (["--api", "nonsense"], "HOST:PORT"),
        (["--api", "127.0.0.1:0"], "HOST:PORT"),
        (["--api", "127.0.0.1:99999"], "HOST:PORT"),
        (["--api", "127.0.0.1:7461"], "different ports"),
        (["--name", "../up"], "host name"),
        (["--label", "nokey"], "KEY=VALUE"),
        (["--label", "a=1", "--label", "a=2"], "twice"),
        (["--allow-path", "../x"], "--allow-path"),
        (["--allow-path", "/"], "--allow-path"),
        (["--voters", "2"], "1, 3 or 5"),
        (["--join", "127.0.0.1:7460"], "only one of them"),
    ],
)
@pytest.mark.parametrize("verb", ["run", "guard"])
def test_flags_that_cannot_be_obeyed(tmp_path, capsys, verb, flags, words):
    data = tmp_path / "d"
    assert cli.main([verb, "--data-dir", str(data), "--name", "n1", "--bootstrap", *flags]) == 2
    assert words in capsys.readouterr().err and not data.exists()


@pytest.mark.parametrize("setting", ["simulated:manyxH100", "all", ""])
def test_cards_that_cannot_be_had(tmp_path, capsys, setting):
    data = tmp_path / "d"
    assert cli.main(["run", "--data-dir", str(data), "--name", "n1", "--bootstrap", "--gpus", setting]) == 2
    assert "--gpus" in capsys.readouterr().err and not data.exists()


def test_voters_are_the_founder_s_to_say(tmp_path, capsys):
    flags = ["--data-dir", str(tmp_path / "d"), "--name", "n1", "--join", "127.0.0.1:7460", "--voters", "3"]
    assert cli.main(["run", *flags]) == 2 and "--bootstrap" in capsys.readouterr().err


def test_what_the_guard_runs(tmp_path, monkeypatch):
    seen = []

    def instead(path, argv):
        seen.append(argv)
        raise SystemExit(0)

    monkeypatch.setattr(os, "execv", instead)
    data = str(tmp_path / "d")
    for restart in (["--restart", "never"], ["--restart=never"]):
        with pytest.raises(SystemExit):
            cli.main(["guard", "--data-dir", data, *restart, "--name", "n1", "--bootstrap"])
    for argv in seen:
        own, _, agent = " ".join(argv).partition(" -- ")
        assert own.endswith(f"guard.py --data-dir {data} --restart never") and " -I -S " in own
        assert agent.endswith(f"-m agentd.cli run --data-dir {data} --name n1 --bootstrap")


@pytest.mark.parametrize(
    ("text", "host"), [("127.0.0.1:7460", "127.0.0.1"), ("[::1]:7460", "::1"), ("localhost:7460", "localhost")]
)
def test_addresses(text, host):
    address = parse_address(text, "--api")
    assert (address.host, str(address)) == (host, text)


def test_allowed_paths_are_added_to_the_known_ones(tmp_path):
    parser = argparse.ArgumentParser()
    add_run_flags(parser)
    flags = parser.parse_args(["--data-dir", "d", "--name", "N1", "--bootstrap", "--allow-path", "/srv/ckpt/"])
    config = config_from_flags(flags)
    assert config.name == "n1" and config.data_dir.is_absolute()
    assert config.allowed_paths[-1] == "/srv/ckpt/" and "/data/" in config.allowed_paths
    flags.api = "x"
    with pytest.raises(ConfigError):
        config_from_flags(flags)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["guard", "--datadir", "/x"], "did you mean --data-dir?"),
        (["run", "--voters=3", "--gpu", "none"], "did you mean --gpus?"),
        (["doctor", "--qqqq"], "unrecognized arguments: --qqqq\n"),
        (["cets"], "'ca'"),
    ],
)
def test_a_flag_that_there_is_not_is_answered_with_the_one_that_is(capsys, words, said):
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert end.value.code == 2
    assert said in capsys.readouterr().err
