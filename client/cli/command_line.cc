#include "client/cli/command_line.h"

#include <sstream>

#include "client/cli/did_you_mean.h"
#include "services/base/version.h"

namespace dex::cli {

namespace {

constexpr const char* kExample = "  dexctl ";  // how an example begins in a footer

void add_globals(CLI::App& app, Globals& globals) {
  app.add_option(
      "--server", globals.server,
      "host:port of the platform; else the profile's, DEX_SERVER, that of a dexd on this "
      "machine (endpoints.json in DEX_DATA_DIR or ~/.local/share/dex), localhost:50051");
  app.add_option("--profile", globals.profile,
                 "a [profile.NAME] of ~/.config/dex/config.toml, which may set server, output and "
                 "api_key_file; "
                 "else the one called default");
  app.add_option("--api-key-file", globals.api_key_file,
                 "file with the API key; else the profile's, DEX_API_KEY, the admin.key beside the "
                 "endpoints.json that names the server");
  app.add_option("--output", globals.output,
                 "table (default) for people; for scripts json (one compact line a result), jsonl "
                 "(of lists one line a row) or id")
      ->check(CLI::IsMember({"table", "json", "jsonl", "id"}));
  app.add_option("--timeout", globals.timeout_seconds, "seconds that a call may take (60)")
      ->check(CLI::PositiveNumber);
  app.add_option("--request-id", globals.request_id,
                 "of the change that the command makes, 1 to 64 characters: the same command with "
                 "the same id again changes nothing twice (default: a new one)");
  auto* quiet = app.add_flag("-q,--quiet", globals.quiet, "no progress and no notes");
  app.add_flag("-v,--verbose", globals.verbose,
               "which server is asked, and all that it says of a failure")
      ->excludes(quiet);
  app.add_flag("--no-color", globals.no_color, "plain text (also by NO_COLOR)");
}

// What is wrong with the command line, what was probably meant, and whose help explains it.
std::string usage_error(const CLI::App* app, const CLI::Error& error) {
  const std::string unknown = unknown_words(*app);
  return "dexctl: " + (unknown.empty() ? std::string(error.what()) : unknown) + "\n" +
         chosen_command(*app) + " --help explains\n";
}

}  // namespace

CommandLine::CommandLine()
    : app("dexctl talks to a DEX fine-tuning platform: upload data, train an adapter, use it.\n\n"
          "  dexctl files upload rows.jsonl\n"
          "  dexctl jobs create --model smollm2-135m-instruct --training-file rows.jsonl --preset "
          "code --follow\n"
          "  dexctl generate ft:… --prompt \"def add(a, b):\"\n") {
  app.name("dexctl");
  app.set_version_flag("--version", "dexctl " + std::string(base::version()));
  app.require_subcommand(1);
  app.fallthrough();  // global options are taken after the command too
  app.failure_message(usage_error);
  app.footer(
      "Every command has an example: dexctl jobs create --help.\n"
      "The options of dexctl itself (dexctl --help) may stand behind any command.");
  add_globals(app, globals);
  add_files(app, action);
  add_jobs(app, action);
  add_checkpoints(app, action);
  add_evaluations(app, action);
  add_adapters(app, action);
  add_generate(app, action);
  add_chat(app, action);
  add_compare(app, action);
  add_study(app, action);
  add_catalog(app, action);
  add_doctor(app, action);
  add_operations(app, action);
  add_keys(app, action);
  add_usage(app, action);
  add_manual(app, local);
}

std::vector<std::string> examples_of(const CLI::App& command) {
  std::vector<std::string> examples;
  std::istringstream footer(command.get_footer());
  for (std::string line; std::getline(footer, line);) {
    if (line.starts_with(kExample)) examples.push_back(line.substr(2));
  }
  return examples;
}

}  // namespace dex::cli
