"""What a member is told about itself at its start."""

from __future__ import annotations

from dataclasses import dataclass

from mesh.core.swim.errors import ConfigRefused
from mesh.core.swim.limits import BOOT_MAX, SEEDS_MAX
from mesh.core.swim.profile import LAN, Profile
from mesh.core.swim.update import Meta, address_refusal, meta_refusal
from schemas.ids import node_id_refusal, segment_refusal


@dataclass(frozen=True, slots=True)
class Config:
    """boot: above that of every earlier life of this node, for example the start in Unix milliseconds; replay.py says
    what happens where it is not. seeds: HOST:PORT asked by a member that knows nobody. Raises ConfigRefused."""

    name: str
    mesh: str
    meta: Meta
    boot: int
    profile: Profile = LAN
    seeds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        refusals = [
            node_id_refusal(self.name) or "",
            segment_refusal(self.mesh, "mesh") or "",
            meta_refusal(self.meta),
            seeds_refusal(self.seeds),
            "" if 0 <= self.boot < BOOT_MAX else f"boot {self.boot} is out of range",
        ]
        if why := next(filter(None, refusals), ""):
            raise ConfigRefused(why)


def seeds_refusal(seeds: tuple[str, ...]) -> str:
    """Why these are not asked, or ''."""
    if len(seeds) > SEEDS_MAX:
        return f"{len(seeds)} seeds; at most {SEEDS_MAX} are asked"
    return next(filter(None, map(address_refusal, seeds)), "")
