# Node.js and npm for the dashboard: the ones found, else Debian's. They are not in packages.txt since a machine may have
# newer ones from elsewhere, beside which Debian's npm can't be installed.
# shellcheck source-path=SCRIPTDIR shell=bash disable=SC2154 # root, setup and deps are set by those that source this
node_title() { echo "Node.js"; }
node_minimum=18 # client/web/package.json

node_ready() {
  local version
  command -v npm >/dev/null || return 1
  version=$(node --version 2>/dev/null) || return 1
  [[ $version =~ ^v([0-9]+)\. ]] && ((BASH_REMATCH[1] >= node_minimum))
}

node_make() {
  need_root "Node.js of version $node_minimum or newer, or npm, is missing"
  # shellcheck source=packages.sh
  source "$setup/packages.sh"
  apt_update
  apt_install nodejs npm
  hash -r
  node_ready || die "node in PATH is $(node --version), $node_minimum or newer is needed: put /usr/bin first or update it"
}
