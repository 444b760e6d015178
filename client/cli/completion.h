#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "client/cli/known_ids.h"

namespace dex::cli {

// What a shell may offer for the last of `words`, which stand behind "dexctl" and end with the one
// that is being typed (empty: nothing yet): commands, options, values of options, ids that
// `ids_of` knows of. Empty: whatever the shell offers by itself, such as files. Pure but for
// `ids_of`, which is asked at most once.
std::vector<std::string> completions(
    const CLI::App& root, std::span<const std::string> words,
    const std::function<std::vector<std::string>(IdKind kind)>& ids_of);

// What the user's shell reads to ask `dexctl __complete`, as `completion` prints it; "" for a shell
// that there is none for. Pure.
std::string completion_script(const std::string& shell);

}  // namespace dex::cli
