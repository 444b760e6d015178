#include "worker/evaluate/perplexity.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>
#include <span>
#include <stdexcept>
#include <utility>

#include "services/text/utf8.h"
#include "worker/evaluate/batches.h"
#include "worker/evaluate/perplexity_windows.h"

namespace dex::evaluate {
namespace {

enum : int32_t { kLoss, kPerplexity, kBits };

// No tokenizer's tokens are longer than this on average: text beyond it can't be needed for
// max_tokens, and is not tokenised.
constexpr int64_t kMostBytesAToken = 64;
constexpr int32_t kUsualWidth = 2048;

// From one power of two to the next; the shortest are one.
std::string length_bucket(int32_t tokens) {
  constexpr int32_t kShort = 64;
  if (tokens < kShort) return "1-63";
  const uint32_t low = std::bit_floor(static_cast<uint32_t>(tokens));
  return std::to_string(low) + "-" + std::to_string(2 * low - 1);
}

// Puts the negative log-likelihood of each token that `windows` score at its place in `nll`.
void score(Subject& subject, const std::vector<int32_t>& tokens, std::span<const Window> windows,
           const std::stop_token& stop, std::vector<double>& nll) {
  std::vector<Subject::Scoring> items;
  for (const Window& w : windows)
    items.push_back({{tokens.begin() + w.begin, tokens.begin() + w.end}, w.first - w.begin});
  const auto scores = subject.score(items, stop);
  for (size_t i = 0; i < windows.size(); ++i) {
    int32_t at = windows[i].first;
    for (const float logprob : scores[i]) nll[at++] = -static_cast<double>(logprob);
  }
}

}  // namespace

// Tokens [begin, end) that a resample keeps or leaves together.
struct Perplexity::Unit {
  int32_t begin = 0, end = 0;
  double bytes = 0;
  size_t document = 0;
};

// The text as one subject reads it.
struct Perplexity::Reading {
  std::vector<int32_t> tokens;  // behind BOS, where the model has it so
  std::vector<Unit> units;
};

Perplexity::Perplexity(Options options, TextFile file)
    : options_(std::move(options)), file_(std::move(file)) {
  const auto most = static_cast<size_t>(options_.max_tokens * kMostBytesAToken);
  for (const TextDocument& document : file_.documents) {
    if (text_.size() > most) break;
    if (!text_.empty()) text_ += "\n\n";
    begins_.push_back(text_.size());
    text_ += document.text;
  }
  if (text_.size() > most) text_.resize(text::utf8_prefix(text_, most));
}

std::vector<Metric> Perplexity::metrics() const {
  std::vector<std::vector<std::string>> groupings = {{}};
  for (const std::string& key : options_.group_by) groupings.push_back({key});
  const auto metric = [&](const char* name, bool exponential) {
    return Metric{name, IntervalKind::kBootstrap, true, exponential, groupings};
  };
  return {metric("loss", false), metric("perplexity", true), metric("bits_per_byte", false)};
}

int32_t Perplexity::width_for(const Subject& subject) const {
  const int32_t trained = subject.trained_context();
  const int32_t width =
      options_.context_length > 0 ? options_.context_length : std::min(kUsualWidth, trained);
  if (width > trained && !options_.allow_extrapolation) {
    throw std::runtime_error("a context of " + std::to_string(width) + " tokens is beyond the " +
                             std::to_string(trained) +
                             " that the model was trained for; ask for less with --context-length, "
                             "or add --allow-extrapolation to measure it all the same");
  }
  return width;
}

Dims Perplexity::dims_of(const TextDocument& document, int32_t tokens) const {
  Dims out;
  for (const std::string& key : options_.group_by) {
    if (key == "length_bucket") {
      if (!file_.raw) out.emplace_back(key, length_bucket(tokens));
      continue;
    }
    const std::string& value = key == "tag" ? document.tag : document.language;
    if (!value.empty()) out.emplace_back(key, value);
  }
  return out;
}

// Token i begins at starts[i]; BOS tokens in front, which have no byte, are not among them.
std::vector<Perplexity::Unit> Perplexity::units_of(const std::vector<uint32_t>& starts,
                                                   size_t bytes, int32_t bos) const {
  std::vector<Unit> out;
  size_t document = 0;
  const auto byte = [&](size_t token) { return token < starts.size() ? starts[token] : bytes; };
  // Without BOS the first token has nothing before it and is not scored.
  for (size_t token = bos > 0 ? 0 : 1; token < starts.size(); ++token) {
    const size_t before = document;
    while (document + 1 < begins_.size() && begins_[document + 1] <= starts[token]) ++document;
    const auto position = static_cast<int32_t>(token) + bos;
    const bool full = file_.raw && !out.empty() && position - out.back().begin == kBlockTokens;
    if (out.empty() || before != document || full) out.push_back({position, position, 0, document});
    out.back().end = position + 1;
    out.back().bytes += static_cast<double>(byte(token + 1) - starts[token]);
  }
  return out;
}

Perplexity::Reading Perplexity::reading_of(const Subject& subject) const {
  auto encoding = subject.encode_with_starts(text_);
  const auto most = static_cast<size_t>(options_.max_tokens);
  const size_t bytes = encoding.ids.size() > most ? encoding.starts[most] : text_.size();
  encoding.ids.resize(std::min(encoding.ids.size(), most));
  encoding.starts.resize(encoding.ids.size());
  Reading out;
  if (const auto bos = subject.bos()) out.tokens.push_back(*bos);
  out.units = units_of(encoding.starts, bytes, static_cast<int32_t>(out.tokens.size()));
  out.tokens.insert(out.tokens.end(), encoding.ids.begin(), encoding.ids.end());
  if (out.tokens.size() < 2)
    throw std::runtime_error("the text has a single token; perplexity needs two at least");
  return out;
}

void Perplexity::observe(const Subject& subject, const Hooks& hooks, const Unit& unit, int64_t item,
                         double nll, std::vector<Observation>& out) const {
  const TextDocument& document = file_.documents[unit.document];
  const Dims dims = dims_of(document, unit.end - unit.begin);
  const double tokens = unit.end - unit.begin;
  out.push_back({kLoss, item, dims, nll, tokens});
  out.push_back({kPerplexity, item, dims, nll, tokens});
  out.push_back({kBits, item, dims, nll, std::numbers::ln2 * unit.bytes});
  if (!hooks.sample) return;
  hooks.sample({.task = name(),
                .subject = subject.label(),
                .item = item,
                .line = file_.raw ? 0 : document.line,
                .dims = dims,
                .output = std::to_string(nll / tokens) + " nats a token over " +
                          std::to_string(unit.end - unit.begin) + " tokens",
                .score = std::exp(-nll / tokens)});
}

void Perplexity::run(Subject& subject, const Hooks& hooks, std::vector<Observation>& out) {
  const int32_t width = width_for(subject);
  const int32_t stride = options_.stride > 0 ? options_.stride : std::max(1, width / 2);
  const Reading reading = reading_of(subject);
  const auto count = static_cast<int32_t>(reading.tokens.size());
  const std::vector<Window> windows = perplexity_windows(count, width, stride);
  hooks.say(std::to_string(count - 1) + " tokens scored, " + std::to_string(windows.size()) +
            " windows of at most " + std::to_string(width) + " tokens with stride " +
            std::to_string(stride) + "; intervals resample " +
            std::to_string(reading.units.size()) +
            (file_.raw ? " blocks of " + std::to_string(kBlockTokens) + " tokens" : " documents"));
  if (width > subject.trained_context())
    hooks.say("extrapolated: the context is longer than the model was trained for");

  std::vector<double> nll(reading.tokens.size(), 0);
  size_t complete = 0;  // units whose every token is scored
  const auto tokens_of = [&](size_t i) { return int64_t{windows[i].end} - windows[i].begin; };
  constexpr int64_t kTokensARun = 8192;
  for (const Run& run : in_runs(windows.size(), tokens_of, kTokensARun, windows.size())) {
    score(subject, reading.tokens, std::span(windows).subspan(run.begin, run.end - run.begin),
          hooks.stop, nll);
    const int32_t scored = windows[run.end - 1].end;
    for (; complete < reading.units.size() && reading.units[complete].end <= scored; ++complete) {
      const Unit& unit = reading.units[complete];
      const double sum = std::accumulate(nll.begin() + unit.begin, nll.begin() + unit.end, 0.0);
      observe(subject, hooks, unit, static_cast<int64_t>(complete), sum, out);
    }
    hooks.report(subject, scored - 1, count - 1);
  }
}

}  // namespace dex::evaluate
