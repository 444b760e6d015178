#include "client/cli/doctor.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ostream>
#include <utility>
#include <vector>

#include "client/cli/command.h"
#include "client/cli/exit_code.h"
#include "services/base/version.h"

namespace dex::cli {

namespace {

using Severity = v1::Health::Severity;
using Check = v1::Health::Check;

constexpr int64_t kClocksApart_ms = 2000;

int64_t unix_now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string filled_up(const std::string& text, size_t width) {
  const size_t shown = display_width(text);
  return text + std::string(width > shown ? width - shown : 0, ' ');
}

std::string mark(Severity severity, const Terminal& terminal) {
  if (severity == v1::Health::SEVERITY_FAIL) return red(terminal, "fail");
  return severity == v1::Health::SEVERITY_WARN ? yellow(terminal, "warn") : green(terminal, "ok  ");
}

int count_of(const v1::Health& health, Severity severity) {
  return static_cast<int>(
      std::count_if(health.checks().begin(), health.checks().end(),
                    [severity](const Check& check) { return check.severity() == severity; }));
}

void add_promises(const v1::Health& health, const Terminal& terminal, std::string& text) {
  if (health.promises().empty()) return;
  text += "\n" + bold(terminal, "What this setting promises") + "\n";
  for (const auto& promise : health.promises()) {
    text += "  " + (promise.kept() ? green(terminal, "yes") : yellow(terminal, "no ")) + "  " +
            promise.text() + "\n       " + dim(terminal, promise.reason()) + "\n";
  }
}

std::string summary(const v1::Health& health, const Terminal& terminal) {
  const int fails = count_of(health, v1::Health::SEVERITY_FAIL);
  const int warns = count_of(health, v1::Health::SEVERITY_WARN);
  if (fails + warns == 0) return green(terminal, "All is well.");
  const auto counted = [](int count, const char* what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
  };
  std::string text = fails > 0 ? red(terminal, counted(fails, "failure")) : "";
  if (warns > 0) text += (text.empty() ? "" : ", ") + yellow(terminal, counted(warns, "warning"));
  return text + ": the lines with an arrow say what to do.";
}

int doctor(Context& context) {
  ClientSide client;
  client.version = std::string(base::version());
  client.asked_ms = unix_now_ms();
  auto health = context.client.health();
  client.answered_ms = unix_now_ms();
  if (!health.ok()) return context.output.failure(health.status());
  add_client_checks(client, *health);
  if (context.output.format() == Format::kTable) {
    context.output.out() << health_text(*health, context.output.terminal()) << std::flush;
  } else {
    context.output.result(*health, std::to_string(exit_code(*health)), {});
  }
  return exit_code(*health);
}

}  // namespace

void add_client_checks(const ClientSide& client, v1::Health& health) {
  std::vector<Check> checks;
  auto& version = checks.emplace_back();
  version.set_name("version");
  const bool same = client.version == health.version();
  version.set_severity(same ? v1::Health::SEVERITY_OK : v1::Health::SEVERITY_WARN);
  version.set_finding(health.version() + (same ? ", as dexctl" : ", dexctl is " + client.version));
  if (!same) version.set_remedy("use the dexctl that came with the server");

  // The server looked at its clock between the two moments; half of the time stands for when.
  const int64_t middle_ms = (client.asked_ms + client.answered_ms) / 2;
  const int64_t server_ms =
      health.server_time().seconds() * 1000 + health.server_time().nanos() / 1'000'000;
  const int64_t wait_ms = client.answered_ms - client.asked_ms;
  const int64_t apart_ms = std::max<int64_t>(0, std::abs(middle_ms - server_ms) - wait_ms / 2);
  auto& clock = checks.emplace_back();
  clock.set_name("clock");
  const bool agree = apart_ms < kClocksApart_ms;
  clock.set_severity(agree ? v1::Health::SEVERITY_OK : v1::Health::SEVERITY_WARN);
  clock.set_finding(std::to_string(apart_ms) + " ms from this machine's; it answered in " +
                    std::to_string(wait_ms) + " ms");
  if (!agree) clock.set_remedy("set both by NTP: times that are shown are the server's");

  google::protobuf::RepeatedPtrField<Check> all;
  for (Check& check : checks) {
    check.set_topic("server");
    *all.Add() = std::move(check);
  }
  for (Check& check : *health.mutable_checks()) *all.Add() = std::move(check);
  health.mutable_checks()->Swap(&all);
}

std::string health_text(const v1::Health& health, const Terminal& terminal) {
  size_t width = 0;
  for (const Check& check : health.checks()) width = std::max(width, display_width(check.name()));
  std::string text, topic;
  for (const Check& check : health.checks()) {
    if (check.topic() != topic) {
      topic = check.topic();
      text += (text.empty() ? "" : "\n") + bold(terminal, topic) + "\n";
    }
    text += "  " + mark(check.severity(), terminal) + "  " + filled_up(check.name(), width) + "  " +
            check.finding() + "\n";
    if (!check.remedy().empty())
      text += "        " + std::string(width, ' ') + "→ " + check.remedy() + "\n";
  }
  add_promises(health, terminal, text);
  return text + "\n" + summary(health, terminal) + "\n";
}

int exit_code(const v1::Health& health) {
  if (count_of(health, v1::Health::SEVERITY_FAIL) > 0) return kSystemFault;
  return count_of(health, v1::Health::SEVERITY_WARN) > 0 ? kNotPassed : kDone;
}

void add_doctor(CLI::App& app, Action& action) {
  auto* verb = add_verb(
      app, "doctor",
      "examine the platform: store, disk, clocks, workers, models, whom the "
      "gateway reaches, and what it can promise; exit code 0 all well, 7 warnings, 4 failures",
      "dexctl doctor\n"
      "dexctl doctor --output json");
  verb->callback([&action] { action = doctor; });
}

}  // namespace dex::cli
