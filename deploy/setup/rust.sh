# A Rust compiler for the tokenizer's crate: the one found, else Debian's newer one (rustc 1.63 of Debian's `cargo` is
# too old for the crates; cargo-web and rustc-web are what Debian keeps current for browsers).
# shellcheck source-path=SCRIPTDIR shell=bash disable=SC2154 # root, setup and deps are set by those that source this
rust_title() { echo "Rust compiler"; }
rust_minimum=85 # 1.85, services/text/ffi/Cargo.toml

rust_ready() {
  local version
  version=$(cargo --version 2>/dev/null) || return 1
  [[ $version =~ ^cargo\ 1\.([0-9]+) ]] && ((BASH_REMATCH[1] >= rust_minimum))
}

rust_make() {
  need_root "a Rust compiler of 1.$rust_minimum or newer is missing"
  # shellcheck source=packages.sh
  source "$setup/packages.sh"
  apt_update
  apt_install cargo-web rustc-web
  hash -r
  rust_ready || die "cargo in PATH is $(cargo --version), 1.$rust_minimum or newer is needed: put /usr/bin first or update it"
}
