"""Sizes on the wire, each with its reason. What is larger is refused when parsed, before anything is kept."""

from schemas.ids import NODE_ID_MAX, SEGMENT_MAX

PACKET_MAX = 4 * 1024
"""Bytes of a packet with piggybacked updates: about thirty updates. TCP carries it, so no MTU bounds it; a gossip round
of three packets stays within what a fresh connection sends without waiting."""
SYNC_MAX = 512 * 1024
"""Bytes of a full state: 4,096 members at the typical 120 bytes. Half of aiohttp's limit for a body (1 MiB)."""
MEMBERS_MAX = 4_096
"""Members remembered, the dead ones too: three times the largest mesh planned (1,250 hosts)."""
UPDATES_MAX = MEMBERS_MAX + 1

NODE_MAX = NODE_ID_MAX
MESH_MAX = SEGMENT_MAX
ADDRESSES_MAX = 4  # a host with two networks, each with IPv4 and IPv6
ADDRESS_MAX = NODE_MAX + 6  # a host name, a colon, a port
VERSION_MAX = 32
TAGS_MAX = 8
TAG_NAME_MAX = 32
TAG_VALUE_MAX = 128
META_MAX = 512
"""Bytes of a member's metadata. Cards, labels and images go through the log, never through gossip."""
SEEDS_MAX = 16

INCARNATION_MAX = 1 << 62
INCARNATION_JUMP_MAX = 1 << 20
"""An incarnation rises by one a refutation. A larger jump is a lie that would run the owner out of numbers."""
BOOT_MAX = 1 << 62
SEQ_MAX = 1 << 62
NUMBER_MAX = 1 << 48  # of a probe
WAIT_MAX_MS = 60_000
AGE_MAX_S = 31 * 24 * 3600

REPLAY_WINDOW = 1_024
"""Packets of one sender that may arrive out of order: requests run side by side, and a burst is a few hundred."""
RELAYS_MAX = 256
"""Indirect probes one member carries for others at once. Asked for more it stays silent, as a loaded host would."""

_OVERHEAD = 200
"""Envelope and message besides the names in them: marks, boot, seq, number, wait."""
UPDATE_MAX = NODE_MAX + META_MAX + NODE_MAX + 40


def packet_holds_an_update() -> bool:
    """The longest ping-req leaves room for two of the longest updates: one for the buddy, one of the queue."""
    return _OVERHEAD + MESH_MAX + 3 * NODE_MAX + 2 * UPDATE_MAX <= PACKET_MAX
