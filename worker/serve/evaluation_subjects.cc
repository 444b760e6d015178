#include "worker/serve/evaluation_subjects.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <tuple>

#include "services/base/files.h"
#include "services/base/memory_room.h"
#include "services/base/sha256.h"
#include "worker/model/config.h"

namespace dex::serve {

namespace {

constexpr int64_t kLargestWholeJson = 1 << 20, kLargestWeightIndex = 16 << 20;

[[noreturn]] void broken_whole(const std::filesystem::path& folder, const std::string& what) {
  throw std::runtime_error(folder.string() + ": " + what);
}

nlohmann::json whole_json(const std::filesystem::path& folder, const std::string& name,
                          const std::string& sha256) {
  const auto text = base::read_file(folder / name, kLargestWholeJson);
  if (!text.ok()) broken_whole(folder, text.status().message());
  if (!sha256.empty() && base::sha256_hex(*text) != sha256)
    broken_whole(folder, name + " is not the one that was published");
  nlohmann::json json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) broken_whole(folder, name + " is no JSON object");
  return json;
}

// Empty where it is missing or no text.
std::string whole_text(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool is_whole(const std::filesystem::path& folder) {
  std::error_code ignored;
  return !folder.empty() && std::filesystem::exists(folder / "config.json", ignored);
}

// The hash of a published model's weights, once everything beside them is what was published, and
// made of this base.
std::string whole_weights_sha256(const SubjectSource& source, const std::string& base_sha256) {
  const std::filesystem::path& folder = source.adapter;
  const auto sums = whole_json(folder, "checksums.json", source.content_sha256);
  for (const auto& [name, sum] : sums.items()) {
    if (name == "model.safetensors") continue;  // its loader hashes what it reads
    const auto hash = base::sha256_file(folder / name);
    if (!hash.ok()) broken_whole(folder, hash.status().message());
    if (!sum.is_string() || sum.get<std::string>() != *hash)
      broken_whole(folder, name + " has another SHA-256 than checksums.json says");
  }
  const auto provenance = whole_json(folder, "provenance.json", "");
  if (whole_text(provenance, "base_weights_sha256") != base_sha256)
    broken_whole(folder, "the model was made of another base");
  const std::string weights = whole_text(sums, "model.safetensors");
  if (weights.empty()) broken_whole(folder, "checksums.json has no model.safetensors");
  return weights;
}

// The files that a loader reads the weights from: those that an index names, else the one. Other
// formats and what an earlier download left lie beside them in many folders.
std::set<std::string> weight_names(const std::filesystem::path& folder) {
  const auto text = base::read_file(folder / "model.safetensors.index.json", kLargestWeightIndex);
  if (!text.ok()) return {"model.safetensors"};
  const auto index = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  std::set<std::string> names;
  if (!index.is_object() || !index.contains("weight_map")) return names;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    if (file.is_string()) names.insert(file.get<std::string>());
  }
  return names;
}

// Of a model's weights on the disk. 0 where there are none: whoever loads it says so.
int64_t weight_bytes(const std::filesystem::path& folder) {
  int64_t bytes = 0;
  for (const std::string& name : weight_names(folder)) {
    std::error_code missing;
    const auto size = std::filesystem::file_size(folder / name, missing);
    if (!missing) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

std::string gibibytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / (1 << 30));
  return text;
}

// What base and adapters are measured in, nullopt as stored; whole models have weights of their
// own.
std::set<std::optional<Dtype>> bases_needed(const EvaluationSubjects::Options& options) {
  std::set<std::optional<Dtype>> out;
  for (const SubjectSource& source : options.subjects) {
    if (!is_whole(source.adapter)) out.insert(source.quantized);
  }
  return out;
}

// Adapters are small beside their base; each whole model is as large as it, and the base once more
// in eight bits about half as large, in four a third. Mapped weights that do not fit are read from
// the disk again at every token, and those that are not mapped end the process, so neither is
// begun.
void require_memory(const EvaluationSubjects::Options& options) {
  int64_t needed = weight_bytes(options.model);
  std::string sizes = "the base " + gibibytes(needed);
  const std::set<std::optional<Dtype>> bases = bases_needed(options);
  const bool more_than_one = bases.size() > 1;
  const int64_t stored = needed;
  for (const auto& [dtype, name, part] : {std::tuple{Dtype::kInt8, "eight", stored / 2},
                                          std::tuple{Dtype::kInt4, "four", stored / 3}}) {
    if (!more_than_one || !bases.contains(dtype)) continue;
    sizes += std::string(", in ") + name + " bits " + gibibytes(part);
    needed += part;
  }
  bool has_whole = false;
  for (const SubjectSource& source : options.subjects) {
    if (!is_whole(source.adapter)) continue;
    const int64_t bytes = weight_bytes(source.adapter);
    needed += bytes;
    sizes += ", " + source.label + " " + gibibytes(bytes);
    has_whole = true;
  }
  const base::MemoryRoom room = base::memory_room();
  if ((!has_whole && !more_than_one) || needed <= room.bytes) return;
  const std::string way_out =
      has_whole ? "a whole model is in memory beside its base, so measure fewer of them in one "
                  "evaluation"
                : "measure the subjects in eight or four bits in an evaluation of their own";
  throw TooLittleMemory("the models of this evaluation need " + gibibytes(needed) + " of memory (" +
                        sizes + "), and " + gibibytes(room.bytes) + " are " +
                        (room.of_container ? "left of the worker's limit" : "free on the worker") +
                        ": " + way_out + ", or give the worker more memory");
}

}  // namespace

EvaluationSubjects::EvaluationSubjects(const Options& options, const base::Clock& clock) {
  require_memory(options);
  int32_t trained = 0;
  try {
    load_base(options, clock);
    trained = static_cast<int32_t>(model::load_config(options.model).max_position_embeddings);
  } catch (const BrokenBase&) {
    throw;
  } catch (const NoTokenizer&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw BrokenBase(error.what());
  }
  const auto heads = std::make_shared<HeadsModel>(options.model, options.threads);
  for (const SubjectSource& source : options.subjects) {
    if (is_whole(source.adapter)) {
      add_whole(source, options, clock);
      continue;
    }
    const Answering& of = bases_.at(source.quantized);
    subjects_.push_back(std::make_unique<EngineSubject>(
        *of.engine, text_, load_adapter(source, *of.model), source.label, trained));
    if (!source.quantized) subjects_.back()->show_heads(heads, source.adapter);
    if (source.dex_lambda_scale) subjects_.back()->scale_lambda(*source.dex_lambda_scale);
    list_.push_back(subjects_.back().get());
  }
}

void EvaluationSubjects::load_base(const Options& options, const base::Clock& clock) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(options.model, ignored)) {
    throw BrokenBase("--model: " + options.model.string() +
                     " is not a directory with a Hugging Face model");
  }
  auto text = TextModel::load(options.model);
  if (!text.ok()) throw BrokenBase(text.status().message());
  text_ = std::move(text).value();
  if (text_.tokenizer == nullptr)
    throw NoTokenizer("--model: its folder has no tokenizer.json, and evaluations read text");
  const auto load = [&](Dtype dtype) {
    return answering(options.model, dtype, options.weights_sha256, options, clock);
  };
  std::set<std::optional<Dtype>> needed = bases_needed(options);
  if (needed.empty()) needed.insert(std::nullopt);  // whole models are held against its hash
  for (const auto& quantized : needed)
    bases_[quantized] = load(quantized.value_or(parse_dtype(options.dtype)));
}

EvaluationSubjects::Answering EvaluationSubjects::answering(const std::filesystem::path& folder,
                                                            Dtype dtype,
                                                            const std::string& weights_sha256,
                                                            const Options& options,
                                                            const base::Clock& clock) const {
  Answering out;
  out.model = load_serving_model(folder, dtype, weights_sha256, options.positions);
  // Slow machines and long contexts take their time; who is impatient stops the evaluation.
  out.engine = std::make_unique<Engine>(
      out.model, text_.tokenizer.get(),
      Engine::Options{.threads = options.threads,
                      .longest_timeout_ms = std::numeric_limits<int64_t>::max() / 2},
      clock);
  return out;
}

const std::string& EvaluationSubjects::base_sha256() const {
  return bases_.begin()->second.model->weights_sha256;
}

void EvaluationSubjects::add_whole(const SubjectSource& source, const Options& options,
                                   const base::Clock& clock) {
  int32_t trained = 0;
  try {
    if (source.dex_lambda_scale) {
      broken_whole(source.adapter,
                   "dex_lambda_scale has no effect: its branch is inside its weights");
    }
    wholes_.push_back(answering(source.adapter,
                                source.quantized.value_or(parse_dtype(options.dtype)),
                                whole_weights_sha256(source, base_sha256()), options, clock));
    trained = static_cast<int32_t>(model::load_config(source.adapter).max_position_embeddings);
  } catch (const std::runtime_error& error) {
    throw BrokenAdapter(error.what());
  }
  auto& subject = subjects_.emplace_back(std::make_unique<EngineSubject>(
      *wholes_.back().engine, text_, nullptr, source.label, trained));
  if (!source.quantized)
    subject->show_heads(std::make_shared<HeadsModel>(source.adapter, options.threads), {});
  list_.push_back(subject.get());
}

std::shared_ptr<const ServingAdapter> EvaluationSubjects::load_adapter(
    const SubjectSource& source, const ServingModel& of) const {
  if (source.adapter.empty()) return nullptr;
  const TextHashes hashes = {text_.tokenizer->sha256(),
                             text_.chat_template ? text_.chat_template->sha256() : ""};
  try {
    auto adapter = load_serving_adapter(source.adapter, source.adapter.string(),
                                        source.content_sha256, of, hashes);
    const bool scaled = source.dex_lambda_scale.value_or(1) != 1;
    return scaled && adapter->is_folded() ? load_branch_apart(std::move(adapter), of) : adapter;
  } catch (const std::runtime_error& error) {
    throw BrokenAdapter(error.what());
  }
}

}  // namespace dex::serve
