# A virtual environment for set-up's own Python scripts and for tests of client/python, on Debian's Python.
# shellcheck shell=bash disable=SC2154 # root, setup and deps are set by those that source this
python_title() { echo "Python packages for the model import and the Python client"; }

python_ready() {
  [[ -x $deps/setup-venv/bin/python ]] && stamped python "$(fingerprint "$setup/requirements.txt")"
}

python_make() {
  local python=/usr/bin/python3
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    die "$python is not Python 3.11 or newer; Debian 12 has it: apt-get install python3 python3-venv"
  rm -rf "$deps/setup-venv"
  logged python-venv "no virtual environment could be made; try: apt-get install python3-venv" \
    "$python" -m venv "$deps/setup-venv"
  logged python "pip could not install $setup/requirements.txt; is the Python package registry reachable?" \
    "$deps/setup-venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off --no-deps \
    --only-binary=:all: --requirement "$setup/requirements.txt"
  stamp python "$(fingerprint "$setup/requirements.txt")"
}
