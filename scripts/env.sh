# Sourced by the other scripts: `heteroflow_env try|dev` makes or re-uses the virtual environment and puts it first.
# HETEROFLOW_VENV names another place than .venv; PYTHON names the interpreter that makes it.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

_say() { printf '%s\n' "$*" >&2; }

_find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11; do
        [ -n "$candidate" ] || continue
        if command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return 0
        fi
    done
    _say "No Python 3.11 or newer was found. Install one (Debian: apt-get install python3 python3-venv), or name it: PYTHON=/path/to/python $0"
    return 1
}

_install() {
    local want="$1" venv="$2" python
    # Without pip it is none, or one whose making was interrupted.
    if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        python="$(_find_python)" || return 1
        _say "making the virtual environment $venv"
        if ! mkdir -p "$venv" || [ ! -w "$venv" ]; then
            _say "$venv cannot be written. Name another place: HETEROFLOW_VENV=/path/to/venv $0"
            return 1
        fi
        if ! "$python" -m venv "$venv"; then
            _say "$python cannot make virtual environments. Debian: apt-get install python3-venv"
            return 1
        fi
    fi
    _say "installing packages into $venv (once; later runs re-use it)"
    PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INPUT=1 \
        "$venv/bin/python" -m pip install --quiet --editable "$ROOT[$want]" || {
        _say "The packages could not be installed: pip needs to reach a package index. What pip said is above."
        return 1
    }
}

heteroflow_env() {
    local want="$1" venv="${HETEROFLOW_VENV:-$ROOT/.venv}" hash stamp
    hash="$(cksum <"$ROOT/pyproject.toml" | tr ' ' -)"
    stamp="$(cat "$venv/.heteroflow-stamp" 2>/dev/null || true)"
    # What dev installs is enough for try. HETEROFLOW_INSTALL=never takes an environment as it is.
    if [ "${HETEROFLOW_INSTALL:-}" != never ] && [ "$stamp" != "dev $hash" ] && [ "$stamp" != "$want $hash" ]; then
        _install "$want" "$venv" || return 1
        printf '%s %s\n' "$want" "$hash" >"$venv/.heteroflow-stamp"
    fi
    PATH="$venv/bin:$PATH"
    # The code of this checkout runs, also where HETEROFLOW_VENV was made for another one.
    PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}"
    export PATH PYTHONPATH
}
