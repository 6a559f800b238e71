"""Every error the stores raise.

StoreError
  DirectoryRefused   the directory is another cluster's, newer or owned by another user: nothing was touched
    DirectoryInUse   another process has it now; it may be on its way to its end
  LogDamaged         the log is torn, flipped or shortened: this voter must not vote with it
  DiskFull           the disk took nothing of this write; it was rolled back and may be tried again later
  DiskFailed         an I/O error or failed fsync: what is on the disk is unknown, the process must end
"""

from __future__ import annotations


class StoreError(Exception):
    """Base of everything the stores raise on purpose."""


class DirectoryRefused(StoreError):
    """Raised before anything was written when the directory must not be used by this process."""


class DirectoryInUse(DirectoryRefused):
    """Raised when another process holds the directory's lock; starting again later may help."""


class LogDamaged(StoreError):
    """Raised on open when the log cannot be trusted. The message names file, index, meaning and the way back."""


class DiskFull(StoreError):
    """Raised when a transaction did not fit on the disk. Nothing of it is stored."""


class DiskFailed(StoreError):
    """Raised when the disk failed; retrying an fsync could acknowledge what was never stored."""
