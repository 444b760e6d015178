#include "worker/evaluate/multi_needle.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "worker/evaluate/batches.h"
#include "worker/evaluate/prompt_parts.h"

namespace dex::evaluate {
namespace {

enum : int32_t { kNeedleAccuracy, kAllNeedles, kAttentionAnswer, kAttentionNoise, kAttentionRest };

// Parts with a metric of their own from kAttentionRest on.
constexpr std::array kRest = {PromptPart::kOtherNeedles, PromptPart::kFiller,
                              PromptPart::kFirstToken, PromptPart::kQuestion};

constexpr int32_t kShortestLength = 1024;
constexpr int32_t kSamplesOfMethod = 50;
// Below this a haystack may be short of filler because one sentence does not fit.
constexpr int32_t kCoarseFiller = 512;

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what);
}

std::string number(int64_t value) {
  return std::to_string(value);
}

// Names the lengths whose rows are beyond what the model was trained for.
void say_extrapolated(const Subject& subject, const std::vector<int32_t>& lengths,
                      const Hooks& hooks) {
  std::string beyond;
  for (const int32_t length : lengths) {
    if (length > subject.trained_context()) beyond += (beyond.empty() ? "" : ", ") + number(length);
  }
  if (beyond.empty()) return;
  hooks.say("extrapolated: rows of length " + beyond + " are beyond the " +
            number(subject.trained_context()) +
            " tokens that the model was trained for, and so is what is over every length");
}

}  // namespace

// The filler's sentences with what each costs in the subject's tokens, counted when first used: a
// corpus is mostly larger than what the haystacks need.
struct MultiNeedle::Filler {
  const Subject& subject;
  const std::vector<std::string>& sentences;
  std::vector<int32_t> counts;

  int32_t count(size_t i) {
    if (counts[i] < 0)
      counts[i] = static_cast<int32_t>(subject.encode_with_starts(" " + sentences[i]).ids.size());
    return counts[i];
  }
};

struct MultiNeedle::Prompt {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> parts;
  std::string text;      // as people read it: with `chat` the message
  std::string rendered;  // what became tokens
  NeedleDraw draw;
  int32_t queries = 0;
  Dims dims;
};

std::vector<MultiNeedle::Setting> MultiNeedle::settings_of(const Options& options) {
  const bool given = !options.needle_counts.empty();
  const std::vector<int32_t> counts = given ? options.needle_counts : std::vector{options.needles};
  const std::vector<int32_t>& queries = options.query_counts;
  if (queries.size() > 1 && queries.size() != counts.size()) {
    fail("--n-queries must be one number, or one for each of the " + number(std::ssize(counts)) +
         " of --n-needles, got " + number(std::ssize(queries)));
  }
  std::vector<Setting> out;
  for (size_t i = 0; i < counts.size(); ++i) {
    const int32_t usual = given ? std::min(options.queries, counts[i]) : options.queries;
    const Setting setting = {counts[i],
                             queries.empty() ? usual : queries[queries.size() == 1 ? 0 : i]};
    if (setting.needles < 1 || setting.needles > most_needles())
      fail("--n-needles must be from 1 to " + number(most_needles()) + ", got " +
           number(setting.needles));
    if (setting.queries < 1 || setting.queries > setting.needles)
      fail("--n-queries must be from 1 to the " + number(setting.needles) + " needles, got " +
           number(setting.queries));
    if (std::ranges::find(out, setting.needles, &Setting::needles) != out.end())
      fail("--n-needles names " + number(setting.needles) + " twice");
    out.push_back(setting);
  }
  return out;
}

std::string MultiNeedle::settings_text(const Options& options) {
  std::string out;
  for (const Setting& setting : settings_of(options)) {
    out += (out.empty() ? "" : "; ") + number(setting.needles) +
           (setting.needles == 1 ? " needle, " : " needles, ") + number(setting.queries) +
           " asked for";
  }
  return out;
}

MultiNeedle::MultiNeedle(Options options, const TextFile& filler)
    : options_(std::move(options)), settings_(settings_of(options_)) {
  if (options_.samples_per_cell < 1)
    fail("--samples-per-cell must be at least 1, got " + number(options_.samples_per_cell));
  for (const int32_t depth : options_.depths_percent) {
    if (depth < 0 || depth > 100)
      fail("--depths-percent must be from 0 to 100, got " + number(depth));
  }
  for (const TextDocument& document : filler.documents) {
    for (std::string& sentence : split_sentences(document.text))
      sentences_.push_back(std::move(sentence));
  }
  if (sentences_.empty()) fail("the filler text has no sentence");
}

std::vector<Metric> MultiNeedle::metrics() const {
  std::vector<std::vector<std::string>> groupings = {{}, {"length"}, {"length", "depth"}},
                                        by_length = {{}, {"length"}};
  if (settings_.size() > 1) {
    for (auto* each : {&groupings, &by_length}) {
      for (auto& dims : *each) dims.insert(dims.begin(), "needles");
    }
  }
  constexpr auto kBootstrap = IntervalKind::kBootstrap;
  std::vector<Metric> out = {{"accuracy", IntervalKind::kWilson, false, false, groupings},
                             {"all", IntervalKind::kWilson, false, false, groupings},
                             {"attention_answer", kBootstrap, false, false, groupings},
                             {"attention_noise", kBootstrap, true, false, groupings}};
  for (const PromptPart part : kRest) {
    // Noise is better left alone; a sink and the question are neither good nor bad.
    const bool noise = part == PromptPart::kOtherNeedles || part == PromptPart::kFiller;
    out.push_back({"attention_" + std::string(evaluate::name(part)), kBootstrap, true, false,
                   by_length, noise});
  }
  return out;
}

std::vector<int32_t> MultiNeedle::lengths_for(const Subject& subject) const {
  const int32_t limit = subject.trained_context();
  std::vector<int32_t> out = options_.lengths;
  if (out.empty()) {
    for (int32_t length = kShortestLength; length <= limit; length *= 2) out.push_back(length);
    if (out.empty()) out.push_back(limit);
  }
  for (const int32_t length : out) {
    if (length > limit && !options_.allow_extrapolation) {
      fail("a length of " + number(length) + " tokens is beyond the " + number(limit) +
           " that the model was trained for; ask for less with --lengths, or add "
           "--allow-extrapolation to measure it all the same");
    }
  }
  return out;
}

void MultiNeedle::ask(const Subject& subject, const std::string& haystack,
                      const NeedleQuestion& question, Prompt& prompt) const {
  prompt.text = haystack + "\n\nQuestion: " + question.question;
  if (options_.chat) {
    const std::vector<text::Message> messages = {
        {.role = "user", .content = prompt.text + " Answer with the numbers."}};
    prompt.tokens = subject.encode_chat(messages);
    prompt.rendered = subject.render_chat(messages);
    return;
  }
  prompt.text += "\nAnswer: " + question.beginning;
  prompt.tokens = subject.encode(prompt.text);
  prompt.rendered = prompt.text;
}

void MultiNeedle::find_parts(const Subject& subject, const std::string& haystack, Prompt& prompt) {
  std::vector<std::string> needles;
  for (const Needle& needle : prompt.draw.needles) needles.push_back(sentence_of(needle));
  prompt.parts =
      prompt_parts({.text = prompt.rendered, .haystack = haystack, .needles = needles},
                   subject.encode_with_starts(prompt.rendered).starts, prompt.tokens.size());
}

MultiNeedle::Prompt MultiNeedle::prompt_for(const Subject& subject, Filler& filler,
                                            const Cell& cell, uint64_t draw) const {
  Prompt out;
  const int32_t length = cell.length, needles = cell.setting.needles;
  out.queries = cell.setting.queries;
  out.draw = draw_needles(needles, cell.depth / 100.0, static_cast<uint32_t>(sentences_.size()),
                          options_.seed, draw);
  const NeedleQuestion question = ask_for(out.draw.needles, out.queries);
  const int32_t for_answer = answer_tokens(cell.setting), room = length - for_answer;
  // What stands there without any filler; the rest of the length is for sentences.
  std::vector<std::string> sentences;
  std::vector<int32_t> counts;
  ask(subject, build_haystack({}, {}, out.draw), question, out);
  const auto bare = static_cast<int32_t>(out.tokens.size());
  if (bare > room) {
    fail("the needles do not fit: " + number(needles) + " needles, the question and " +
         number(for_answer) + " tokens for the answer need " + number(bare + for_answer) +
         " tokens, the length is " + number(length) +
         "; ask for longer ones with --lengths or for fewer with --n-needles");
  }
  int32_t used = bare;
  for (size_t i = out.draw.filler_start;; i = (i + 1) % sentences_.size()) {
    if (used + filler.count(i) > room) break;
    used += filler.count(i);
    sentences.push_back(sentences_[i]);
    counts.push_back(filler.count(i));
  }
  if (room - bare > kCoarseFiller && used - bare < (room - bare) / 2) {
    fail("the filler's sentences are too long to be cut to " + number(length) +
         " tokens: the next one has " +
         number(filler.count((out.draw.filler_start + sentences.size()) % sentences_.size())) +
         "; give a text of ordinary sentences as --file");
  }
  // Sentences cost a little more or less together than alone; the last ones make room.
  std::string haystack;
  for (;;) {
    haystack = build_haystack(sentences, counts, out.draw);
    ask(subject, haystack, question, out);
    if (static_cast<int32_t>(out.tokens.size()) <= room || sentences.empty()) break;
    sentences.pop_back();
    counts.pop_back();
  }
  find_parts(subject, haystack, out);
  out.dims = {{"length", number(length)}, {"depth", number(cell.depth)}};
  if (settings_.size() > 1) out.dims.emplace(out.dims.begin(), "needles", number(needles));
  return out;
}

std::vector<MultiNeedle::Cell> MultiNeedle::cells_for(const std::vector<int32_t>& lengths) const {
  std::vector<Cell> out;
  for (const Setting& setting : settings_) {
    for (const int32_t length : lengths) {
      for (const int32_t depth : options_.depths_percent) {
        out.insert(out.end(), static_cast<size_t>(options_.samples_per_cell),
                   Cell{setting, length, depth});
      }
    }
  }
  return out;
}

void MultiNeedle::observe(const Subject& subject, const Hooks& hooks, const Prompt& prompt,
                          const Subject::Generated& answer, int64_t item,
                          std::vector<Observation>& out) const {
  const int32_t found = numbers_found(answer.text, prompt.draw.needles, prompt.queries);
  const double asked = prompt.queries;
  out.push_back({kNeedleAccuracy, item, prompt.dims, static_cast<double>(found), asked});
  out.push_back({kAllNeedles, item, prompt.dims, found == prompt.queries ? 1.0 : 0.0, 1});
  const auto share = [&](PromptPart part) {
    // A part that no token of the prompt has is not among the shares.
    const auto at = static_cast<size_t>(part);
    return at < answer.attention.size() ? answer.attention[at] : 0.0;
  };
  if (!answer.attention.empty()) {
    out.push_back({kAttentionAnswer, item, prompt.dims, share(PromptPart::kAnswer), 1});
    out.push_back({kAttentionNoise, item, prompt.dims,
                   share(PromptPart::kOtherNeedles) + share(PromptPart::kFiller), 1});
    for (size_t i = 0; i < kRest.size(); ++i)
      out.push_back(
          {kAttentionRest + static_cast<int32_t>(i), item, prompt.dims, share(kRest[i]), 1});
  }
  if (answer.attention_magnitudes)
    hooks.say("attention of " + subject.label() +
              ": some of its weights are below 0; the shares are of their magnitudes");
  if (!hooks.sample) return;
  Sample sample{.task = name(),
                .subject = subject.label(),
                .item = item,
                .dims = prompt.dims,
                .prompt = prompt.text,
                .output = answer.text,
                .score = found / asked};
  if (!answer.attention.empty()) {
    for (const PromptPart part : kPromptParts)
      sample.attention.emplace_back(evaluate::name(part), share(part));
  }
  for (int32_t n = 0; n < prompt.queries; ++n)
    sample.expected += (n > 0 ? " " : "") + prompt.draw.needles[n].number;
  hooks.sample(sample);
}

void MultiNeedle::run(Subject& subject, const Hooks& hooks, std::vector<Observation>& out) {
  const std::vector<int32_t> lengths = lengths_for(subject);
  const std::vector<Cell> cells = cells_for(lengths);
  Filler filler{subject, sentences_, std::vector<int32_t>(sentences_.size(), -1)};
  // The shortest length is refused before anything is computed.
  for (const Setting& setting : settings_) {
    static_cast<void>(
        prompt_for(subject, filler, {setting, *std::ranges::min_element(lengths), 0}, 0));
  }
  if (options_.samples_per_cell < kSamplesOfMethod)
    hooks.say(number(options_.samples_per_cell) + " samples a cell; a firm grid needs " +
              number(kSamplesOfMethod));
  say_extrapolated(subject, lengths, hooks);

  const auto tokens_of = [&](size_t i) { return int64_t{cells[i].length}; };
  constexpr int64_t kTokensARun = 8192;
  constexpr size_t kPromptsARun = 16;
  const size_t samples_a_setting = cells.size() / settings_.size();
  for (const Run& run : in_runs(cells.size(), tokens_of, kTokensARun, kPromptsARun)) {
    std::vector<Prompt> prompts;
    std::vector<Subject::Generation> items;
    for (size_t i = run.begin; i < run.end; ++i) {
      prompts.push_back(prompt_for(subject, filler, cells[i], i % samples_a_setting));
      items.push_back({.prompt = std::move(prompts.back().tokens),
                       .max_tokens = answer_tokens(cells[i].setting),
                       .parts = std::move(prompts.back().parts)});
      if (!options_.chat) items.back().stop = {"\n"};
    }
    const std::vector<Subject::Generated> answers = subject.generate(items, hooks.stop);
    for (size_t i = 0; i < answers.size(); ++i)
      observe(subject, hooks, prompts[i], answers[i], static_cast<int64_t>(run.begin + i), out);
    hooks.report(subject, static_cast<int64_t>(run.end), static_cast<int64_t>(cells.size()));
  }
}

}  // namespace dex::evaluate
