# Debian packages, from packages.txt.
# shellcheck shell=bash disable=SC2154 # root, setup and deps are set by those that source this
packages_title() { echo "Debian packages"; }

# Names of packages.txt that are not installed, one a line.
missing_packages() {
  local wanted
  wanted=$(grep -v '^#' "$setup/packages.txt" | sort)
  # shellcheck disable=SC2016 # dpkg-query's own variables
  comm -23 <(printf '%s\n' "$wanted") \
    <(xargs dpkg-query -W -f '${db:Status-Status} ${Package}\n' <<<"$wanted" 2>/dev/null | sed -n 's/^installed //p' | sort)
}

packages_ready() {
  command -v dpkg-query >/dev/null || die "this is not Debian; install what deploy/setup/packages.txt names by hand, then use --only for the other steps"
  [[ -z $(missing_packages) ]]
}

packages_make() {
  local missing
  mapfile -t missing < <(missing_packages)
  say "  missing: ${missing[*]}"
  need_root "Debian packages are missing (${missing[*]})"
  apt_update
  apt_install "${missing[@]}"
}

# A list of somebody else's that can't be read is no reason to stop: what is missing shows when it is installed.
apt_update() {
  run_logged packages-update as_root apt-get -q -o DPkg::Lock::Timeout=300 update ||
    warn "not every list of packages could be read; going on with what is known"
}

# apt_install PACKAGE… — installs without questions and without starting a daemon: dexd starts its own Redis, and a
# Prometheus when it is asked to.
apt_install() {
  local policy=/usr/sbin/policy-rc.d daemons=() unit
  for unit in redis-server prometheus; do
    [[ " $* " != *" $unit "* ]] || daemons+=("$unit")
  done
  [[ -e $policy ]] || {
    trap 'as_root rm -f /usr/sbin/policy-rc.d; stop_child' EXIT
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod +x "$policy"
  }
  logged packages "Debian packages could not be installed; try: sudo apt-get install $*" \
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
    --no-install-recommends install "$@"
  if ((${#daemons[@]})) && [[ -d /run/systemd/system ]]; then
    as_root systemctl --quiet disable "${daemons[@]}" || warn "${daemons[*]} will start with the machine"
  fi
}
