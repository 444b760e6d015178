# The data sets, made by make_datasets.py of Debian packages that are fetched but not installed.
# shellcheck source-path=SCRIPTDIR shell=bash disable=SC2154 # root, setup and deps are set by those that source this
datasets_title() { echo "data sets code, long_text and multilingual (55 MB to fetch)"; }

datasets_ready() {
  local name
  for name in {code,long_text,multilingual}.{train,validation}; do
    [[ -f $deps/data/$name.jsonl ]] || return 1
  done
  stamped datasets "$(fingerprint "$setup/make_datasets.py" "$setup/model.txt")"
}

datasets_make() {
  local sources=$deps/sources python=$deps/setup-venv/bin/python names
  rm -rf "$sources"
  mkdir -p "$sources"
  mapfile -t names < <("$python" "$setup/make_datasets.py" --packages)
  run_logged datasets-fetch fetch_debs "$sources" "${names[@]}" || {
    # shellcheck source=packages.sh
    source "$setup/packages.sh"
    need_root "the list of Debian packages must be read anew"
    apt_update
    logged datasets-fetch "these Debian packages could not be fetched: ${names[*]}; is Debian's package server reachable?" \
      fetch_debs "$sources" "${names[@]}"
  }
  logged datasets-unpack "the fetched Debian packages could not be unpacked; is the disk full?" unpack_debs "$sources"
  logged datasets "the data sets could not be made" \
    "$python" "$setup/make_datasets.py" --sources "$sources" --out "$deps/data" \
    --tokenizer "$deps/models/smollm2-135m-instruct/tokenizer.json"
  rm -rf "$sources"
  stamp datasets "$(fingerprint "$setup/make_datasets.py" "$setup/model.txt")"
}

fetch_debs() { # FOLDER PACKAGE…
  cd "$1" || return
  shift
  apt-get -q download "$@"
}

unpack_debs() { # FOLDER
  local deb name
  for deb in "$1"/*.deb; do
    name=$(dpkg-deb -f "$deb" Package)
    dpkg-deb -x "$deb" "$1/$name"
    dpkg-deb -f "$deb" Version >"$1/$name/VERSION"
    rm "$deb"
  done
}
