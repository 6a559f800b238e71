"""Figures for people, as rough as what they come from: two digits and one unit."""

_TIMES = ((86_400, 2 * 86_400, "days"), (3600, 100 * 60, "h"), (60, 100, "min"))
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def rough(value: float) -> float:
    """Two significant digits. value: not negative, finite."""
    return float(f"{value:.2g}")


def rough_time(seconds: float) -> str:
    """`25 min`: a unit begins where two digits of the smaller one end."""
    unit, name = next(((one, name) for one, least, name in _TIMES if seconds >= least), (1, "s"))
    return f"{rough_text(seconds / unit)} {name}"


def rough_size(size: float) -> str:
    """`41 GiB`."""
    unit, name = next(((one, name) for one, name in _SIZES if size >= one), (1, "B"))
    return f"{rough_text(size / unit)} {name}"


def rough_text(value: float) -> str:
    """`4.2`, `120`, `3,400`."""
    said = rough(value)
    return f"{said:,.0f}" if said >= 10 else f"{said:g}"
