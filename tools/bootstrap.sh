#!/bin/sh
# Finds a Python that can run the course and hands over to bootstrap.py. Shell, because there may be no Python at all.
# PYTHON=/path/to/python chooses one; VENV=dir puts the environment elsewhere.
cd "$(dirname "$0")/.." || exit 1

# Asked by running it: a pyenv shim exists and fails, a system's python3 may be old.
fits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

if [ -n "$PYTHON" ]; then
    if ! fits "$PYTHON"; then
        echo "PYTHON=$PYTHON does not run, or is older than Python 3.11. Give another, or leave PYTHON out." >&2
        exit 75
    fi
    PYTHON_CHOSEN=1
else
    for candidate in python3 python3.13 python3.12 python3.11 python3.14 python \
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[1-9]*/bin/python; do
        if fits "$candidate"; then PYTHON=$candidate; break; fi
    done
fi
if [ -z "$PYTHON" ]; then
    cat >&2 <<END
This course needs Python 3.11 or newer; none was found (python3 here: $(python3 --version 2>&1 | head -n 1)).
  Debian or Ubuntu:  sudo apt install python3 python3-venv
  macOS:             brew install python
  conda:             conda env create -f environment.yml
If you have one in an unusual place:  make PYTHON=/path/to/python lab
END
    exit 75
fi
# Whoever has put one first in PATH expects it to be taken, and one that is old was passed over as it should be.
if [ -z "$PYTHON_CHOSEN" ] && command -v python3 >/dev/null && ! python3 -c '' 2>/dev/null; then
    echo "$(command -v python3) does not start, so $PYTHON is taken: $(python3 -c '' 2>&1 | tail -n 1)" >&2
fi
export PYTHON_CHOSEN
exec "$PYTHON" tools/bootstrap.py "$@"
