#!/usr/bin/env bash
# deploy/quickstart as a newcomer runs it, with few updates: it must end by itself, say what it promises and leave
# nothing running. usage: quickstart.sh REPOSITORY FOLDER
set -euo pipefail
root=$1 folder=$2
rm -rf "$folder"
mkdir -p "$folder"
"$root/deploy/quickstart" --once --steps 4 --data-dir "$folder/data" >"$folder/out" 2>"$folder/err" </dev/null || {
  echo "quickstart ended with $?" >&2
  tail -n 30 "$folder/out" "$folder/err" >&2
  exit 1
}
cat "$folder/out" "$folder/err" >"$folder/all"
# The estimate, progress with the time left, what came out, both answers, and where everything is.
for promised in 'peak memory' 'step 2/4 .*loss .*λ .*tok/s .*left' 'validation loss  before [0-9.]*, after [0-9.]*' \
  'branch effect    [A-Z]*, 0\.[0-9]* of' '^  base  *adapter' 'gRPC  *127.0.0.1:' 'HTTP  *http' \
  'metrics  http.*(scheduler)' 'metrics  http.*(worker)'; do
  grep -Eq -- "$promised" "$folder/all" || {
    echo "quickstart does not say: $promised" >&2
    cat "$folder/all" >&2
    exit 1
  }
done
if pgrep -f "$folder/data" >/dev/null; then
  pgrep -af "$folder/data" >&2
  echo "quickstart left something running" >&2
  exit 1
fi
