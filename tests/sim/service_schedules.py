"""The schedules that tell whether a service may complete, and whether a declared port has one holder."""

from __future__ import annotations

from tests.sim.stage import FOREVER, Stage, runs


def service_that_exits_0() -> Stage:
    stage = Stage(hosts=1, voters=1)
    group = stage.submit(1, 1, runs(3), endless=True)
    stage.running(group, attempt=2, within_s=30)
    return stage


def two_services_of_one_port() -> Stage:
    """On one host: the second waits until the first is stopped."""
    stage = Stage(hosts=1, voters=1)
    first = stage.submit(1, 1, FOREVER, endless=True)
    second = stage.submit(1, 1, FOREVER, endless=True)
    stage.running(first)
    stage.pass_s(10)
    stage.client.stop_group(first)
    stage.running(second, within_s=30)
    return stage
