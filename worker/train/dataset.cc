#include "worker/train/dataset.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_set>

#include "services/base/sha256.h"
#include "services/data/dataset.h"
#include "services/data/split.h"
#include "services/text/model_text.h"
#include "worker/train/failure.h"
#include "worker/train/general_text.h"
#include "worker/train/resolve.h"

namespace dex::train {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// Short rows: many kinds of text, and many rows for an interval to draw from.
constexpr int32_t kGuardRowTokens = 256;
constexpr int64_t kGuardTokens = 4096;

[[noreturn]] void bad_data(const fs::path& file, const std::string& what) {
  throw Failure(Exit::kBadData, "invalid_training_file", file.filename().string() + ": " + what,
                file.filename().string());
}

text::ModelText load_text(const fs::path& folder) {
  auto model = text::ModelText::load(folder);
  if (!model.ok()) throw Failure(Exit::kBrokenInput, "internal", model.status().message(), "model");
  return std::move(model).value();
}

std::string checked_hash(const fs::path& file, const std::string& expected) {
  auto hash = base::sha256_file(file);
  if (!hash.ok()) bad_data(file, hash.status().message());
  if (!expected.empty() && hash.value() != expected) {
    bad_data(file, "has SHA-256 " + hash.value() + ", expected " + expected);
  }
  return std::move(hash).value();
}

// Reads files as the job's spec wants them.
class Loader {
 public:
  Loader(const JobSpec& spec, const model::Config& config) : model_(load_text(spec.model_dir)) {
    options_.encoder.train_on_inputs = spec.hyperparameters.train_on_inputs.value_or(false);
    options_.encoder.vocab_size = static_cast<int32_t>(config.vocab_size);
    options_.encoder.truncation = spec.hyperparameters.truncation;
    options_.skip_budget_ratio = spec.skip_budget_ratio;
  }

  const text::ModelText& model() const { return model_; }

  // The p99.5 of the rows' lengths before any is cut. Reads the whole file, but only specs that
  // leave the length open ask for it.
  int64_t usual_length(const fs::path& file) const {
    data::LoadOptions counting = options_;
    counting.keep_examples = false;
    return load(file, counting).tokens.lengths.quantile(0.995);
  }

  // `preset`: whose warnings are wanted; empty: none.
  data::EncodedDataset load(const fs::path& file, int32_t max_seq_length,
                            const std::string& preset) const {
    data::LoadOptions options = options_;
    options.encoder.max_seq_length = max_seq_length;
    options.preset = preset;
    return load(file, options);
  }

 private:
  data::EncodedDataset load(const fs::path& file, const data::LoadOptions& options) const {
    auto loaded =
        data::load_encoded(file, model_.tokenizer.get(), model_.chat_template.get(), options);
    if (!loaded.ok()) bad_data(file, loaded.status().message());
    return std::move(loaded).value();
  }

  text::ModelText model_;
  data::LoadOptions options_;
};

// Which group a row is of, where the job draws by groups.
std::string group_of(const data::Example& row, GroupBy by) {
  if (by == GroupBy::kNone) return "";
  const std::string& name = by == GroupBy::kTag ? row.tag : row.language;
  return name.empty() ? kNoGroup : name;
}

std::set<std::string> groups_of_file(const data::EncodedDataset& loaded, GroupBy by) {
  std::set<std::string> out;
  if (by == GroupBy::kNone) return out;
  const data::Statistics& rows = loaded.rows;
  int64_t named = 0;
  for (const auto& [name, count] :
       (by == GroupBy::kTag ? rows.rows_by_tag : rows.rows_by_language).all()) {
    out.insert(name);
    named += count;
  }
  if (named < rows.rows_good) out.insert(kNoGroup);
  return out;
}

std::vector<Example> examples_of(data::EncodedDataset& loaded, GroupBy by = GroupBy::kNone) {
  std::vector<Example> out;
  for (data::Example& each : loaded.examples) {
    std::string group = group_of(each, by);
    out.push_back({std::move(each.encoded.ids), std::move(each.encoded.weights), each.content_hash,
                   std::move(group)});
  }
  return out;
}

HeldOutRow origin_of(const data::Example& row, const Example& example) {
  return {row.line, row.tag, row.language, static_cast<int64_t>(example.ids.size())};
}

// `loaded`: what the examples were made of.
void split(std::vector<Example> examples, const data::EncodedDataset& loaded, const JobSpec& spec,
           Dataset& out) {
  std::vector<uint64_t> hashes;
  for (const Example& example : examples) hashes.push_back(example.hash);
  const double ratio = spec.validation_split >= 0
                           ? spec.validation_split
                           : data::auto_split_ratio(loaded.tokens.rows_trained, false);
  const std::vector<bool> held_out = data::split_rows(hashes, spec.seed, ratio);
  for (size_t i = 0; i < examples.size(); ++i) {
    if (held_out[i]) out.validation_rows.push_back(origin_of(loaded.examples[i], examples[i]));
    (held_out[i] ? out.validation : out.train).push_back(std::move(examples[i]));
  }
}

std::string counted(int64_t count, const char* one, const char* more) {
  return std::to_string(count) + (count == 1 ? one : more);
}

// "2298 examples of at most 512 tokens to train on (1118212 tokens), 603 held out"
std::string summary(const Dataset& data, const data::EncodedDataset& training) {
  std::string text = counted(static_cast<int64_t>(data.train.size()), " example", " examples") +
                     " of at most " + std::to_string(data.max_seq_length) +
                     " tokens to train on (" + std::to_string(total_tokens(data.train)) +
                     " tokens), " + std::to_string(data.validation.size()) + " held out";
  // Chunks lose nothing, so they are no reason to warn.
  if (training.tokens.sequences > training.tokens.rows_trained) {
    text += ". Longer rows were split and nothing of them is lost: " +
            counted(training.tokens.rows_trained, " row", " rows") + " gave " +
            std::to_string(training.tokens.sequences) + " examples";
  }
  return text;
}

void report(const Dataset& data, const data::EncodedDataset& training, Session& session) {
  int64_t trainable = 0;
  for (const Example& example : data.train) trainable += trainable_tokens(example);
  json dropped = json::object();
  for (const auto& [code, rows] : training.dropped) dropped[code] = std::to_string(rows.rows);
  const json event = {
      {"rows", std::to_string(training.rows.rows_good + training.rows.rows_skipped)},
      {"dropped", dropped},
      {"tokens", std::to_string(total_tokens(data.train))},
      {"trainableTokens", std::to_string(trainable)},
      {"validRows", std::to_string(data.validation.size())},
      {"validTokens", std::to_string(total_tokens(data.validation))}};
  session.event(
      {Event::Level::kInfo, "validation_complete", summary(data, training), event.dump()});
}

// What the user should know of the rows, each kind of it once.
void report_warnings(const Dataset& data, const data::EncodedDataset& training, Session& session) {
  const auto warn = [&](const std::string& code, const std::string& detail) {
    const json warning = {{"code", code}, {"path", "training_file"}, {"detail", detail}};
    session.event({Event::Level::kWarn, "warning", code + ": " + detail, warning.dump()});
  };
  for (const auto& [code, rows] : training.dropped) {
    const int64_t first = rows.lines.front();
    const auto why = std::find_if(training.findings.begin(), training.findings.end(),
                                  [&](const data::Finding& finding) {
                                    return finding.line == first && finding.code == code;
                                  });
    warn(code,
         counted(rows.rows, " row is not used: line ", " rows are not used, the first: line ") +
             std::to_string(first) + (why == training.findings.end() ? "" : ": " + why->message));
  }
  const data::TokenStatistics& tokens = training.tokens;
  if (tokens.truncated_rows > 0) {
    warn("truncated", counted(tokens.truncated_rows, " row loses ", " rows lose ") +
                          counted(tokens.truncated_tokens, " token", " tokens") +
                          " to max_seq_length " + std::to_string(data.max_seq_length) + ", " +
                          std::to_string(tokens.truncated_trainable_tokens) +
                          " of them trained ones");
  }
  for (const data::Finding& finding : training.findings) {
    if (finding.code.starts_with("preset_")) warn(finding.code, finding.message);
  }
  std::unordered_set<uint64_t> hashes;
  for (const Example& example : data.train) hashes.insert(example.hash);
  const auto overlap =
      std::count_if(data.validation.begin(), data.validation.end(),
                    [&](const Example& example) { return hashes.contains(example.hash); });
  if (overlap > 0) {
    warn("valid_overlaps_train",
         counted(overlap, " held-out row is", " held-out rows are") + " trained on too");
  }
}

std::vector<Example> general_examples(const text::ModelText& model) {
  if (!model.tokenizer) {
    throw bad_spec("watchdog.base_guard.probe_file",
                   "must be given: the model's folder has no tokenizer for the general text");
  }
  std::vector<Example> out;
  for (const std::string_view text : general_texts()) {
    auto ids = model.tokenizer->encode(text, true);
    if (!ids.ok()) throw Failure(Exit::kBrokenInput, "internal", ids.status().message(), "model");
    out.push_back({std::move(ids).value(), {}});
  }
  return out;
}

// As the rows of a job that trains on them: whoever measures takes the first tokens of each.
std::vector<Example> load_calibration(const JobSpec& spec, const model::Config& config,
                                      int32_t max_seq_length) {
  checked_hash(spec.calibration_path, spec.calibration_sha256);
  JobSpec as_calibration = spec;
  as_calibration.hyperparameters.truncation = text::Truncation::kRight;
  const Loader loader(as_calibration, config);
  const int64_t limit = std::min<int64_t>(std::max(spec.calibration.seq_length, max_seq_length),
                                          config.max_position_embeddings);
  data::EncodedDataset loaded = loader.load(spec.calibration_path, static_cast<int32_t>(limit), "");
  std::vector<Example> rows = examples_of(loaded);
  if (rows.empty()) bad_data(spec.calibration_path, "too_few_rows: no row is left to measure on");
  return rows;
}

}  // namespace

std::vector<Example> load_probe(const JobSpec& spec, const model::Config& config) {
  JobSpec as_probe = spec;
  as_probe.hyperparameters.train_on_inputs = true;
  as_probe.hyperparameters.truncation = text::Truncation::kRight;
  const Loader loader(as_probe, config);
  const auto limit =
      static_cast<size_t>(std::min<int64_t>(kGuardRowTokens, config.max_position_embeddings));
  std::vector<Example> rows;
  if (spec.probe_path.empty()) {
    rows = general_examples(loader.model());
  } else {
    checked_hash(spec.probe_path, spec.probe_sha256);
    data::EncodedDataset loaded = loader.load(spec.probe_path, static_cast<int32_t>(limit), "");
    rows = examples_of(loaded);
  }
  std::vector<Example> probe;
  int64_t tokens = 0;
  for (Example& row : rows) {
    if (row.ids.size() > limit) row.ids.resize(limit);
    if (row.ids.size() < 2) continue;
    tokens += static_cast<int64_t>(row.ids.size());
    if (tokens > kGuardTokens && !probe.empty()) break;
    row.weights.assign(row.ids.size(), 1.0f);
    row.weights.front() = 0;
    probe.push_back(std::move(row));
  }
  if (probe.empty()) bad_data(spec.probe_path, "too_few_rows: no row has two tokens");
  return probe;
}

Dataset load_dataset(const JobSpec& spec, const model::Config& config, Session& session,
                     const std::function<void(Phase)>& enter_phase) {
  enter_phase(Phase::kLoadingDataset);
  Dataset out;
  out.training_sha256 = checked_hash(spec.training_path, spec.training_sha256);
  if (!spec.validation_path.empty()) {
    out.validation_sha256 = checked_hash(spec.validation_path, spec.validation_sha256);
  }
  const Loader loader(spec, config);
  const text::ModelText& model = loader.model();
  if (model.tokenizer) out.tokenizer_sha256 = model.tokenizer->sha256();
  if (model.chat_template) out.chat_template_sha256 = model.chat_template->sha256();

  enter_phase(Phase::kValidating);
  const bool open = !spec.hyperparameters.max_seq_length;
  out.max_seq_length = sequence_length(spec, open ? loader.usual_length(spec.training_path) : 0,
                                       config.max_position_embeddings);
  data::EncodedDataset training = loader.load(spec.training_path, out.max_seq_length, spec.preset);
  out.groups = groups_of_file(training, spec.hyperparameters.group_by);
  std::vector<Example> examples = examples_of(training, spec.hyperparameters.group_by);
  if (spec.validation_path.empty()) {
    split(std::move(examples), training, spec, out);
  } else {
    data::EncodedDataset validation = loader.load(spec.validation_path, out.max_seq_length, "");
    out.train = std::move(examples);
    out.validation = examples_of(validation);
    for (size_t i = 0; i < out.validation.size(); ++i)
      out.validation_rows.push_back(origin_of(validation.examples[i], out.validation[i]));
  }
  if (out.train.empty()) {
    bad_data(spec.training_path, "too_few_rows: no row is left to train on");
  }
  if (!spec.calibration_path.empty()) {
    out.calibration = load_calibration(spec, config, out.max_seq_length);
  }
  report(out, training, session);
  report_warnings(out, training, session);
  return out;
}

}  // namespace dex::train
