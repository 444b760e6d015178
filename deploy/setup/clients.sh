# The official openai package, with which tests/e2e talks to the platform. Neither product nor build needs it.
# shellcheck shell=bash disable=SC2154 # root, setup and deps are set by those that source this
clients_title() { echo "clients that the tests use (openai's Python package)"; }

clients_ready() {
  [[ -x $deps/clients-venv/bin/python ]] && stamped clients "$(fingerprint "$setup/clients.txt")"
}

clients_make() {
  rm -rf "$deps/clients-venv"
  logged clients-venv "no virtual environment could be made; try: apt-get install python3-venv" \
    /usr/bin/python3 -m venv "$deps/clients-venv"
  logged clients "pip could not install $setup/clients.txt; is the Python package registry reachable?" \
    "$deps/clients-venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off --no-deps \
    --only-binary=:all: --require-hashes --requirement "$setup/clients.txt"
  stamp clients "$(fingerprint "$setup/clients.txt")"
}
