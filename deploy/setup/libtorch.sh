# LibTorch's headers and CPU libraries, out of the Python wheels of libtorch.txt into .deps/libtorch/{include,lib}.
# shellcheck shell=bash disable=SC2154 # root, setup and deps are set by those that source this
libtorch_title() { echo "LibTorch 2.11 (530 MB to fetch)"; }

libtorch_ready() {
  [[ -f $deps/libtorch/lib/libtorch_cpu.so ]] &&
    stamped libtorch "$(fingerprint "$setup/libtorch.txt" "$setup/unpack_libtorch.py")"
}

libtorch_make() {
  local wheels=$deps/wheels part=$deps/libtorch.part
  rm -rf "$wheels" "$part"
  logged libtorch "LibTorch's wheels could not be fetched; is the Python package registry reachable?" \
    fetch_wheels "$wheels" "$setup/libtorch.txt"
  logged libtorch-unpack "LibTorch's wheels could not be unpacked; is the disk full?" \
    "$deps/setup-venv/bin/python" "$setup/unpack_libtorch.py" --out "$part" "$wheels"/*.whl
  rm -rf "$deps/libtorch" "$wheels"
  mv "$part" "$deps/libtorch"
  stamp libtorch "$(fingerprint "$setup/libtorch.txt" "$setup/unpack_libtorch.py")"
}
