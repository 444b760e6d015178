#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <stop_token>
#include <string>

#include "client/cli/output.h"
#include "client/cpp/client.h"

namespace CLI {
class App;
}

namespace dex::cli {

// What a command works with. Client and output are made from the global options after parsing.
struct Context {
  client::Client& client;
  Output& output;
  std::stop_token stop;    // Ctrl-C
  std::string request_id;  // --request-id; empty: each call that changes something has its own
};

// What main runs once the command line is read; the exit code comes back.
using Action = std::function<int(Context&)>;

// Each adds one noun with its verbs to the command line; a verb that was chosen stores itself in
// `action`.
void add_files(CLI::App& app, Action& action);
void add_jobs(CLI::App& app, Action& action);
void add_checkpoints(CLI::App& app, Action& action);
void add_evaluations(CLI::App& app, Action& action);
void add_adapters(CLI::App& app, Action& action);
void add_catalog(CLI::App& app, Action& action);  // models, presets, version
void add_doctor(CLI::App& app, Action& action);
void add_operations(CLI::App& app, Action& action);  // queue, workers, quota
void add_keys(CLI::App& app, Action& action);        // keys, whoami
void add_usage(CLI::App& app, Action& action);
void add_generate(CLI::App& app, Action& action);
void add_study(CLI::App& app, Action& action);
void add_chat(CLI::App& app, Action& action);
void add_compare(CLI::App& app, Action& action);

// Commands that ask no server: they run at once and print to the stream.
using LocalAction = std::function<void(std::ostream& out)>;
void add_manual(CLI::App& app, LocalAction& action);  // completion, man

// The noun's verb with examples in its help, one a line.
CLI::App* add_verb(CLI::App& noun, const std::string& name, const std::string& what,
                   const std::string& examples);

}  // namespace dex::cli
