#include "client/cli/completion.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace dex::cli {

namespace {

// Where the words before the one being typed have led.
struct Place {
  const CLI::App* command;
  const CLI::Option* open = nullptr;  // an option that waits for its value
  size_t arguments = 0;               // how many the command has already
};

const CLI::App* command_of(const CLI::App& app, const std::string& name) {
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (sub->check_name(name)) return sub;
  }
  return nullptr;
}

const CLI::Option* option_of(const CLI::App* app, const std::string& name) {
  for (; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options())
      if (option->nonpositional() && option->check_name(name)) return option;
  }
  return nullptr;
}

Place place_of(const CLI::App& root, std::span<const std::string> words) {
  Place place{&root};
  for (const auto& word : words) {
    if (place.open != nullptr) {
      place.open = nullptr;
    } else if (word.size() > 1 && word.front() == '-') {
      const CLI::Option* option = option_of(place.command, word.substr(0, word.find('=')));
      const bool waits = option != nullptr && option->get_items_expected_max() > 0;
      if (waits && word.find('=') == std::string::npos) place.open = option;
    } else if (const CLI::App* sub = command_of(*place.command, word)) {
      place.command = sub;
    } else {
      ++place.arguments;
    }
  }
  return place;
}

// "TEXT:{table,json,id}" → table, json, id: how CLI11 names a set of values.
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.find('{'), close = type.find('}', open);
  if (open == std::string::npos || close == std::string::npos) return {};
  return CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
}

std::vector<std::string> option_names(const CLI::App* app) {
  std::vector<std::string> names;
  for (; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options())
      for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  return names;
}

// The argument in that place; the last one may take any number.
const CLI::Option* argument_at(const CLI::App& command, size_t place) {
  const auto arguments = command.get_options([](const CLI::Option* option) {
    return option->get_positional() && !option->nonpositional();
  });
  for (const CLI::Option* argument : arguments) {
    const auto takes = static_cast<size_t>(std::max(argument->get_items_expected_max(), 1));
    if (place < takes) return argument;
    place -= takes;
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> completions(
    const CLI::App& root, std::span<const std::string> words,
    const std::function<std::vector<std::string>(IdKind kind)>& ids_of) {
  if (words.empty()) return {};
  const std::string& typed = words.back();
  const Place place = place_of(root, words.first(words.size() - 1));
  const auto values_of = [&](const CLI::Option& option) {
    auto values = choices_of(option);
    return values.empty() ? ids_of(id_kind(*place.command, option)) : values;
  };

  std::vector<std::string> all;
  const size_t equals = typed.starts_with("--") ? typed.find('=') : std::string::npos;
  if (place.open != nullptr) {
    all = values_of(*place.open);
  } else if (equals != std::string::npos) {
    if (const auto* option = option_of(place.command, typed.substr(0, equals)))
      all = values_of(*option);
    for (auto& value : all) value.insert(0, typed.substr(0, equals + 1));
  } else if (typed.starts_with("-")) {
    all = option_names(place.command);
  } else if (all = command_names(*place.command); all.empty()) {
    const CLI::Option* argument = argument_at(*place.command, place.arguments);
    if (argument != nullptr) all = values_of(*argument);
  }
  std::erase_if(all, [&](const std::string& each) { return !each.starts_with(typed); });
  return all;
}

}  // namespace dex::cli
