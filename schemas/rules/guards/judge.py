"""What the guards of a command share: the shape they judge against, and the findings they make."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.errors import Finding
from schemas.rules.environment import PER_PROCESS_NAMES, PLATFORM_NAMES
from schemas.rules.guards.calls import Call
from schemas.rules.guards.words import Unknowns, is_known

COMMAND = "task.command"
CONTRADICTION = "launch_contradiction"
SPLIT = "split_world"
# A node's own place, right on every node.
NODE_RANK_NAMES = frozenset(("NODE_RANK", "PET_NODE_RANK", "PADDLE_RANK"))
_ADDRESS_NAMES = frozenset(("MASTER_ADDR", "PET_MASTER_ADDR", "PADDLE_MASTER"))
_WHOLE = re.compile(r"[0-9]{1,9}\Z")
_CARD_LIST = re.compile(r"[0-9]+(?:,[0-9]+)*\Z")
_SIGNED = re.compile(r"[+-]?[0-9]{1,9}\Z")
_LOOPBACK = re.compile(
    r"(?:localhost(?:\.localdomain)?|127(?:\.[0-9]{1,3}){1,3}|::1|\[::1\]|0\.0\.0\.0|0)\Z", re.IGNORECASE
)
# What each node calls itself.
_OWN = re.compile(r"HOSTNAME\Z|POD_IP\Z|(?:\$\(|`)\s*(?:hostname|uname\s+-n)\b")
_PLATFORM = frozenset(PLATFORM_NAMES) | {"PADDLE_MASTER", "PADDLE_RANK", "PADDLE_NNODES", "MEGATRON_TP_PP_ARGS"}


@dataclass(frozen=True, slots=True)
class Shape:
    """framework: "" where it is refused or missing; counts: None where they are."""

    framework: str
    nodes: int | None
    cards: int | None
    image: bool = False

    @property
    def several(self) -> bool:
        return self.nodes is not None and self.nodes > 1

    @property
    def world(self) -> int | None:
        return None if self.nodes is None or self.cards is None else self.nodes * self.cards


@dataclass(slots=True)
class Judge:
    shape: Shape
    unknowns: Unknowns
    env: Mapping[str, str]
    errors: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)

    def refuse(self, code: str, said: str, hint: str, path: str = COMMAND) -> None:
        self._add(self.errors, code, path, said, hint)

    def warn(self, code: str, said: str, hint: str, path: str = COMMAND) -> None:
        self._add(self.warnings, code, path, said, hint)

    def _add(self, found: list[Finding], code: str, path: str, said: str, hint: str) -> None:
        finding = Finding(code, path, f"{path} {said}", hint)
        if finding not in found:
            found.append(finding)

    def shown(self, text: str) -> str:
        return self.unknowns.shown(text) or "(nothing)"

    def number(self, call: Call, spelled: str, value: str, mean: str) -> int | None:
        """A whole number, None where it is none or cannot be known; both are told. mean: the right text to write."""
        if is_known(value):
            if _WHOLE.match(value):
                return int(value)
            if not call.expanded and "$" in value:
                self._unexpanded(spelled, value)
            elif not _SIGNED.match(value):
                said = f"says {spelled}={self.shown(value)}, which is no whole number"
                self.refuse(CONTRADICTION, said, f"Write {spelled}={mean}, or leave it out.")
            else:
                return int(value)
            return None
        self.unknown(spelled, value, mean)
        return None

    def _unexpanded(self, spelled: str, value: str) -> None:
        said = (
            f"says {spelled}={self.shown(value)} in a list, which no shell reads: the launcher gets the $ as it stands"
        )
        self.refuse("not_expanded", said, "Write the command as one text instead of a list, or leave the option out.")

    def unknown(self, spelled: str, value: str, mean: str) -> None:
        names = self.unknowns.names(value)
        if lost := next((name for name in names if name in PER_PROCESS_NAMES), None):
            said = (
                f"says {spelled}={self.shown(value)}, but ${lost} is set by the launcher for each process, on no node"
            )
            self.refuse(CONTRADICTION, said, f"Write {spelled}={mean}, or leave it out.")
        elif strange := [name for name in names if name not in _PLATFORM]:
            variables = [f"${name}" for name in strange if re.fullmatch(r"\w+", name)]
            said = f"says {spelled}={self.shown(value)}, which cannot be known before it runs"
            if variables:
                said += f": {', '.join(map(self.shown, variables))} is set by the image, the script, or nobody"
            if likely := self.unknowns.default(value):
                said += f", and where it is nobody it is {self.shown(likely)}"
            self.warn("unknown_value", said, f"Write {spelled}={mean}, or leave it out.")

    def rank(self, call: Call, spelled: str, value: str, mean: str, ignored: str = "") -> None:
        """ignored: why a value does no harm."""
        names = self.unknowns.names(value)
        if names and set(names) <= NODE_RANK_NAMES:
            return
        number = self.number(call, spelled, value, mean)
        if number is None:
            return
        if self.shape.several and ignored:
            self.warn("rank_order", f"says {spelled}={number}, {ignored}", f"Remove {spelled}.")
        elif self.shape.several and call.conditional:
            said = f"says {spelled}={number} in a branch; whether each node takes its own cannot be known"
            self.warn("unknown_value", said, f"Write {spelled}={mean}.")
        elif self.shape.several:
            said = f"says {spelled}={number}, the same on every node; each needs its own"
            self.refuse(CONTRADICTION, said, f"Remove {spelled}, or write {spelled}={mean}.")
        elif self.shape.nodes == 1 and number != 0:
            said = f"says {spelled}={number}, but the only node has rank 0: it would wait for a rank 0 for ever"
            self.refuse(CONTRADICTION, said, f"Remove {spelled}.")

    def count(
        self, call: Call, spelled: str, value: str, right: int | None, field_name: str, why: str, mean: str
    ) -> None:
        """An option that must say a number of the shape. right: None where the shape is not known."""
        if right is not None and self.unknowns.default(value) == str(right):
            return
        number = self.number(call, spelled, value, mean)
        if number is not None and right is not None and number != right:
            said = f"says {spelled}={number}, but {field_name} is {right}{why}"
            self.refuse(CONTRADICTION, said, f"Remove {spelled}, or write {spelled}={mean}.")

    def address(self, spelled: str, value: str) -> None:
        """HOST or HOST:PORT of the first node."""
        if not self.shape.several or not value:
            return
        host, port = _host_and_port(value)
        if not is_known(host) and all(map(_OWN.match, self.unknowns.names(host))):
            said = f"says {spelled}={self.shown(value)}: on every node that is the node itself, which would wait alone"
            self.refuse(SPLIT, said, f"Write {spelled} with $MASTER_ADDR, or leave it out.")
        elif is_loopback(value):
            said = f"says {spelled}={self.shown(value)}: on {self.shape.nodes} nodes each would wait for itself"
            self.refuse(SPLIT, said, f"Write {spelled} with $MASTER_ADDR, or leave it out.")
        elif is_known(host) and host:
            said = f"says {spelled}={self.shown(value)}, but which node has rank 0 is known only when the group starts"
            self.warn("fixed_address", said, "Write $MASTER_ADDR.")
        elif not is_known(host) and not set(self.unknowns.names(host)) & _ADDRESS_NAMES:
            self.unknown(spelled, host, "$MASTER_ADDR")
        if port is not None:
            self.port(spelled, port)

    def cards(self, spelled: str, value: str) -> None:
        """A list of cards of one node: `0,1,2,3`."""
        if _CARD_LIST.match(value) and self.shape.cards is not None and value.count(",") + 1 != self.shape.cards:
            said = f"says {spelled}={self.shown(value)}, but training.per_node_gpu is {self.shape.cards}"
            self.refuse(CONTRADICTION, said, f"Remove {spelled}: the platform names the cards.")

    def port(self, spelled: str, value: str) -> None:
        if self.shape.several and is_known(value) and _WHOLE.match(value):
            said = f"says {spelled} with the port {value}, which another group may hold on that node"
            self.warn("fixed_port", said, "Write $MASTER_PORT, which is free on rank 0's node, new in every attempt.")


def is_loopback(value: str) -> bool:
    """Of HOST or HOST:PORT."""
    host, _ = _host_and_port(value)
    return is_known(host) and _LOOPBACK.match(host) is not None


def _host_and_port(value: str) -> tuple[str, str | None]:
    if value.startswith("["):
        host, _, rest = value.partition("]")
        return host + "]", rest[1:] if rest.startswith(":") else None
    if value.count(":") == 1:
        host, _, port = value.partition(":")
        return host, port
    return value, None
