"""When people are told of a node's certificate: where it is near its end although it renews itself long before."""

from dataclasses import dataclass

WARN_BELOW = 1 / 3
CRITICAL_BELOW_S = 3 * 86_400.0
TEXT_MAX = 200


@dataclass(frozen=True, slots=True)
class CertificateNow:
    """left_s: until it ends. trouble: why it was not renewed, "" where that is not known."""

    left_s: float
    trouble: str = ""

    @property
    def level(self) -> str:
        return "critical" if self.left_s < CRITICAL_BELOW_S else "warning"

    @property
    def text(self) -> str:
        left = "has expired" if self.left_s <= 0 else f"ends in {_span(self.left_s)}"
        why = f" and could not be renewed: {self.trouble}" if self.trouble else " and was not renewed"
        return f"its certificate {left}{why}"


def worth_telling(left: float, left_s: float, trouble: str) -> CertificateNow | None:
    """left: the share of its life that is left."""
    return CertificateNow(left_s, trouble[:TEXT_MAX]) if left < WARN_BELOW else None


def _span(seconds: float) -> str:
    if seconds >= 2 * 86_400:
        return f"{seconds / 86_400:.0f} days"
    return f"{seconds / 3600:.0f} hours" if seconds >= 2 * 3600 else f"{seconds / 60:.0f} minutes"
