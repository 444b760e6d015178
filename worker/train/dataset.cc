#include "worker/train/dataset.h"

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_set>

#include "services/base/sha256.h"
#include "services/data/reader.h"
#include "services/text/chat_template.h"
#include "services/text/row_encoder.h"
#include "services/text/tokenizer.h"
#include "worker/train/failure.h"
#include "worker/train/resolve.h"

namespace dex::train {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

[[noreturn]] void bad_data(const fs::path& file, const std::string& what) {
  throw Failure(Exit::kBadData, "invalid_training_file", file.filename().string() + ": " + what,
                file.filename().string());
}

// What turns the model's rows of text into ids; both empty for a folder without a tokenizer.
struct TextModel {
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<text::ChatTemplate> chat_template;

  static TextModel load(const fs::path& folder) {
    TextModel out;
    if (!fs::exists(folder / "tokenizer.json")) return out;
    auto tokenizer = text::Tokenizer::load(folder);
    if (!tokenizer.ok())
      throw Failure(Exit::kBrokenInput, "internal", tokenizer.status().message(), "model");
    out.tokenizer = std::move(tokenizer).value();
    auto chat_template = text::ChatTemplate::load(folder);
    // A model without a template trains on everything but chats; the encoder says so by line.
    if (chat_template.ok()) out.chat_template = std::move(chat_template).value();
    return out;
  }
};

// A file's rows as whole examples, and what was dropped on the way.
struct LoadedFile {
  std::vector<Example> examples;
  std::vector<text::RowFormat> formats;  // of each example
  std::map<std::string, int64_t> dropped;
  std::string first_drop;  // "line 21: no_trainable_tokens: …"
  int64_t rows = 0;        // good and bad

  void drop(int64_t line, std::string_view code, const std::string& message) {
    ++dropped[std::string(code)];
    if (first_drop.empty())
      first_drop = "line " + std::to_string(line) + ": " + std::string(code) + ": " + message;
  }
  int64_t dropped_rows() const {
    int64_t count = 0;
    for (const auto& [code, number] : dropped) count += number;
    return count;
  }
};

std::string checked_hash(const fs::path& file, const std::string& expected) {
  auto hash = base::sha256_file(file);
  if (!hash.ok()) bad_data(file, hash.status().message());
  if (!expected.empty() && hash.value() != expected) {
    bad_data(file, "has SHA-256 " + hash.value() + ", expected " + expected);
  }
  return std::move(hash).value();
}

void add_structure_findings(const data::Report& report, const fs::path& file, LoadedFile& out) {
  for (const data::Finding& finding : report.first_findings) {
    if (finding.severity != data::Severity::kError) continue;
    if (out.first_drop.empty()) {
      out.first_drop = (finding.line > 0 ? "line " + std::to_string(finding.line) + ": " : "") +
                       finding.code + ": " + finding.message;
    }
  }
  if (!report.ready) {
    bad_data(file,
             out.first_drop.empty() || report.message.find(out.first_drop) != std::string::npos
                 ? report.message
                 : out.first_drop + " (" + report.message + ")");
  }
  std::set<int64_t> bad_lines;  // a row with two faults is one row
  for (const auto& finding : report.findings) {
    if (finding.severity == data::Severity::kError && bad_lines.insert(finding.line).second)
      ++out.dropped[finding.code];
  }
  out.rows += static_cast<int64_t>(bad_lines.size());
}

LoadedFile load_file(const fs::path& file, const text::RowEncoder& encoder, const TextModel& model,
                     double skip_budget_ratio) {
  data::Validator::Options options;
  options.skip_budget_ratio = skip_budget_ratio;
  options.limits.minimum_rows =
      1;  // the upload has judged the file; a measurement may well have two rows
  auto opened = data::RowReader::open(file, options);
  if (!opened.ok()) bad_data(file, opened.status().message());
  data::RowReader& reader = *opened.value();
  LoadedFile out;
  while (true) {
    auto next = reader.next();
    if (!next.ok()) bad_data(file, next.status().message());
    if (!next.value()) break;
    const data::Row& row = *next.value();
    ++out.rows;
    text::EncodedRow encoded = std::move(encoder.encode(row.content).front());
    if (encoded.drop) {
      out.drop(row.line, encoded.drop->code, encoded.drop->message);
      continue;
    }
    out.examples.push_back({std::move(encoded.ids), std::move(encoded.weights), row.line,
                            text::content_hash(row.content)});
    out.formats.push_back(row.content.format);
  }
  add_structure_findings(reader.report(), file, out);
  const std::string& declared = reader.report().tokenizer_sha256;
  if (!declared.empty() && model.tokenizer && declared != model.tokenizer->sha256()) {
    bad_data(file, "line 1: tokenizer_mismatch: ids were made with tokenizer " + declared +
                       ", the model has " + model.tokenizer->sha256());
  }
  return out;
}

// Cuts rows to `limit` ids (api.md §3, truncation) and drops what has nothing left to train on.
std::vector<Example> cut_rows(LoadedFile& file, int32_t limit, text::Truncation how,
                              bool keep_first, int64_t& truncated) {
  std::vector<Example> out;
  for (size_t i = 0; i < file.examples.size(); ++i) {
    Example& row = file.examples[i];
    if (static_cast<int32_t>(row.ids.size()) <= limit) {
      out.push_back(std::move(row));
      continue;
    }
    ++truncated;
    text::Truncation rule = how;
    if (how == text::Truncation::kAuto) {
      rule = file.formats[i] == text::RowFormat::kText ? text::Truncation::kChunk
                                                       : text::Truncation::kRight;
    }
    if (rule == text::Truncation::kError) {
      file.drop(
          row.line, "longer_than_context",
          std::to_string(row.ids.size()) + " tokens, max_seq_length is " + std::to_string(limit));
      continue;
    }
    const size_t before = out.size();
    for (auto& piece :
         text::cut({std::move(row.ids), std::move(row.weights)}, limit, rule, keep_first)) {
      Example example{std::move(piece.ids), std::move(piece.weights), row.line, row.hash};
      if (trainable_tokens(example) > 0) out.push_back(std::move(example));
    }
    if (out.size() == before) {
      file.drop(row.line, "no_trainable_tokens",
                "nothing to train on is left within " + std::to_string(limit) + " tokens");
    }
  }
  return out;
}

void check_budget(const fs::path& file, const LoadedFile& loaded, double ratio) {
  const int64_t dropped = loaded.dropped_rows();
  if (static_cast<double>(dropped) <= ratio * static_cast<double>(loaded.rows)) return;
  bad_data(file, loaded.first_drop + " (" + std::to_string(dropped) + " of " +
                     std::to_string(loaded.rows) +
                     " rows can't be used; skip_budget_ratio allows " + json(ratio).dump() + ")");
}

int64_t tokens_of(const std::vector<Example>& examples) {
  int64_t tokens = 0;
  for (const Example& example : examples) tokens += static_cast<int64_t>(example.ids.size());
  return tokens;
}

void report(const Dataset& data, const LoadedFile& training, int64_t truncated, Session& session) {
  int64_t trainable = 0;
  for (const Example& example : data.train) trainable += trainable_tokens(example);
  json dropped = json::object();
  for (const auto& [code, count] : training.dropped) dropped[code] = std::to_string(count);
  const json event = {{"rows", std::to_string(training.rows)},
                      {"dropped", dropped},
                      {"tokens", std::to_string(tokens_of(data.train))},
                      {"trainableTokens", std::to_string(trainable)},
                      {"validRows", std::to_string(data.validation.size())},
                      {"validTokens", std::to_string(tokens_of(data.validation))}};
  session.event({Event::Level::kInfo, "validation_complete",
                 std::to_string(data.train.size()) + " examples of at most " +
                     std::to_string(data.max_seq_length) + " tokens to train on (" +
                     std::to_string(tokens_of(data.train)) + " tokens), " +
                     std::to_string(data.validation.size()) + " held out",
                 event.dump()});
  const auto warn = [&](const std::string& code, const std::string& detail) {
    session.event({Event::Level::kWarn, "warning", code + ": " + detail,
                   json{{"code", code}, {"path", "training_file"}, {"detail", detail}}.dump()});
  };
  if (!training.dropped.empty()) {
    warn(training.dropped.begin()->first, std::to_string(training.dropped_rows()) +
                                              " rows are not used; first: " + training.first_drop);
  }
  if (truncated > 0) {
    warn("truncated", std::to_string(truncated) + " rows are longer than " +
                          std::to_string(data.max_seq_length) + " tokens and are cut");
  }
  std::unordered_set<uint64_t> hashes;
  for (const Example& example : data.train) hashes.insert(example.hash);
  const auto overlap =
      std::count_if(data.validation.begin(), data.validation.end(),
                    [&](const Example& example) { return hashes.contains(example.hash); });
  if (overlap > 0)
    warn("valid_overlaps_train", std::to_string(overlap) + " held-out rows are trained on too");
}

}  // namespace

Dataset load_dataset(const JobSpec& spec, const model::Config& config, Session& session,
                     const std::function<void(Phase)>& enter_phase) {
  enter_phase(Phase::kLoadingDataset);
  Dataset out;
  out.training_sha256 = checked_hash(spec.training_path, spec.training_sha256);
  if (!spec.validation_path.empty()) {
    out.validation_sha256 = checked_hash(spec.validation_path, spec.validation_sha256);
  }
  const TextModel model = TextModel::load(spec.model_dir);
  if (model.tokenizer) out.tokenizer_sha256 = model.tokenizer->sha256();
  if (model.chat_template) out.chat_template_sha256 = model.chat_template->sha256();

  text::RowEncoder::Options options;
  options.train_on_inputs = spec.hyperparameters.train_on_inputs.value_or(false);
  options.vocab_size = static_cast<int32_t>(config.vocab_size);
  const text::RowEncoder encoder(model.tokenizer.get(), model.chat_template.get(), options);
  LoadedFile training = load_file(spec.training_path, encoder, model, spec.skip_budget_ratio);
  LoadedFile validation;
  if (!spec.validation_path.empty()) {
    validation = load_file(spec.validation_path, encoder, model, spec.skip_budget_ratio);
  }

  enter_phase(Phase::kValidating);
  out.max_seq_length = sequence_length(spec, training.examples, config);
  int64_t truncated = 0, truncated_validation = 0;
  const bool keep_first = model.tokenizer && model.tokenizer->adds_bos();
  const auto how = spec.hyperparameters.truncation;
  auto examples = cut_rows(training, out.max_seq_length, how, keep_first, truncated);
  check_budget(spec.training_path, training, spec.skip_budget_ratio);
  if (spec.validation_path.empty()) {
    Split split = split_rows(std::move(examples), spec.validation_split, spec.seed);
    out.train = std::move(split.train);
    out.validation = std::move(split.validation);
  } else {
    out.train = std::move(examples);
    out.validation =
        cut_rows(validation, out.max_seq_length, how, keep_first, truncated_validation);
    check_budget(spec.validation_path, validation, spec.skip_budget_ratio);
  }
  if (out.train.empty()) bad_data(spec.training_path, "too_few_rows: no row is left to train on");
  report(out, training, truncated, session);
  return out;
}

}  // namespace dex::train
