// What dexctl says of itself: completion for shells, its man page. No server is asked.
#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "client/cli/command.h"
#include "client/cli/completion.h"
#include "client/cli/man_page.h"
#include "services/base/version.h"

namespace dex::cli {

void add_manual(CLI::App& app, LocalAction& action) {
  auto shell = std::make_shared<std::string>();
  auto* verb = add_verb(
      app, "completion",
      "what a shell reads to complete commands, options, models, presets and ids of the platform",
      "dexctl completion bash > ~/.local/share/bash-completion/completions/dexctl\n"
      "dexctl completion zsh > ~/.zfunc/_dexctl\n"
      "dexctl completion fish > ~/.config/fish/completions/dexctl.fish");
  verb->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  verb->callback([&action, shell] {
    action = [shell](std::ostream& out) { out << completion_script(*shell); };
  });

  verb = add_verb(app, "man", "this manual as a man page", "dexctl man | man -l -");
  verb->callback([&action, &app] {
    action = [&app](std::ostream& out) { out << man_page(app, base::version()); };
  });
}

}  // namespace dex::cli
