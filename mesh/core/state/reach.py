"""At which of its addresses rank 0 was reached, by all ranks that tried: what their claims found, kept small."""

from typing import Any

from mesh.core.state.store import Row

NO_WAY = "rendezvous_unreachable"
# Of those told to people.
_FAULTS_KEPT = 8


def offer(group: Row, addresses: list[str] | None) -> None:
    """At the bind. addresses: of rank 0's node, in order of preference; None where nobody is to try them."""
    group.pop("reach", None)
    if addresses:
        group["reach"] = {"offered": list(addresses), "common": list(addresses), "heard": 0, "faults": []}


def note_reach(group: Row, rank: int, node: str, report: Row) -> None:
    """One rank's claim tried them; one that says nothing of it is of a version that does not try."""
    reach = group.get("reach")
    if reach is None or report.get("reached") is None:
        return
    reached = set(report["reached"])
    told = [{"rank": rank, "node": node, **fault} for fault in report.get("unreached") or ()]
    group["reach"] = {
        "offered": reach["offered"],
        "common": [address for address in reach["common"] if address in reached],
        "heard": reach["heard"] + 1,
        "faults": [*reach["faults"], *told][:_FAULTS_KEPT],
    }


def meeting_address(reach: Row | None) -> str | None:
    """The most preferred one that all reached; None where nobody tried."""
    return reach["common"][0] if reach is not None and reach["heard"] and reach["common"] else None


def no_way(reach: Row | None) -> str | None:
    """Why the ranks cannot meet, in a sentence; None where they can, or nobody tried."""
    if reach is None or not reach["heard"] or reach["common"]:
        return None
    return f"No address of rank 0's node was reached by every rank: {_told(reach['faults'])}."


def way_there(reach: Row | None) -> str:
    """For the timeline: why the ranks meet at another address than the preferred one."""
    chosen = meeting_address(reach)
    if reach is None or chosen is None or chosen == reach["offered"][0]:
        return ""
    better = reach["offered"][: reach["offered"].index(chosen)]
    faults = [fault for fault in reach["faults"] if fault["addr"] in better]
    return f" The ranks meet at {chosen}: {_told(faults) or 'others were not reached by all'}."


def blamed(group_nodes: tuple[str, ...], reach: Row) -> str:
    """The node that reached least, to be avoided at the next placement: rank 0's where others fail too."""
    ranks = {fault["rank"]: fault["node"] for fault in reach["faults"]}
    return str(next(iter(ranks.values()))) if len(ranks) == 1 else group_nodes[0]


def _told(faults: list[dict[str, Any]]) -> str:
    return "; ".join(f"rank {fault['rank']} on {fault['node']}: {fault['addr']} {fault['why']}" for fault in faults)
