#pragma once

#include <span>
#include <string>

namespace CLI {
class App;
}

namespace dex::cli {

// " (did you mean jobs?)" with the nearest of `known`; "" where none is near or the word is one of
// them. Pure.
std::string did_you_mean(const std::string& word, std::span<const std::string> known);

// What a command line that did not parse says that dexctl doesn't know, with the nearest command or
// option of where it stood; "" when every word is known, so that something else is wrong. `root`
// after a failed parse.
std::string unknown_words(const CLI::App& root);

// The command that was chosen, "dexctl jobs list"; as far as it was understood.
std::string chosen_command(const CLI::App& root);

}  // namespace dex::cli
