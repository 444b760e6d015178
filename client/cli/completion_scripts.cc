// The shells' halves of completion: each asks `dexctl __complete` with the words that stand there.
#include "client/cli/completion.h"

namespace dex::cli {

namespace {

// Bash takes ':' and '=' for ends of words, ids and --option=value have them inside: the words are
// read from the line itself, and what bash holds for finished is cut off the candidates again.
constexpr const char* kBash = R"(# bash completion for dexctl: source <(dexctl completion bash)
_dexctl() {
  local line=${COMP_LINE:0:COMP_POINT} word candidate separator start cut=''
  local -a words=()
  read -ra words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=('')
  word=${words[${#words[@]} - 1]}
  for separator in : =; do
    if [[ $COMP_WORDBREAKS == *"$separator"* && $word == *"$separator"* ]]; then
      start=${word%"${word##*"$separator"}"}
      ((${#start} > ${#cut})) && cut=$start
    fi
  done
  COMPREPLY=()
  while IFS= read -r candidate; do
    COMPREPLY+=("${candidate#"$cut"}")
  done < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
}
complete -o default -F _dexctl dexctl
)";

constexpr const char* kZsh = R"(#compdef dexctl
# zsh completion for dexctl: source <(dexctl completion zsh), or this file as _dexctl in your fpath
_dexctl() {
  local -a candidates
  candidates=("${(@f)$(dexctl __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "${candidates[1]}" ]]; then
    compadd -- "${candidates[@]}"
  else
    _files
  fi
}
if [[ "${funcstack[1]}" == _dexctl ]]; then
  _dexctl "$@"
else
  compdef _dexctl dexctl
fi
)";

constexpr const char* kFish = R"(# fish completion for dexctl: dexctl completion fish | source
function __dexctl_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -e words[1]
    set -l found (dexctl __complete $words "$current" 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path "$current"
    end
end
complete -c dexctl -f -a '(__dexctl_complete)'
)";

}  // namespace

std::string completion_script(const std::string& shell) {
  if (shell == "bash") return kBash;
  if (shell == "zsh") return kZsh;
  return shell == "fish" ? kFish : "";
}

}  // namespace dex::cli
