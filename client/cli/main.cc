#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iostream>

#include "client/cli/api_key_source.h"
#include "client/cli/command.h"
#include "client/cli/exit_code.h"
#include "client/cli/server_address.h"
#include "services/base/data_dir.h"
#include "services/base/signals.h"
#include "services/base/version.h"

namespace dex::cli {
namespace {

struct Globals {
  std::string server;
  std::string api_key_file;
  std::string output = "table";
  double timeout_seconds = 60;
  bool quiet = false;
  bool no_color = false;
};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

void add_globals(CLI::App& app, Globals& globals) {
  app.add_option("--server", globals.server,
                 "host:port of the platform; else DEX_SERVER, else that of a dexd on this machine "
                 "(endpoints.json in DEX_DATA_DIR or ~/.local/share/dex), else localhost:50051");
  app.add_option("--api-key-file", globals.api_key_file,
                 "file with the API key; else DEX_API_KEY, else the admin.key beside the "
                 "endpoints.json that names the server");
  app.add_option("--output", globals.output,
                 "table (default) for people, json (one compact line a result) or id for scripts")
      ->check(CLI::IsMember({"table", "json", "id"}));
  app.add_option("--timeout", globals.timeout_seconds, "seconds that a call may take (60)")
      ->check(CLI::PositiveNumber);
  app.add_flag("-q,--quiet", globals.quiet, "no progress and no notes");
  app.add_flag("--no-color", globals.no_color, "plain text (also by NO_COLOR)");
}

bool is_alive(int64_t pid) {
  return pid > 0 && (::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM);
}

// What is wrong with the command line, and the help of the command that was meant.
std::string usage_error(const CLI::App* app, const CLI::Error& error) {
  std::string command = "dexctl";
  for (auto chosen = app->get_subcommands(); !chosen.empty();
       chosen = chosen.front()->get_subcommands()) {
    command += " " + chosen.front()->get_name();
  }
  return std::string("dexctl: ") + error.what() + "\n" + command + " --help explains\n";
}

Format format_of(const std::string& name) {
  if (name == "json") return Format::kJson;
  return name == "id" ? Format::kId : Format::kTable;
}

int run(int argc, char** argv) {
  CLI::App app{
      "dexctl talks to a DEX fine-tuning platform: upload data, train an adapter, use it.\n\n"
      "  dexctl files upload rows.jsonl\n"
      "  dexctl jobs create --model smollm2-135m-instruct --training-file rows.jsonl --preset code "
      "--follow\n"
      "  dexctl generate ft:… --prompt \"def add(a, b):\"\n"};
  app.name("dexctl");
  app.set_version_flag("--version", "dexctl " + std::string(base::version()));
  app.require_subcommand(1);
  app.fallthrough();  // global options are taken after the command too
  app.failure_message(usage_error);
  app.footer(
      "Every command has an example: dexctl jobs create --help.\n"
      "The options of dexctl itself (dexctl --help) may stand behind any command.");
  Globals globals;
  add_globals(app, globals);
  Action action;
  add_files(app, action);
  add_jobs(app, action);
  add_checkpoints(app, action);
  add_evaluations(app, action);
  add_adapters(app, action);
  add_generate(app, action);
  add_chat(app, action);
  add_study(app, action);
  add_catalog(app, action);
  add_doctor(app, action);
  add_operations(app, action);
  add_keys(app, action);
  add_usage(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kUsage;
  }

  const base::StopSignals signals;  // before any thread of gRPC
  Output output(format_of(globals.output),
                detect_terminal(globals.no_color || !environment("NO_COLOR").empty()),
                globals.quiet, std::cout, std::cerr);
  const auto server = find_server(
      {.flag = globals.server,
       .variable = environment("DEX_SERVER"),
       .data_dir = base::default_data_dir(environment("DEX_DATA_DIR"), environment("HOME"))},
      is_alive);
  if (!server.ok()) return output.failure(server.status());
  const auto key = find_api_key(
      {.file = globals.api_key_file, .variable = environment("DEX_API_KEY"), .server = *server});
  if (!key.ok()) return output.failure(key.status());
  client::Client client(
      {.server = server->address,
       .server_origin = server->origin,
       .api_key = *key,
       .timeout = std::chrono::milliseconds(static_cast<int64_t>(globals.timeout_seconds * 1000)),
       .stop = signals.token()});
  Context context{client, output, signals.token()};
  return action(context);
}

}  // namespace
}  // namespace dex::cli

int main(int argc, char** argv) {
  try {
    return dex::cli::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "dexctl: " << error.what() << std::endl;
    return dex::cli::kOwnFault;
  }
}
