# The dashboard's packages, exactly those of client/web/package-lock.json. Their install scripts don't run: none is needed.
# shellcheck shell=bash disable=SC2154 # root, setup and deps are set by those that source this
web_title() { echo "packages of the dashboard (25 MB to fetch)"; }

web_home=$root/client/web
web_stamp() { cat "$web_home/node_modules/.made-from" 2>/dev/null || true; }

# They lie in the checkout, so the stamp does too: several checkouts may share .deps.
web_ready() {
  [[ -f $web_home/node_modules/.package-lock.json && $(web_stamp) == "$(fingerprint "$web_home/package-lock.json")" ]]
}

web_make() {
  logged web "npm could not install $web_home/package-lock.json; is its package registry reachable?" \
    npm --prefix "$web_home" ci --ignore-scripts --no-audit --no-fund
  fingerprint "$web_home/package-lock.json" >"$web_home/node_modules/.made-from"
}
