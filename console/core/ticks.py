"""Numbers on axes: steps of 1, 2 and 5, in as few characters as tell them apart."""

import math


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round values within [low, high], at most `most` of them."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low or most < 1:
        return [low] if math.isfinite(low) else []
    rough = (high - low) / most
    if 0 < rough < 1e-300:
        return [low]  # a power of ten below it is no number
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    step = next((factor * power for factor in (1, 2, 5, 10) if factor * power >= rough), 10 * power)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [at * step for at in range(first, min(last, first + 10_000) + 1)]


def short(value: float) -> str:
    """12000 -> 12k, 3400000 -> 3.4M."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "inf"
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.4g}"


def value_label(value: float, span: float) -> str:
    """At most 8 characters, with as many decimals as the span needs."""
    if not math.isfinite(value):
        return "NaN"
    if value and (abs(value) >= 100_000 or abs(value) < 0.0005):
        return f"{value:.1e}"
    decimals = 0 if span <= 0 else min(max(1 - math.floor(math.log10(span)), 0), 4)
    return f"{value:,.{decimals}f}"
