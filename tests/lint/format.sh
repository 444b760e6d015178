#!/usr/bin/env bash
# Every C++ file is as clang-format leaves it. usage: format.sh CLANG_FORMAT REPOSITORY
set -euo pipefail
cd "$2"
mapfile -t files < <(find services scheduler worker client deploy tests -name '*.h' -o -name '*.cc' | sort)
((${#files[@]})) || { echo "format.sh: no file found" >&2; exit 1; }
complaints=$("$1" --dry-run --Werror "${files[@]}" 2>&1) || {
  head -n 20 <<<"$complaints" >&2
  echo "mend it with: clang-format -i FILE" >&2
  exit 1
}
echo "${#files[@]} files are formatted"
