import contextlib
import math
from dataclasses import replace

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.core.certificate_life import CertificateNow, worth_telling
from agentd.core.quiet import Quiet
from agentd.core.rendezvous import Processes, RendezvousNow
from agentd.core.report import METRICS_MAX, NAME_MAX, Report
from agentd.core.stall import StallLimits
from agentd.core.telemetry_blob import (
    BLOB_MAX,
    BlobRefused,
    CardNow,
    NodeNow,
    Progress,
    TaskNow,
    by_attempt,
    claimed_node,
    pack_node,
    unpack_node,
)
from agentd.telemetry.desk import TelemetryDesk

TASK = TaskNow(
    group_id="tg-0123456789abcdefghjk",
    attempt=3,
    rank=0,
    ranks=2,
    running=True,
    running_s=61.5,
    cards=("GPU-1", "GPU-2"),
    cpu_percent=140.0,
    log=Quiet(2.5, True),
    cards_quiet=(Quiet(3.0, False), None),
    files=None,
    processor=Quiet(0.0, True),
    step=Quiet(1.0, True),
    curve_state="live",
    curve_text="points arrive",
    progress=Progress("train/loss", 1200, 0.25, 1.7e9, 1.0),
)
NODE = NodeNow("gpu-01", False, 2.0, (CardNow("GPU-1", 93.0, 70_000, 61, 640.5), CardNow("GPU-2")), (TASK,))


def test_there_and_back():
    assert unpack_node(pack_node(NODE)) == NODE


def test_a_certificate_is_told_of_only_where_it_ends_soon():
    """Without it the bytes are those of the version before, and those are read as ever."""
    told = replace(NODE, certificate=CertificateNow(86_400.0, "the mesh CA does not answer"))
    assert unpack_node(pack_node(told)) == told
    assert len(msgpack.unpackb(pack_node(NODE))) == 7
    assert worth_telling(0.34, 1e6, "") is None
    assert worth_telling(0.33, 29 * 86_400.0, "x").text == "its certificate ends in 29 days and could not be renewed: x"
    assert worth_telling(0.01, 80_000.0, "").level == "critical"
    assert worth_telling(-0.01, -5.0, "").text == "its certificate has expired and was not renewed"


def test_a_report_is_told_only_where_there_is_one():
    metrics = tuple((f"m{at}" * 8, float(at)) for at in range(METRICS_MAX))
    for report in (Report(0, 7, 0.5, 1e-4, 1.5, "train", metrics, 2.5), Report(3)):
        told = replace(NODE, tasks=(replace(TASK, report=report),))
        assert unpack_node(pack_node(told)) == told
        aged = told.aged(3.0).tasks[0].report
        assert aged is not None and aged.stepped_s == report.stepped_s + 3.0
    assert len(msgpack.unpackb(pack_node(NODE))[5][0]) == 16, "the bytes of the version before"


def test_where_ranks_meet_is_told_only_of_groups_of_several_nodes():
    """An agent of the version before takes the place of the report for one, and reads the blob all the same."""
    for seen in (
        RendezvousNow("10.0.0.1:20000", 3.0, True, None, 2.0, Processes(0, 4, 1, 1, True)),
        RendezvousNow("[fd00::1]:20000", 3.0, False, True),
    ):
        for report in (None, Report(1), Report(0, 7, 0.5)):
            told = replace(NODE, tasks=(replace(TASK, rank=1, report=report, rendezvous=seen),))
            assert unpack_node(pack_node(told)) == told
            shown = msgpack.unpackb(pack_node(told))[5][0][16]
            assert len(shown) == 8 and shown[0] in (0, 1) and isinstance(shown[6], list)


def test_the_reports_of_64_groups_on_one_host_displace_no_task():
    metrics = tuple((f"{at:x}" * NAME_MAX, 1.5) for at in range(METRICS_MAX))
    meets = RendezvousNow("10.100.100.100:29999", 1e6, True, True, 1e6, Processes(0, 512, 8, None, True))
    task = replace(TASK, report=Report(0, 2**50, 0.5, 1e-4, 1.5, "x" * 32, metrics, 2.5), rendezvous=meets)
    assert len(unpack_node(pack_node(replace(NODE, tasks=(task,) * 64))).tasks) == 64


def test_a_node_of_eight_cards_and_one_task_is_small():
    assert len(pack_node(NODE)) < 400


def test_a_loss_that_is_no_number():
    task = replace(TASK, progress=Progress("l", 7, math.nan, 1.0, 1.0))
    (back,) = unpack_node(pack_node(NodeNow("n", False, 2.0, (), (task,)))).tasks
    assert back.progress is not None and math.isnan(back.progress.value)


def test_more_tasks_than_fit():
    many = NodeNow("n", False, 2.0, (), (TASK,) * 2000)
    blob = pack_node(many)
    assert len(blob) <= BLOB_MAX and len(unpack_node(blob).tasks) > 100


def test_another_version_is_refused_by_name():
    with pytest.raises(BlobRefused, match="version 9"):
        unpack_node(msgpack.packb([9, "n", False, 2.0, [], []]))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw):
    with contextlib.suppress(BlobRefused):
        unpack_node(raw)


ANY = st.none() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5) | st.floats()


@given(st.lists(ANY | st.lists(ANY | st.lists(ANY, max_size=16), max_size=16), min_size=5, max_size=5))
def test_any_shape_is_read_or_refused(parts):
    with contextlib.suppress(BlobRefused):
        unpack_node(msgpack.packb([1, *parts]))


def test_numbers_out_of_range():
    with pytest.raises(BlobRefused):
        unpack_node(msgpack.packb([1, "n", False, 2.0, [["GPU-1", 1.0, math.inf, None, None]], []]))


def test_ages_grow_with_time():
    aged = NODE.aged(5.0).tasks[0]
    assert aged.progress is not None and aged.progress.age_s == 6.0 and aged.running_s == 66.5


def test_ranks_of_an_attempt_in_order():
    other = NodeNow("gpu-02", False, 2.0, (), (replace(TASK, rank=1),))
    (ranks,) = by_attempt([other, NODE]).values()
    assert [(node.node_id, task.rank) for node, task in ranks] == [("gpu-01", 0), ("gpu-02", 1)]


@given(st.binary(max_size=200))
def test_whose_a_blob_is_is_told_or_not_at_all(noise):
    assert claimed_node(pack_node(NODE)) == "gpu-01"
    assert claimed_node(noise) is None or isinstance(claimed_node(noise), str)


def test_a_desk_keeps_no_blob_of_another_node():
    desk = TelemetryDesk(StallLimits(180.0), 2.0)
    desk.take("gpu-02", pack_node(NODE))
    desk.take("gpu-01", b"\xc1")
    assert desk.blobs() == {} and desk.refused == 2
    desk.take("gpu-01", pack_node(NODE))
    assert list(desk.blobs()) == ["gpu-01"]


@pytest.mark.parametrize("report", [None, Report(0, 7)])
@pytest.mark.parametrize("meets", [None, RendezvousNow("10.0.0.1:20000", 4.0, True, None)])
@pytest.mark.parametrize("ended", [0, 3])
def test_how_many_ranks_are_over_stands_beside_everything_else(report, meets, ended):
    told = replace(NODE, tasks=(replace(TASK, report=report, rendezvous=meets, ended=ended),))
    assert unpack_node(pack_node(told)) == told
