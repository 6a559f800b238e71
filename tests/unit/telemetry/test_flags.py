import argparse

import pytest

from agentd.config import ConfigError, add_run_flags, config_from_flags


def config(*words: str):
    parser = argparse.ArgumentParser()
    add_run_flags(parser)
    return config_from_flags(parser.parse_args(["--data-dir", "/tmp/x", "--name", "n1", *words]))


def test_every_two_seconds_and_three_minutes_unless_said_otherwise():
    assert (config().telemetry_every_s, config().stall_after_s) == (2.0, 180.0)
    said = config("--telemetry-every", "0.5", "--stall-after", "30")
    assert (said.telemetry_every_s, said.stall_after_s) == (0.5, 30.0)


def test_a_stall_fails_the_group_after_half_an_hour_never_before_it_is_one():
    assert config().stall_fails_after_s == 1800.0
    assert config("--stall-fails-after", "0").stall_fails_after_s == 0.0
    assert config("--stall-after", "5", "--stall-fails-after", "5").stall_fails_after_s == 5.0
    assert config("--stall-after", "7200").stall_fails_after_s == 7200.0
    for wrong in ("0.1", "-1", "nan", "inf"):
        with pytest.raises(ConfigError, match="--stall-fails-after"):
            config("--stall-fails-after", wrong)


@pytest.mark.parametrize("flag", ["--telemetry-every", "--stall-after"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e9"])
def test_out_of_range_is_refused_by_name(flag, value):
    with pytest.raises(ConfigError, match=flag):
        config(flag, value)
