"""What a node certificate says: the mesh, the node, and whether it votes.

As URIs in its alternative names: `heteroflow://CLUSTER/node/NAME`, and for a voter `heteroflow://CLUSTER/voter/NAME`
beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.ids import node_id_refusal, segment_refusal

SCHEME = "heteroflow://"


class NotANode(ValueError):
    """Raised for names that no certificate of a mesh carries."""


@dataclass(frozen=True, slots=True)
class NodeName:
    cluster_id: str
    node: str
    voter: bool = False

    def uris(self) -> tuple[str, ...]:
        roles = ("node", "voter") if self.voter else ("node",)
        return tuple(f"{SCHEME}{self.cluster_id}/{role}/{self.node}" for role in roles)

    @staticmethod
    def from_uris(uris: Sequence[str]) -> NodeName:
        """Raises NotANode unless they name exactly one node of one mesh."""
        names: dict[str, tuple[str, str]] = {}
        for uri in uris:
            cluster, _, rest = uri.removeprefix(SCHEME).partition("/")
            role, _, node = rest.partition("/")
            if not uri.startswith(SCHEME) or role not in ("node", "voter") or role in names:
                raise NotANode(f"{uri[:200]!r} is no name of a node")
            if segment_refusal(cluster) is not None or node_id_refusal(node) is not None:
                raise NotANode(f"{uri[:200]!r} is no name of a node")
            names[role] = (cluster, node)
        if "node" not in names or len(set(names.values())) != 1:
            raise NotANode("a node certificate names one node of one mesh")
        cluster, node = names["node"]
        return NodeName(cluster, node, voter="voter" in names)
