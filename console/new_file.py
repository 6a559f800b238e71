"""A file that was made under another name gets its own, never over one that is there."""

import errno
import os
from pathlib import Path

from schemas.rules.target_path import NO_SECOND_NAME


def give_name(made: Path, name: Path) -> None:
    """Raises FileExistsError, OSError."""
    try:
        os.link(made, name)
    except OSError as error:
        if error.errno not in NO_SECOND_NAME:
            raise
        # Not in one step: there is none that spares a file which comes this very moment.
        if os.path.lexists(name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(name)) from error
        os.rename(made, name)
    else:
        os.unlink(made)
