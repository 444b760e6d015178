#include "worker/serve/local_commands.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <ostream>
#include <stdexcept>
#include <utility>

#include "worker/serve/engine.h"
#include "worker/serve/serving_model.h"
#include "worker/serve/text_model.h"

namespace dex::serve {
namespace {

[[noreturn]] void fail(const base::Status& status) {
  throw std::runtime_error(status.message());
}

// A loaded model with its engine; requests run in the calling thread.
class Local {
 public:
  Local(const LocalModel& where, Engine::Options options, const base::Clock& clock)
      : clock_(clock) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(where.model, ignored)) {
      throw std::runtime_error("--model: " + where.model.string() +
                               " is not a directory with a Hugging Face model");
    }
    // A tokenizer takes a tenth of a second, and a core is free while weights are looked through.
    auto loading =
        std::async(std::launch::async, [&where] { return TextModel::load(where.model); });
    model_ = load_serving_model(where.model, parse_dtype(where.dtype));
    auto text = loading.get();
    if (!text.ok()) fail(text.status());
    text_ = std::move(text).value();
    if (!where.adapter.empty())
      adapter_ = adapter(where.adapter, where.dex_lambda_scale.value_or(1) != 1);
    dex_lambda_scale_ = where.dex_lambda_scale;
    options.threads = where.threads;
    engine_ = std::make_unique<Engine>(model_, text_.tokenizer.get(), options, clock);
  }

  // With the adapter of --adapter, if there is one.
  void submit(Request request, std::shared_ptr<Listener> listener) {
    submit(std::move(request), std::move(listener), adapter_);
  }
  void submit(Request request, std::shared_ptr<Listener> listener,
              std::shared_ptr<const ServingAdapter> adapter) {
    request.dex_lambda_scale = dex_lambda_scale_;
    const base::Status taken =
        engine_->submit(next_++, std::move(request), std::move(adapter), std::move(listener));
    if (!taken.ok()) fail(taken);
  }
  // `apart`: a branch that folds stays beside W_O.
  [[nodiscard]] std::shared_ptr<const ServingAdapter> adapter(const std::filesystem::path& folder,
                                                              bool apart) const {
    const TextHashes hashes = {text_.tokenizer ? text_.tokenizer->sha256() : "",
                               text_.chat_template ? text_.chat_template->sha256() : ""};
    auto loaded = load_serving_adapter(folder, folder.string(), {}, *model_, hashes);
    return apart && loaded->is_folded() ? load_branch_apart(std::move(loaded), *model_) : loaded;
  }
  void run() { engine_->run_until_idle(); }

  [[nodiscard]] const TextModel& text() const { return text_; }
  [[nodiscard]] const ServingModel& model() const { return *model_; }
  [[nodiscard]] Engine& engine() { return *engine_; }

 private:
  const base::Clock& clock_;
  std::shared_ptr<const ServingModel> model_;
  TextModel text_;
  std::shared_ptr<const ServingAdapter> adapter_;
  std::optional<double> dex_lambda_scale_;
  std::unique_ptr<Engine> engine_;
  uint64_t next_ = 1;
};

// Room for one request, not for many: `generate` and `score` run one.
Engine::Options one_request() {
  return {.kv_cache_bytes = 0, .max_running = 1};
}

class Printer final : public Listener {
 public:
  Printer(std::ostream& out, bool ids) : out_(out), ids_(ids) {}
  void on_delta(Delta delta) override {
    out_ << delta.text;
    if (ids_) {
      for (const int32_t token : delta.tokens)
        out_ << (std::exchange(first_, false) ? "" : ",") << token;
    }
    out_ << std::flush;
  }
  void on_done(Outcome outcome) override {
    out_ << std::endl;
    outcome_ = std::move(outcome);
  }
  [[nodiscard]] const Outcome& outcome() const { return outcome_; }

 private:
  std::ostream& out_;
  bool ids_;
  bool first_ = true;
  Outcome outcome_;
};

class Collector final : public Listener {
 public:
  using Time = std::chrono::steady_clock::time_point;
  void on_delta(Delta delta) override {
    const Time now = std::chrono::steady_clock::now();
    if (tokens.empty()) first = now;
    last = now;
    tokens.insert(tokens.end(), delta.tokens.begin(), delta.tokens.end());
    for (auto& entry : delta.logprobs) logprobs.push_back(std::move(entry));
  }
  void on_done(Outcome ended) override { outcome = std::move(ended); }

  std::vector<int32_t> tokens;
  std::vector<TokenLogprob> logprobs;
  Time first, last;
  Outcome outcome;
};

nlohmann::json spread(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t n = values.size();
  const double median = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  return {{"median", median}, {"min", values.front()}, {"max", values.back()}};
}

using Adapters = std::vector<std::shared_ptr<const ServingAdapter>>;

// Those that sequences take in turn; none without --adapters.
Adapters adapters_in_turn(const Local& local, const MeasureCommand& command) {
  if (command.adapters.empty()) return {};
  std::error_code error;
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(command.adapters, error))
    if (entry.is_directory()) folders.push_back(entry.path());
  const auto wanted = static_cast<size_t>(std::max(1, command.distinct));
  if (error || folders.size() < wanted) {
    throw std::runtime_error("--adapters: " + command.adapters.string() +
                             " must be a folder with " + std::to_string(wanted) +
                             " or more folders of adapters, has " + std::to_string(folders.size()));
  }
  std::ranges::sort(folders);
  if (command.distinct > 0) folders.resize(wanted);
  Adapters adapters;
  adapters.reserve(folders.size());
  for (const auto& folder : folders)
    adapters.push_back(local.adapter(folder, command.branch_apart));
  return adapters;
}

int64_t peak_rss_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) / 1024;
  }
  return 0;
}

}  // namespace

std::vector<int32_t> parse_tokens(const std::string& text) {
  std::vector<int32_t> out;
  const char* at = text.data();
  const char* end = text.data() + text.size();
  while (at < end) {
    while (at < end && (*at == ',' || *at == ' ')) ++at;
    if (at == end) break;
    int32_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < 0 || (next < end && *next != ',' && *next != ' ')) {
      throw std::runtime_error("--tokens: must be ids like 1,2,3, got " +
                               std::string(at, std::find(at, end, ',')));
    }
    out.push_back(value);
    at = next;
  }
  return out;
}

void generate(const LocalModel& where, GenerateCommand command, const base::Clock& clock,
              std::ostream& out, std::ostream& log) {
  Local local(where, one_request(), clock);
  Request request = std::move(command.request);
  if (!command.tokens.empty()) {
    request.prompt = parse_tokens(command.tokens);
  } else {
    const std::vector<text::Message> messages = {{.role = "user", .content = command.prompt}};
    auto ids = command.chat ? local.text().encode_chat(messages)
                            : local.text().encode_prompt(command.prompt);
    if (!ids.ok()) fail(ids.status());
    request.prompt = std::move(ids).value();
  }
  auto printer = std::make_shared<Printer>(out, local.text().tokenizer == nullptr);
  local.submit(std::move(request), printer);
  local.run();
  const Outcome& end = printer->outcome();
  if (!end.error.ok()) fail(end.error);
  if (!command.stats) return;
  const double decode_ms = end.total_ms - end.first_token_ms;
  const nlohmann::json figures = {
      {"prompt_tokens", end.prompt_tokens},
      {"completion_tokens", end.completion_tokens},
      {"first_token_ms", end.first_token_ms},
      {"total_ms", end.total_ms},
      {"decode_tok_s", decode_ms > 0 ? (end.completion_tokens - 1) * 1000.0 / decode_ms : 0.0}};
  log << figures.dump() << std::endl;
}

void score(const LocalModel& where, const std::string& tokens, const base::Clock& clock,
           std::ostream& out) {
  Local local(where, one_request(), clock);
  Request request;
  request.prompt = parse_tokens(tokens);
  request.max_tokens = 0;
  request.echo = true;
  request.top_logprobs = 0;
  auto collector = std::make_shared<Collector>();
  local.submit(std::move(request), collector);
  local.run();
  if (!collector->outcome.error.ok()) fail(collector->outcome.error);
  nlohmann::json values = nlohmann::json::array();
  for (const TokenLogprob& entry : collector->logprobs) {
    if (entry.logprob) values.push_back(*entry.logprob);
  }
  out << values.dump() << std::endl;
}

void measure(const LocalModel& where, const MeasureCommand& command, const base::Clock& clock,
             std::ostream& out) {
  using Seconds = std::chrono::duration<double>;
  const auto began = std::chrono::steady_clock::now();
  Local local(where, {.max_running = command.batch}, clock);
  const double load_s = Seconds(std::chrono::steady_clock::now() - began).count();
  const std::vector<int32_t> given = parse_tokens(command.tokens);
  if (!given.empty() && static_cast<int32_t>(given.size()) < command.prompt_tokens) {
    throw std::runtime_error("--tokens: has " + std::to_string(given.size()) +
                             " ids, --prompt-tokens wants " +
                             std::to_string(command.prompt_tokens));
  }
  const Adapters adapters = adapters_in_turn(local, command);
  std::vector<double> prefill, decode, ttft;
  std::vector<int32_t> generated;
  for (int32_t run = 0; run <= command.repeats; ++run) {
    std::vector<std::shared_ptr<Collector>> rows;
    const auto start = std::chrono::steady_clock::now();
    for (int32_t row = 0; row < command.batch; ++row) {
      Request request;
      for (int64_t i = 0; i < command.prompt_tokens; ++i) {
        const int64_t formula = (7919 * (int64_t{row} * command.prompt_tokens + i) + 17) %
                                local.model().config.vocab_size;
        request.prompt.push_back(given.empty() ? static_cast<int32_t>(formula) : given[i]);
      }
      // The first id says which run it is: a prefix in the cache must not make a prefill free.
      if (run > 0)
        request.prompt[0] =
            (request.prompt[0] + run) % static_cast<int32_t>(local.model().config.vocab_size);
      request.max_tokens = command.new_tokens;
      request.sampling.temperature = 0;
      request.ignore_eos = true;
      rows.push_back(std::make_shared<Collector>());
      if (adapters.empty()) {
        local.submit(std::move(request), rows.back());
      } else {
        local.submit(std::move(request), rows.back(),
                     adapters[static_cast<size_t>(row) % adapters.size()]);
      }
    }
    local.run();
    Collector::Time first = start, last = start;
    for (const auto& row : rows) {
      if (!row->outcome.error.ok()) fail(row->outcome.error);
      first = std::max(first, row->first);
      last = std::max(last, row->last);
    }
    if (run == 0) {
      generated = rows[0]->tokens;
      continue;
    }
    const double to_first = Seconds(first - start).count(), rest = Seconds(last - first).count();
    ttft.push_back(to_first);
    prefill.push_back(command.batch * command.prompt_tokens / to_first);
    decode.push_back(command.batch * (command.new_tokens - 1) / rest);
  }
  nlohmann::json figures = {{"engine", "dex"},
                            {"batch", command.batch},
                            {"prompt_tokens", command.prompt_tokens},
                            {"new_tokens", command.new_tokens},
                            {"threads", local.engine().threads()},
                            {"weights", dtype_name(local.model())},
                            {"load_s", load_s},
                            {"prefill_tok_s", spread(prefill)},
                            {"decode_tok_s", spread(decode)},
                            {"ttft_s", spread(ttft)},
                            {"generated", generated},
                            {"peak_rss_mib", peak_rss_mib()}};
  if (!adapters.empty()) {
    int64_t bytes = 0;
    for (const auto& adapter : adapters) bytes += adapter->bytes;
    figures["adapters"] = adapters.size();
    figures["adapter_bytes"] = bytes;
  }
  out << figures.dump() << std::endl;
}

}  // namespace dex::serve
