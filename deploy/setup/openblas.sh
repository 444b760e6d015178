# OpenBLAS, one library out of the Python wheel of openblas.txt, beside LibTorch's in .deps/libtorch/lib.
# shellcheck shell=bash disable=SC2154 # root, setup and deps are set by those that source this
openblas_title() { echo "OpenBLAS (8 MB to fetch)"; }

openblas_ready() {
  [[ -f $deps/libtorch/lib/libscipy_openblas.so ]] && stamped openblas "$(fingerprint "$setup/openblas.txt")"
}

openblas_make() {
  local wheels=$deps/wheels part=$deps/openblas.part
  rm -rf "$wheels" "$part"
  logged openblas "OpenBLAS' wheel could not be fetched; is the Python package registry reachable?" \
    fetch_wheels "$wheels" "$setup/openblas.txt"
  logged openblas-unpack "OpenBLAS' wheel could not be unpacked; is the disk full?" \
    "$deps/setup-venv/bin/python" -m zipfile -e "$wheels"/*.whl "$part"
  mkdir -p "$deps/libtorch/lib"
  mv "$part/scipy_openblas32/lib/libscipy_openblas.so" "$deps/libtorch/lib/" || die "OpenBLAS' wheel has no libscipy_openblas.so"
  rm -rf "$part" "$wheels"
  stamp openblas "$(fingerprint "$setup/openblas.txt")"
}
