# Shared by deploy/setup/*, deploy/check and deploy/quickstart. Sourced, not run.
# Callers set `root` (the repository) and `said_by` (what starts each line).
# shellcheck shell=bash disable=SC2154 # root and said_by

deps=${DEX_DEPS_DIR:-$root/.deps}
child=   # process of logged(), ended with us

say() { printf '%s: %s\n' "$said_by" "$*"; }
warn() { printf '%s: warning: %s\n' "$said_by" "$*" >&2; }
# Ends the run. One sentence: what is missing or wrong, then how to get it.
die() {
  printf '%s: error: %s\n' "$said_by" "$*" >&2
  exit 1
}

stop_child() { [[ -z $child ]] || kill "$child" 2>/dev/null || true; }

# run_logged NAME COMMAND… — runs COMMAND with its output in .deps/log/NAME.log and a sign of life every 20 s.
# If it fails, shows the log's end and returns its status.
run_logged() {
  local log=$deps/log/$1.log begun=$SECONDS shown=$SECONDS status=0
  shift
  mkdir -p "$deps/log"
  "$@" >"$log" 2>&1 </dev/null &
  child=$!
  while kill -0 "$child" 2>/dev/null; do
    if ((SECONDS - shown >= 20)); then
      shown=$SECONDS
      say "  … $((SECONDS - begun)) s so far"
    fi
    sleep 0.1
  done
  wait "$child" || status=$?
  child=
  ((status == 0)) || { tail -n 15 "$log" && echo "(whole output: $log)"; } >&2
  return "$status"
}

# logged NAME SENTENCE COMMAND… — the same, but dies with SENTENCE.
logged() {
  local name=$1 sentence=$2
  shift 2
  run_logged "$name" "$@" || die "$sentence"
}

as_root() {
  if ((EUID == 0)); then "$@"; else sudo -n "$@"; fi
}

# need_root THING — makes as_root work, asking for a password where sudo wants one, or dies.
need_root() {
  ((EUID == 0)) && return
  command -v sudo >/dev/null || die "$1, which only root may do: run this as root, or install sudo and add yourself to its group"
  sudo -n true 2>/dev/null || { [[ -t 0 ]] && sudo -v; } || die "$1, which only root may do, and sudo did not let you"
}

# A step is done when its stamp holds the hash of what went in.
fingerprint() { cat "$@" | sha256sum | cut -d' ' -f1; }
stamped() { [[ -f $deps/stamps/$1 && $(<"$deps/stamps/$1") == "$2" ]]; }
stamp() {
  mkdir -p "$deps/stamps"
  printf '%s\n' "$2" >"$deps/stamps/$1"
}

# fetch_wheels FOLDER REQUIREMENTS — downloads exactly the listed wheels, checked against the hashes there.
# The platform is named, so that every pip picks the same files.
fetch_wheels() {
  "$deps/setup-venv/bin/python" -m pip download --disable-pip-version-check --progress-bar off --no-deps \
    --only-binary=:all: --python-version 3.11 --implementation cp --platform manylinux_2_28_x86_64 \
    --platform manylinux_2_25_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
    --require-hashes --requirement "$2" --dest "$1"
}

# configure_tree FOLDER [-DNAME=VALUE…] — configures a build of this checkout.
configure_tree() {
  local tree=$1
  shift
  logged configure "the build could not be configured" \
    cmake -C "$root/deploy/build/dev.cmake" -S "$root" -B "$tree" -DDEX_DEPS_DIR="$deps" "$@"
}

# build_tree FOLDER TARGET… — builds what is named in a configured folder, showing the compiler's progress.
build_tree() {
  local tree=$1
  shift
  export CCACHE_MAXSIZE=${CCACHE_MAXSIZE:-5G} # in ccache's own place: checkouts share it
  NINJA_STATUS="[%f/%t %es] " cmake --build "$tree" --parallel "$(nproc)" --target "$@" ||
    die "the build failed; its first error is above"
}
