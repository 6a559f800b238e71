"""Tells the mesh what this host is; nothing is reconciled before the mesh has heard it."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from agentd.config import ConfigError
from agentd.reporter import Proposer
from schemas.errors import HeteroFlowError

log = logging.getLogger(__name__)
_RETRY_MIN_S, _RETRY_MAX_S = 0.1, 2.0
_LOOK_S = 1.0


async def register(mesh: Proposer, facts: dict[str, Any]) -> int:
    """The log index of the registration. `facts`: the whole RegisterNode command. Raises ConfigError when refused."""
    pause_s, said = _RETRY_MIN_S, ""
    while True:
        try:
            outcome = await mesh.propose(facts)
        except (HeteroFlowError, OSError, TimeoutError) as error:
            if str(error) != said:
                said = str(error)
                log.warning("not registered yet: %s", said)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _RETRY_MAX_S)
            continue
        if not outcome["ok"]:
            raise ConfigError(f"the mesh refuses this node ({outcome['code']}): {outcome['text']}")
        log.info("registered", extra={"index": outcome["idx"], "state": outcome["data"].get("state")})
        return int(outcome["idx"])


async def keep_registered(mesh: Proposer, facts: Callable[[], dict[str, Any]], told: dict[str, Any]) -> None:
    """Registers again whenever the facts are others than those told: an entry of the log a change, none in between."""
    while True:
        await asyncio.sleep(_LOOK_S)
        if (now := facts()) == told:
            continue
        try:
            outcome = await mesh.propose(now)
        except (HeteroFlowError, OSError, TimeoutError) as error:
            log.warning("the mesh has not heard yet what changed here: %s", error)
            continue
        if not outcome["ok"]:
            log.warning("the mesh refuses what changed here: %s", outcome["text"], extra={"code": outcome["code"]})
        told = now
