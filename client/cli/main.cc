#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <span>

#include "client/cli/api_key_source.h"
#include "client/cli/command_line.h"
#include "client/cli/completion.h"
#include "client/cli/config_file.h"
#include "client/cli/did_you_mean.h"
#include "client/cli/exit_code.h"
#include "client/cli/known_ids.h"
#include "client/cli/server_address.h"
#include "services/base/data_dir.h"
#include "services/base/signals.h"

namespace dex::cli {
namespace {

constexpr const char* kComplete = "__complete";  // what completion_script() calls
constexpr auto kCompletionTime = std::chrono::milliseconds(1000);
constexpr auto kSuggestionTime = std::chrono::milliseconds(2000);

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_alive(int64_t pid) {
  return pid > 0 && (::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM);
}

base::Result<Profile> profile_of(const std::string& name) {
  return read_profile(default_config_file(environment("XDG_CONFIG_HOME"), environment("HOME")),
                      name);
}

base::Result<ServerAddress> server_of(const std::string& flag, const Profile& profile,
                                      bool profile_chosen) {
  return find_server(
      {.flag = flag,
       .variable = environment("DEX_SERVER"),
       .data_dir = base::default_data_dir(environment("DEX_DATA_DIR"), environment("HOME")),
       .profile = profile.name,
       .profile_server = profile.server,
       .profile_chosen = profile_chosen},
      is_alive);
}

// A profile that nobody chose gives its key to its own server alone.
base::Result<std::string> key_of(const std::string& flag, const Profile& profile,
                                 bool profile_chosen, const ServerAddress& server) {
  const bool fits = profile_chosen || profile.server.empty() || server.address == profile.server;
  return find_api_key({.file = !flag.empty() ? flag
                               : fits        ? profile.api_key_file
                                             : std::string(),
                       .variable = environment("DEX_API_KEY"),
                       .server = server});
}

// The value of a global option in a line that is not complete and so can't be parsed.
std::string value_of(const std::string& option, std::span<const std::string> words) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == option && i + 1 < words.size()) return words[i + 1];
    if (words[i].starts_with(option + "=")) return words[i].substr(option.size() + 1);
  }
  return "";
}

// Says nothing of what goes wrong: a shell that completes has nowhere to show it.
int complete(std::span<const std::string> words) {
  const CommandLine line;
  const auto ids_of = [&](IdKind kind) -> std::vector<std::string> {
    const std::string name = value_of("--profile", words);
    const auto profile = profile_of(name);
    if (kind == IdKind::kNone || !profile.ok()) return {};
    const auto server = server_of(value_of("--server", words), *profile, !name.empty());
    if (!server.ok()) return {};
    const auto key = key_of(value_of("--api-key-file", words), *profile, !name.empty(), *server);
    if (!key.ok()) return {};
    client::Client client({.server = server->address, .api_key = *key, .timeout = kCompletionTime});
    return known_ids(client, kind);
  };
  for (const auto& candidate : completions(line.app, words, ids_of)) std::cout << candidate << "\n";
  return kDone;
}

// Of something that was not found: the nearest that there is.
void suggest(Output& output, const client::Client::Options& connection) {
  const base::Status& failure = output.last_failure();
  if (failure.code() != base::Code::kNotFound) return;
  std::string type, name;
  for (const auto& [key, value] : failure.metadata()) {
    if (key == "resource_type") type = value;
    if (key == "resource_name") name = value;
  }
  auto options = connection;
  options.timeout = kSuggestionTime;
  client::Client client(options);
  const std::string meant = did_you_mean(name, known_ids(client, id_kind(type)));
  if (!meant.empty()) output.note(name + meant);
}

int ask_server(const CommandLine& line, const ServerAddress& server, const std::string& key,
               const base::StopSignals& signals, Output& output) {
  const client::Client::Options connection{
      .server = server.address,
      .server_origin = server.origin,
      .api_key = key,
      .timeout =
          std::chrono::milliseconds(static_cast<int64_t>(line.globals.timeout_seconds * 1000)),
      .stop = signals.token(),
      .request_id = line.globals.request_id};
  output.detail("server " + server.address + " (named by " + server.origin + ")");
  client::Client client(connection);
  Context context{client, output, signals.token(), line.globals.request_id};
  const int code = line.action(context);
  if (code != kDone) suggest(output, connection);
  return code;
}

int run(int argc, char** argv) {
  if (argc > 2 && std::string_view(argv[1]) == kComplete)
    return complete(std::vector<std::string>(argv + 2, argv + argc));
  CommandLine line;
  try {
    line.app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return line.app.exit(error) == 0 ? kDone : kUsage;
  }
  if (line.local) {
    line.local(std::cout);
    return kDone;
  }

  const base::StopSignals signals;  // before any thread of gRPC
  const auto& globals = line.globals;
  const auto profile = profile_of(globals.profile);
  const std::string& format =
      globals.output.empty() && profile.ok() ? profile->output : globals.output;
  Output output(format_of(format),
                detect_terminal(globals.no_color || !environment("NO_COLOR").empty()),
                globals.quiet, std::cout, std::cerr);
  if (globals.verbose) output.be_verbose();
  if (!profile.ok()) return output.failure(profile.status());
  if (!profile->name.empty()) output.detail("profile " + profile->name);
  const auto server = server_of(globals.server, *profile, !globals.profile.empty());
  if (!server.ok()) return output.failure(server.status());
  const auto key = key_of(globals.api_key_file, *profile, !globals.profile.empty(), *server);
  if (!key.ok()) return output.failure(key.status());
  return ask_server(line, *server, *key, signals, output);
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
