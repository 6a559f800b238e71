"""gossip.json: what gossip must not forget over a restart."""

import json
import logging
import threading
import time
from pathlib import Path

from agentd.data_dir import write_durably
from mesh.core.swim import Heard
from mesh.gossip import Remembered

log = logging.getLogger(__name__)


class GossipFile:
    """Nothing but hints stand in it, so a damaged one is set aside and forgotten: the others tell a boot that fell."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: Remembered | None = None
        self._lock = threading.Lock()

    def next_life(self) -> Remembered:
        """What was remembered, with a boot above all before it; durable when this returns."""
        last = self._load()
        life = last._replace(boot=max(last.boot + 1, time.time_ns() // 1_000_000))
        self.keep(life)
        return life

    def keep(self, remembered: Remembered) -> None:
        """From any thread."""
        heard = [[each.sender, each.boot, each.seq] for each in remembered.heard]
        value = {"boot": remembered.boot, "members": remembered.members, "heard": heard}
        with self._lock:
            if remembered != self._kept:
                write_durably(self._path, json.dumps(value) + "\n")
                self._kept = remembered

    def _load(self) -> Remembered:
        try:
            value = json.loads(self._path.read_text())
            members = {str(name): str(address) for name, address in value["members"].items()}
            heard = [Heard(str(sender), int(boot), int(seq)) for sender, boot, seq in value["heard"]]
            return Remembered(int(value["boot"]), members, heard)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("%s is damaged (%s); gossip begins without it", self._path, error)
        return Remembered(0, {}, [])
