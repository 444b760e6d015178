#include "client/cli/did_you_mean.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>
#include <vector>

#include "services/base/nearest.h"

namespace dex::cli {

namespace {

const CLI::App& deepest(const CLI::App& root) {
  const CLI::App* app = &root;
  for (auto chosen = app->get_subcommands(); !chosen.empty(); chosen = app->get_subcommands())
    app = chosen.back();
  return *app;
}

std::vector<std::string> command_words(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(sub->get_name());
    names.insert(names.end(), sub->get_aliases().begin(), sub->get_aliases().end());
  }
  return names;
}

// Of a command and of those above it, since their options may stand behind it.
std::vector<std::string> option_words(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* app = &command; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options())
      for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

}  // namespace

std::string did_you_mean(const std::string& word, std::span<const std::string> known) {
  if (std::ranges::find(known, word) != known.end()) return "";
  const std::vector<std::string_view> candidates(known.begin(), known.end());
  const std::string_view near = base::nearest(word, candidates);
  return near.empty() ? "" : " (did you mean " + std::string(near) + "?)";
}

std::string chosen_command(const CLI::App& root) {
  std::string command = root.get_name();
  for (const CLI::App* app = &root; !app->get_subcommands().empty();) {
    app = app->get_subcommands().back();
    command += " " + app->get_name();
  }
  return command;
}

std::string unknown_words(const CLI::App& root) {
  const auto words = root.remaining(true);
  const CLI::App& command = deepest(root);
  // A wrong option leaves its value behind as a word of its own: the option is what is wrong.
  const auto option = std::ranges::find_if(
      words, [](const std::string& word) { return word.size() > 1 && word.front() == '-'; });
  if (option != words.end()) {
    const std::string name = option->substr(0, option->find('='));
    return chosen_command(root) + " has no option " + name +
           did_you_mean(name, option_words(command));
  }
  if (words.empty()) return "";
  const auto commands = command_words(command);
  if (commands.empty())
    return chosen_command(root) + " takes no more arguments, got '" + words.front() + "'";
  return chosen_command(root) + " has no command '" + words.front() + "'" +
         did_you_mean(words.front(), commands);
}

}  // namespace dex::cli
