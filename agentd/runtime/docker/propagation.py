"""Whether a container can follow what is mounted later below a directory of the host."""

import os


def mount_propagation(source: str) -> str:
    """`rslave`, so that a share mounted again after a break is seen by running tasks. Where the host's own mounts are
    private, as without systemd, an engine refuses that, and nothing could come in anyway: `rprivate`."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return propagation_in(file.read(), os.path.realpath(source))


def propagation_in(mountinfo: str, path: str) -> str:
    """mountinfo: text of /proc/PID/mountinfo. The deepest mount counts, of several on one place the last."""
    best, kind = -1, "rprivate"
    for line in mountinfo.splitlines():
        before = line.partition(" - ")[0].split(" ")
        point = _unescaped(before[4])
        if path == point or path.startswith(point.rstrip("/") + "/"):
            passed_on = any(word.startswith(("shared:", "master:")) for word in before[6:])
            if len(point) >= best:
                best, kind = len(point), "rslave" if passed_on else "rprivate"
    return kind


def _unescaped(text: str) -> str:
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(octal, character)
    return text
