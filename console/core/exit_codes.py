"""Exit codes of `heteroflow`: part of its interface, listed in docs/cli.md."""

OK = 0
GROUP_FAILED = 1
USAGE = 2
NOT_FOUND = 3
NO_NODE = 4
REFUSED = 5
GROUP_STOPPED = 6
OUTPUT_LOST = 74  # EX_IOERR
INTERRUPTED = 130
BROKEN_PIPE = 141

RESULTS = {"completed": OK, "failed": GROUP_FAILED, "stopped": GROUP_STOPPED}


def of_status(http_status: int) -> int:
    if http_status == 404:
        return NOT_FOUND
    if http_status in (400, 413, 415, 422):
        return USAGE
    return NO_NODE if http_status >= 500 else REFUSED
