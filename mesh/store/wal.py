"""The write-ahead log of a database, copied back by ourselves: SQLite hides a failure of the automatic copy."""

import logging
from pathlib import Path

import apsw

from mesh.store.errors import DiskFailed

_logger = logging.getLogger("heteroflow.store")


def copy_back(connection: apsw.Connection, path: Path) -> None:
    """As far as readers allow; later where the disk is full. Raises DiskFailed."""
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    except (apsw.FullError, apsw.BusyError) as error:
        _logger.warning("%s: the WAL could not be copied back yet (%s)", path, error)
    except apsw.Error as error:
        raise DiskFailed(f"{path}: checkpoint failed ({error})") from error
