#!/usr/bin/env bash
# Puts the HeteroFlow agent on this host, brings another version, or takes it away. One command a host:
#
#   ./install.sh --bootstrap --voters 3                          the first host, which founds the mesh
#   ./install.sh --join HOST:PORT --token-file FILE              every other host
#   ./install.sh upgrade                                         the version of this bundle; running tasks go on
#   ./install.sh uninstall [--purge] [--force]                   keeps configuration and data unless --purge
#
# From a bundle (scripts/bundle) it needs no network, from a checkout an index for pip. PYTHON names the interpreter
# (3.11 or newer); --help says the rest.
set -euo pipefail
here="$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)"
# In a checkout this file is below scripts/, in a bundle beside it.
[ -d "$here/scripts/installer" ] || here="$(dirname "$here")"

for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
    [ -n "$candidate" ] || continue
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python="$(command -v "$candidate")"
        break
    fi
done
if [ -z "${python:-}" ]; then
    echo "install.sh: no Python 3.11 or newer was found; install one (Debian: apt-get install python3), or name it: PYTHON=/path/to/python $0" >&2
    exit 1
fi
# -I: nothing of the caller's environment or directory is imported. -B: a bundle may be read-only.
exec "$python" -I -B -c 'import pathlib, sys
sys.path.insert(0, sys.argv[1])
from scripts.installer.cli import main
sys.exit(main(sys.argv[2:], pathlib.Path(sys.argv[1])))' "$here" "$@"
