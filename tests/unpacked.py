"""Archives of test data, unpacked."""

import tarfile
from pathlib import Path


def unpack(archive: Path, place: Path) -> None:
    with tarfile.open(archive) as opened:
        # The first releases of Python 3.11, as Debian 12 has, know no filter and no argument for one.
        opened.extraction_filter = getattr(tarfile, "data_filter", None)
        opened.extractall(place)
