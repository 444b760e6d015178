# The Rust crates that services/text/ffi/Cargo.lock names, so that the build itself needs no network.
# shellcheck shell=bash disable=SC2154 # root, setup and deps are set by those that source this
crates_title() { echo "Rust crates"; }
crates_folder=$root/services/text/ffi

crates_ready() {
  [[ ! -e $crates_folder ]] || stamped crates "$(fingerprint "$crates_folder/Cargo.lock")"
}

crates_make() {
  logged crates "the crates of services/text/ffi could not be fetched; is the crate registry reachable?" \
    cargo fetch --locked --manifest-path "$crates_folder/Cargo.toml"
  stamp crates "$(fingerprint "$crates_folder/Cargo.lock")"
}
