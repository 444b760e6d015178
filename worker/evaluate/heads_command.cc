#include "worker/evaluate/heads_command.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>
#include <stdexcept>

#include "services/base/files.h"
#include "worker/evaluate/head_measures.h"
#include "worker/evaluate/head_pictures.h"
#include "worker/evaluate/head_scores.h"
#include "worker/evaluate/head_structure.h"
#include "worker/evaluate/loss_curvature.h"
#include "worker/evaluate/token_sequences.h"
#include "worker/model/adapter.h"
#include "worker/model/weights.h"

namespace dex::evaluate {
namespace {

using nlohmann::json;

constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

// The sequences as documents of which every token but the first is predicted.
struct Sequences {
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::vector<float>> ones;
  std::vector<Document> documents;
  int64_t tokens = 0;
};

Sequences read_sequences(const std::filesystem::path& file, const model::Config& config) {
  const auto text = base::read_file(file, kMaxFileBytes);
  if (!text.ok()) throw std::runtime_error("--tokens-file: " + text.status().message());
  Sequences out;
  out.ids = parse_token_sequences(text.value(), "--tokens-file " + file.string(),
                                  {config.vocab_size, config.max_position_embeddings});
  for (const auto& ids : out.ids) {
    out.ones.emplace_back(ids.size(), 1.0f);
    out.tokens += static_cast<int64_t>(ids.size());
  }
  for (size_t i = 0; i < out.ids.size(); ++i) out.documents.push_back({out.ids[i], out.ones[i]});
  return out;
}

at::ScalarType type_of(const HeadsCommand& command) {
  return command.dtype == "f64" ? at::kDouble : at::kFloat;
}

model::Adaptation read_adapter(const HeadsCommand& command, const model::Config& config) {
  if (command.adapter.empty()) return {};
  auto adaptation =
      model::load_adapter(command.adapter, {config, model::base_weights_sha256(command.model)})
          .adaptation;
  if (type_of(command) == at::kFloat) return adaptation;
  for (const model::Trainable& each : model::trainables(adaptation))
    *each.tensor = each.tensor->to(at::kDouble);
  for (model::LayerAdaptation& layer : adaptation.layers) {
    if (layer.mask.defined()) layer.mask = layer.mask.to(at::kDouble);
  }
  return adaptation;
}

json number_or_null(double value) {
  return std::isfinite(value) ? json(value) : json(nullptr);
}

json json_of(const HeadTable& table) {
  json out = json::array();
  for (const auto& row : table) {
    json numbers = json::array();
    for (const double value : row) numbers.push_back(number_or_null(value));
    out.push_back(numbers);
  }
  return out;
}

json json_of(const std::vector<HeadTable>& tables) {
  json out = json::array();
  for (const HeadTable& table : tables) out.push_back(json_of(table));
  return out;
}

json json_of(const MapSparsity::Result& sparsity, const HeadStructure& structure) {
  json out = {{"epsilon", sparsity.epsilon},
              {"share", json_of(sparsity.sparsity)},
              {"negative_share", json_of(sparsity.negative_share)},
              {"negative_mass", json_of(sparsity.negative_mass)}};
  if (!structure.removed) return out;
  json zero = json::array(), half = json::array();
  for (const auto& layer : structure.removed->layers) {
    json zeros = json::array(), halves = json::array();
    for (const auto& head : layer) {
      zeros.push_back(head ? json(head->below_zero) : json(nullptr));
      halves.push_back(head ? json(head->below_half) : json(nullptr));
    }
    zero.push_back(zeros);
    half.push_back(halves);
  }
  out["removed_of"] = structure.removed->by_layer ? "layer" : "head";
  out["removed_below_zero"] = zero;
  out["removed_below_half"] = half;
  return out;
}

void add_scores(const HeadScores& scores, const HeadScoreOptions& asked, json& out) {
  if (asked.entropy) {
    out["entropy"] = json_of(scores.entropy_nats);
    out["entropy_of"] = entropy_of(scores.entropy_of_magnitudes);
  }
  if (asked.importance) out["importance"] = json_of(scores.importance);
}

void add_structure(const HeadStructure& structure, json& out) {
  if (structure.cosine) {
    out["cosine"] = {{"mean", structure.cosine->mean}, {"pairs", json_of(structure.cosine->pairs)}};
  }
  if (structure.cka) {
    out["cka"] = {{"mean", json_of(HeadTable{structure.cka->mean})[0]},
                  {"pairs", json_of(structure.cka->pairs)},
                  {"unbiased_mean", json_of(HeadTable{structure.cka->unbiased_mean})[0]},
                  {"unbiased_pairs", json_of(structure.cka->unbiased_pairs)},
                  {"positions", structure.cka->positions},
                  {"positions_per_dimension", structure.cka->positions_per_dimension}};
  }
  if (structure.sparsity) out["sparsity"] = json_of(*structure.sparsity, structure);
}

json json_of(const LossCurvature& curvature) {
  std::vector<double> eigenvalues;
  json converged = json::array();
  for (const HessianEigenvalue& each : curvature.documents) {
    eigenvalues.push_back(each.value);
    converged.push_back(each.converged);
  }
  const Histogram bars = histogram(eigenvalues, kEigenvalueBins);
  return {{"eigenvalues", eigenvalues},
          {"converged", converged},
          {"not_settled", not_settled(curvature)},
          {"histogram", {{"low", bars.low}, {"high", bars.high}, {"counts", bars.counts}}},
          {"negative_share", curvature.negative_share},
          {"parameters", curvature.parameters}};
}

}  // namespace

const std::vector<std::string>& head_measures() {
  static const std::vector<std::string> kMeasures = {"entropy", "importance", "cosine",
                                                     "cka",     "sparsity",   "hessian"};
  return kMeasures;
}

void heads(const HeadsCommand& command, std::ostream& out, std::ostream& log) {
  if (command.threads > 0) at::set_num_threads(command.threads);
  const auto asks = [&](const char* measure) {
    if (command.measures.empty())
      return std::string(measure) == "entropy" || std::string(measure) == "importance";
    return std::ranges::find(command.measures, measure) != command.measures.end();
  };
  if (command.dtype != "f32" && command.dtype != "f64")
    throw std::runtime_error("--dtype must be f32 or f64, got " + command.dtype);
  if (asks("hessian") && type_of(command) != at::kFloat)
    throw std::runtime_error("--dtype f64: hessian is measured in f32 only, in a call of its own");
  // The cheap checks first: a bad file should not cost the loading of a model.
  const model::Config config = model::load_config(command.model);
  const Sequences sequences = read_sequences(command.tokens_file, config);
  const model::Adaptation adaptation = read_adapter(command, config);
  const model::Weights weights = model::load_weights(
      command.model, config, {.dtype = type_of(command), .refuse_non_finite = true});
  const model::Llama llama(config, weights);

  const int32_t first = first_counted_row(sequences.documents, command.i_min);
  json result = {{"layers", config.layers},
                 {"heads", config.output_heads()},
                 {"sequences", sequences.documents.size()},
                 {"tokens", sequences.tokens},
                 {"i_min", first},
                 {"entropy_unit", first < command.i_min ? "normalized" : "nats"}};
  if (first < command.i_min) {
    log << "no sequence has more than i_min = " << command.i_min
        << " ids: rows from 1 on are counted, and entropy is H/ln(i+1) (entropy_unit normalized)"
        << std::endl;
  }
  HeadScoreOptions scores{.skip_rows = command.i_min};
  scores.signed_entropy = true;
  scores.entropy = asks("entropy");
  scores.importance = asks("importance");
  scores.exact = scores.importance;
  if (scores.entropy || scores.importance) {
    kernels::LinearCrossEntropy cross_entropy;
    const HeadScores found =
        measure_heads(llama, adaptation, sequences.documents, scores, cross_entropy);
    add_scores(found, scores, result);
    if (found.entropy_of_magnitudes) log << kSignedEntropyNote << std::endl;
  }
  HeadStructureOptions structure{.skip_rows = command.i_min};
  structure.cosine = asks("cosine");
  structure.cka = asks("cka");
  structure.sparsity = asks("sparsity");
  if (structure.cosine || structure.cka || structure.sparsity) {
    const HeadStructure found =
        measure_head_structure(llama, adaptation, sequences.documents, structure);
    add_structure(found, result);
    if (found.cka && found.cka->positions_per_dimension < kFewPositions) {
      log << "cka: " << found.cka->positions << " positions for heads of " << config.output_width()
          << " dimensions (n/d below 10): the biased values are too high, take unbiased_pairs or "
             "more tokens"
          << std::endl;
    }
  }
  if (asks("hessian")) {
    kernels::LinearCrossEntropy cross_entropy;
    const LossCurvature found =
        measure_loss_curvature(llama, weights, adaptation, sequences.documents, cross_entropy);
    result["hessian"] = json_of(found);
    if (const int64_t left = not_settled(found); left > 0)
      log << unsettled_note(left, static_cast<int64_t>(found.documents.size())) << std::endl;
  }
  out << result.dump() << std::endl;
}

}  // namespace dex::evaluate
