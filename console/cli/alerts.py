"""heteroflow alerts"""

import argparse
from typing import TYPE_CHECKING

from console.cli.terminal import Terminal
from console.cli.verb import Verb
from console.core.format import age, moment_ms, text_or_dash
from schemas.api import Alert

if TYPE_CHECKING:
    from console.client import MeshClient

_HEAD = ("LEVEL", "RULE", "ON", "SINCE", "WHAT")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state", choices=("raised", "cleared", "all"), default="raised", help="cleared: of the last hour (raised)"
    )


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    params = {"state": args.state}
    alerts: list[Alert] = []
    while True:
        answer = await client.read("/api/v1/alerts", params)
        alerts += answer.value["alerts"]
        if answer.value.get("cursor") is None:
            break
        params["cursor"] = str(answer.value["cursor"])
    if args.output == "json":
        terminal.json({"alerts": alerts})
    elif not alerts:
        terminal.note("no alert stands" if args.state == "raised" else "there is no alert")
    else:
        terminal.table(_HEAD, [_row(alert, answer.now_ms) for alert in alerts], right=("SINCE",))
        # Each advice once, below: in a column it would be cut off.
        for advice in dict.fromkeys((alert["rule"], alert["advice"]) for alert in alerts if alert["advice"]):
            terminal.note(f"{advice[0]}: {advice[1]}")
    return 0


def _row(alert: Alert, now_ms: int) -> tuple[str, ...]:
    cleared = " (cleared)" if alert["state"] == "cleared" else ""
    return (
        alert["level"],
        alert["rule"],
        alert["group_id"] or text_or_dash(alert["node_id"]),
        age(moment_ms(alert["since"]), now_ms),
        alert["text"] + cleared,
    )


VERB = Verb(_add_arguments, _run)
