"""Every error the SWIM core raises.

SwimError
  ConfigRefused   (also ValueError) a name, address, seed or metadata of this node may not be used: refuse to start
  WireError       (also ValueError) bytes from another member are not a packet; Swim.receive counts it, no more
    Truncated     they end before the packet does
    Oversized     they are more than a packet may have
"""


class SwimError(Exception):
    """Base of everything the core raises."""


class ConfigRefused(SwimError, ValueError):
    """Raised when this node's own settings may not be used. The text says which and why."""


class WireError(SwimError, ValueError):
    """Raised when bytes do not have the shape of a packet. counted: under which name."""

    counted = "malformed"


class Truncated(WireError):
    """Raised when bytes end in the midst of a packet."""

    counted = "truncated"


class Oversized(WireError):
    """Raised when bytes are more than a packet of that kind may have."""

    counted = "oversized"
