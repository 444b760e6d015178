#include "worker/evaluate/instructions.h"

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "services/base/files.h"
#include "worker/evaluate/batches.h"
#include "worker/evaluate/random_stream.h"

namespace dex::evaluate {
namespace {

using nlohmann::ordered_json;

void check(const base::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

ExportedFile json_file(std::string name, const ordered_json& json) {
  return {std::move(name), json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n"};
}

}  // namespace

Instructions::Instructions(Options options, std::vector<Instruction> instructions)
    : options_(options), instructions_(std::move(instructions)) {}

void Instructions::run(Subject& subject, const Hooks& hooks, std::vector<Observation>& out) {
  std::vector<Subject::Generation> items;
  for (const Instruction& instruction : instructions_) {
    const std::vector<text::Message> message = {{.role = "user", .content = instruction.text}};
    items.push_back({subject.has_chat_template() ? subject.encode_chat(message)
                                                 : subject.encode(instruction.text),
                     options_.max_tokens,
                     {}});
    const size_t needed = items.back().prompt.size() + static_cast<size_t>(options_.max_tokens);
    if (needed > static_cast<size_t>(subject.trained_context())) {
      throw std::runtime_error(
          "line " + std::to_string(instruction.line) + ": the instruction and an answer of " +
          std::to_string(options_.max_tokens) + " tokens need " + std::to_string(needed) +
          ", the model takes " + std::to_string(subject.trained_context()) +
          "; ask for shorter answers with --max-tokens");
    }
  }
  hooks.say("greedy answers of at most " + std::to_string(options_.max_tokens) + " tokens, " +
            (subject.has_chat_template() ? "through the model's chat template"
                                         : "as text to continue: the model has no chat template"));
  Outputs outputs{subject.label(), {}};
  const auto tokens_of = [&](size_t i) {
    return static_cast<int64_t>(items[i].prompt.size()) + options_.max_tokens;
  };
  constexpr int64_t kTokensARun = 8192;
  constexpr size_t kPromptsARun = 16;
  for (const Run& run : in_runs(items.size(), tokens_of, kTokensARun, kPromptsARun)) {
    auto said =
        subject.generate(std::span(items).subspan(run.begin, run.end - run.begin), hooks.stop);
    for (size_t i = run.begin; i < run.end; ++i) {
      outputs.texts.push_back(std::move(said[i - run.begin].text));
      if (!hooks.sample) continue;
      hooks.sample({.task = name(),
                    .subject = subject.label(),
                    .item = static_cast<int64_t>(i),
                    .line = instructions_[i].line,
                    .prompt = instructions_[i].text,
                    .output = outputs.texts.back()});
    }
    hooks.report(subject, static_cast<int64_t>(run.end), static_cast<int64_t>(items.size()));
  }
  outputs_.push_back(std::move(outputs));
}

std::vector<ExportedFile> Instructions::files() const {
  std::vector<ExportedFile> out;
  for (const Outputs& one : outputs_) {
    ordered_json list = ordered_json::array();
    for (size_t i = 0; i < instructions_.size(); ++i) {
      ordered_json row = {{"instruction", instructions_[i].text},
                          {"output", one.texts[i]},
                          {"generator", one.label}};
      if (!instructions_[i].dataset.empty()) row["dataset"] = instructions_[i].dataset;
      list.push_back(std::move(row));
    }
    out.push_back(json_file("outputs-" + one.label + ".json", list));
  }
  for (size_t s = 1; s < outputs_.size(); ++s) {
    const Outputs &base = outputs_[0], &other = outputs_[s];
    RandomStream random(options_.seed, Draw::kBlind, s);
    ordered_json pairs = ordered_json::array(), key = ordered_json::array();
    for (size_t i = 0; i < instructions_.size(); ++i) {
      const bool swapped = random.below(2) == 1;
      const Outputs &a = swapped ? other : base, &b = swapped ? base : other;
      pairs.push_back({{"id", i},
                       {"instruction", instructions_[i].text},
                       {"a", a.texts[i]},
                       {"b", b.texts[i]}});
      key.push_back({{"id", i}, {"a", a.label}, {"b", b.label}});
    }
    out.push_back(json_file("pairs-" + other.label + ".json", pairs));
    out.push_back(json_file("pairs-" + other.label + ".key.json", key));
  }
  return out;
}

std::vector<std::filesystem::path> Instructions::write(const std::filesystem::path& folder) const {
  check(base::make_directories(folder, 0755));
  std::vector<std::filesystem::path> paths;
  for (const ExportedFile& file : files()) {
    paths.push_back(folder / file.name);
    check(base::write_file_atomically(paths.back(), file.content));
  }
  return paths;
}

}  // namespace dex::evaluate
