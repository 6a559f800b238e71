"""Drives the SWIM core (mesh/core/swim) over HTTP: one GossipDriver an agent."""

from mesh.gossip.batch import BODY_MAX, PATH, pack, unpack
from mesh.gossip.carrier import Answer, Carrier, HostRefused, NoAnswer
from mesh.gossip.driver import GossipDriver, Remembered
from mesh.gossip.http import HttpCarrier, ProvenResponse
from mesh.gossip.memory import MemoryNetwork
from mesh.gossip.view import UID_TAG, MemberView

__all__ = [
    "BODY_MAX",
    "PATH",
    "UID_TAG",
    "Answer",
    "Carrier",
    "GossipDriver",
    "HostRefused",
    "HttpCarrier",
    "MemberView",
    "MemoryNetwork",
    "NoAnswer",
    "ProvenResponse",
    "Remembered",
    "pack",
    "unpack",
]
