# clang-tidy over our own sources, for deploy/check --tidy. Sourced, not run.
# shellcheck shell=bash disable=SC2154 # root, deps and setup_first are set by deploy/check

# Debian 12's standard one, 14, refuses C++20 that GCC 12 compiles: structured bindings in lambdas, aggregates in parentheses.
tidy_version=16

# tidy_install — has clang-tidy installed, or dies.
tidy_install() {
  local package=clang-tidy-$tidy_version
  ! command -v "run-$package" >/dev/null || return 0
  $setup_first || die "$package is missing; try: sudo apt-get install $package"
  need_root "$package is missing"
  # shellcheck source=setup/packages.sh
  source "$root/deploy/setup/packages.sh"
  say "installing $package"
  apt_update
  apt_install "$package"
}

# tidy_sources FOLDER REGEX — checks the sources whose path below the repository matches, by the compiler's calls of a
# configured folder. Shows each finding once and fails when one is a fault (WarningsAsErrors in .clang-tidy).
tidy_sources() {
  local tree=$1 wanted=$2 log=$deps/log/tidy.log headers here findings status=0
  tidy_install
  # Sources include what protoc makes.
  mapfile -t headers < <(ninja -C "$tree" -t targets all | sed -n 's/^\([^/].*\.pb\.h\): .*/\1/p')
  build_tree "$tree" "${headers[@]}"
  say "clang-tidy on ${wanted:-all sources} with $(nproc) processes"
  here=$(sed 's/[][\.*^$+?(){}|]/\\&/g' <<<"$root")
  run_logged tidy "run-clang-tidy-$tidy_version" -quiet -clang-tidy-binary "clang-tidy-$tidy_version" -p "$tree" \
    -j "$(nproc)" "^$here/(?=.*($wanted))(services|scheduler|worker|client|deploy)/" || status=$?
  [[ -s $log ]] || die "no source's path matches $wanted"
  findings=$(grep -E '^/.*:[0-9]+: (warning|error): ' "$log" | sort -u) || true
  [[ -z $findings ]] || printf '%s\n' "${findings//"$root/"/}"
  say "$(grep -c . <<<"$findings" || true) findings; with the lines that they mean: $log"
  return "$status"
}
