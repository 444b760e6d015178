#include "client/cli/study_report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "client/cli/study_findings.h"
#include "client/cli/study_tasks.h"
#include "client/cli/terminal.h"

namespace dex::cli {

namespace {

using nlohmann::json;

constexpr int kDigits = 4;  // of a loss in nats

const RunResult* success(const std::vector<RunResult>& results, const std::string& method,
                         uint64_t seed) {
  for (const auto& result : results) {
    if (result.run.method == method && result.run.seed == seed && result.failure.empty())
      return &result;
  }
  return nullptr;
}

Spread spread_of(const std::vector<double>& values) {
  const double middle = median(values);
  if (values.empty()) return {middle, middle, middle};
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {middle, *low, *high};
}

void summarise_speed(const std::vector<RunResult>& results, MethodSummary& row) {
  std::vector<double> training, merged, unmerged;
  for (const auto& result : results) {
    if (result.run.method != row.method || !result.failure.empty()) continue;
    training.push_back(result.tokens_per_second);
    merged.insert(merged.end(), result.merged.begin(), result.merged.end());
    unmerged.insert(unmerged.end(), result.unmerged.begin(), result.unmerged.end());
  }
  row.tokens_per_second = median(training);
  row.merged = spread_of(merged);
  row.unmerged = spread_of(unmerged);
}

void take(const RunResult& result, MethodSummary& row) {
  row.trained_parameters = std::max(row.trained_parameters, result.trained_parameters);
  row.added_parameters = std::max(row.added_parameters, result.added_parameters);
  row.trained_tokens = std::max(row.trained_tokens, result.trained_tokens);
  row.peak_memory_bytes = std::max(row.peak_memory_bytes, result.peak_memory_bytes);
  row.artefact_bytes = std::max(row.artefact_bytes, result.artefact_bytes);
  row.base_shape = row.base_shape || (result.decoding.whole && result.decoding.merged);
  if (!result.not_served.empty() &&
      std::find(row.notes.begin(), row.notes.end(), result.not_served) == row.notes.end())
    row.notes.push_back(result.not_served);
  if (!result.not_measured.empty())
    row.notes.push_back("seed " + std::to_string(result.run.seed) + ": " + result.not_measured);
  if (!result.rates.empty() &&
      std::find(row.notes.begin(), row.notes.end(), result.rates) == row.notes.end())
    row.notes.push_back(result.rates);
}

std::string ratio_text(const Spread& ratio) {
  if (std::isnan(ratio.median)) return "–";
  return "× " + fixed(ratio.median, 2) + " (" + fixed(ratio.low, 2) + "–" + fixed(ratio.high, 2) +
         ")";
}

void put_ratio(const char* key, const Spread& ratio, json& entry) {
  if (std::isnan(ratio.median)) return;
  entry[key] = {{"median", ratio.median}, {"min", ratio.low}, {"max", ratio.high}};
}

std::string verdict(const std::string& what, const Interval& difference) {
  std::string out = what + " " + text(difference, kDigits) + " nats a token: ";
  if (difference.same)
    return out + "these seeds show no spread, so they can't say what other seeds would give";
  if (!difference.known()) return out + "one seed says nothing about a difference";
  if (!difference.excludes_zero()) return out + "no difference that these seeds can show";
  return out + (difference.mean < 0 ? "better" : "worse");
}

void write_quality(std::ostream& out, const std::vector<MethodSummary>& rows) {
  out << "| method | held-out loss | against the base | against " << kControl
      << " |\n| --- | --- | --- | --- |\n";
  for (const auto& row : rows) {
    if (row.loss.n == 0) continue;
    out << "| `" << row.method << "` | " << text(row.loss, kDigits) << " | "
        << text(row.against_base, kDigits) << " | "
        << (row.against_control.n > 0 ? text(row.against_control, kDigits) : "–") << " |\n";
  }
}

void write_cost(std::ostream& out, const std::vector<MethodSummary>& rows) {
  out << "| method | trained | added | training | peak memory | artefact | decoding time merged | "
         "decoding time unmerged |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (const auto& row : rows) {
    if (row.loss.n == 0) continue;
    out << "| `" << row.method << "` | " << human_count(static_cast<double>(row.trained_parameters))
        << " | " << human_count(static_cast<double>(row.added_parameters)) << " | "
        << fixed(row.tokens_per_second, 0) << " tok/s | "
        << human_bytes(static_cast<double>(row.peak_memory_bytes)) << " | "
        << human_bytes(static_cast<double>(row.artefact_bytes)) << " | "
        << (row.base_shape ? "base's shape" : ratio_text(row.merged)) << " | "
        << ratio_text(row.unmerged) << " |\n";
  }
}

// The base's loss as every job measured it before its first update, on the same rows: least and
// most. None: no job succeeded.
std::optional<std::pair<double, double>> base_losses(const std::vector<MethodSummary>& rows) {
  std::optional<std::pair<double, double>> out;
  for (const auto& row : rows) {
    if (row.loss.n == 0) continue;
    if (!out) out.emplace(row.base_loss_min, row.base_loss_max);
    out->first = std::min(out->first, row.base_loss_min);
    out->second = std::max(out->second, row.base_loss_max);
  }
  return out;
}

void write_base_row(std::ostream& out, const std::vector<MethodSummary>& rows) {
  const auto losses = base_losses(rows);
  if (!losses) return;
  const std::string least = fixed(losses->first, kDigits), most = fixed(losses->second, kDigits);
  out << "| base | " << least << (least == most ? "" : "–" + most) << " |\n";
}

// Losses of `method` minus those of `other`, of seeds that both have; n = 0: none.
Interval paired_difference(const StudyPlan& plan, const std::vector<RunResult>& results,
                           const std::string& method, const std::string& other) {
  std::vector<double> differences;
  for (const uint64_t seed : plan.seeds) {
    const RunResult* one = success(results, method, seed);
    const RunResult* two = success(results, other, seed);
    if (one && two) differences.push_back(one->loss - two->loss);
  }
  return differences.empty() ? Interval() : t_interval(differences);
}

}  // namespace

std::vector<MethodSummary> summarise(const StudyPlan& plan, const std::vector<RunResult>& results) {
  std::vector<MethodSummary> rows;
  for (const auto& method : plan.methods) {
    MethodSummary row;
    row.method = method;
    std::vector<double> losses, from_base, from_control;
    for (const uint64_t seed : plan.seeds) {
      const RunResult* result = success(results, method, seed);
      if (!result) continue;
      losses.push_back(result->loss);
      from_base.push_back(result->loss - result->base_loss);
      const RunResult* control = success(results, kControl, seed);
      if (control && method != kControl) from_control.push_back(result->loss - control->loss);
      take(*result, row);
      row.by_seed[seed] = figures_of(*result, control);
      const bool first = losses.size() == 1;
      row.base_loss_min =
          first ? result->base_loss : std::min(row.base_loss_min, result->base_loss);
      row.base_loss_max =
          first ? result->base_loss : std::max(row.base_loss_max, result->base_loss);
    }
    row.noise_partner = noise_partner(plan.methods, method);
    row.against_partner = paired_difference(plan, results, method, row.noise_partner);
    for (const auto& result : results) {
      if (result.run.method == method && !result.failure.empty())
        row.notes.push_back("seed " + std::to_string(result.run.seed) + ": " + result.failure);
    }
    if (!losses.empty()) row.loss = t_interval(losses);
    if (!from_base.empty()) row.against_base = t_interval(from_base);
    if (!from_control.empty()) row.against_control = t_interval(from_control);
    summarise_speed(results, row);
    row.tasks = summarise_tasks(plan, results, method);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string markdown(const std::string& data, const std::string& command, const StudyPlan& plan,
                     const std::vector<MethodSummary>& rows) {
  std::ostringstream out;
  out << "# Methods compared on " << data << "\n\n"
      << "Model `" << plan.common.model << "`, " << plan.common.max_steps << " updates";
  if (!plan.common.batch_size.empty()) out << " of " << plan.common.batch_size << " sequences";
  if (!plan.common.max_seq_length.empty())
    out << " of at most " << plan.common.max_seq_length << " tokens";
  out << ", " << plan.seeds.size() << (plan.seeds.size() == 1 ? " seed" : " seeds")
      << "; `dex` and `kvo_only` with preset `" << plan.preset << "`. Made by:\n\n    " << command
      << "\n\n";
  write_quality(out, rows);
  write_base_row(out, rows);
  out << "\nLoss: nats a token on the validation rows, of the published weights; mean over seeds "
         "with its 95 % Student interval. Differences are paired by seed: one seed is one order of "
         "the data for every method. Negative is better.\n\n";
  if (base_losses(rows)) out << "![Held-out loss by method](" << kLossPicture << ")\n\n";
  write_tasks(out, plan, rows);
  write_cost(out, rows);
  out << "\nTrained and added: parameters. Training and "
         "decoding were measured on the machine that ran the study; decoding time is that of the "
         "adapter divided by the base's, in turn, median and range. Merged: all that was trained "
         "is inside weights of the base's shape, as `dex` (its branch folded into W_O) and "
         "`kvo_only` are served. Unmerged: what was added is computed beside them for each token, "
         "`dex` at dex_lambda_scale "
      << fixed(kBranchScale, 1)
      << ", which takes its branch out of W_O, `lora` and `adapter` as they are served. What "
         "`dex-engine fold` makes of a LoRA adapter has the base's shape and so its cost. base's "
         "shape: a whole model, served as a base model and so at the base's cost. –: not "
         "measured.\n\n";
  for (const auto& row : rows) {
    if (row.loss.n > 0) {
      out << "- " << verdict("`" + row.method + "` against the base:", row.against_base) << ".\n";
      if (row.against_control.n > 0) {
        out << "- "
            << verdict("`" + row.method + "` against `" + kControl + "`:", row.against_control)
            << ".\n";
      }
    }
    for (const auto& note : row.notes) out << "- `" << row.method << "`: " << note << "\n";
  }
  write_findings(out, plan, rows);
  return out.str();
}

json to_json(const std::string& data, const std::string& command, const StudyPlan& plan,
             const std::vector<MethodSummary>& rows, const std::vector<RunResult>& results) {
  json methods = json::array(), runs = json::array();
  for (const auto& row : rows) {
    json entry = {{"method", row.method},
                  {"loss", to_json(row.loss)},
                  {"against_base", to_json(row.against_base)},
                  {"against_kvo_only", to_json(row.against_control)},
                  {"trained_parameters", row.trained_parameters},
                  {"added_parameters", row.added_parameters},
                  {"trained_tokens", row.trained_tokens},
                  {"peak_memory_bytes", row.peak_memory_bytes},
                  {"artefact_bytes", row.artefact_bytes},
                  {"notes", row.notes}};
    if (!std::isnan(row.tokens_per_second)) entry["tokens_per_second"] = row.tokens_per_second;
    put_ratio("decoding_time_merged", row.merged, entry);
    put_ratio("decoding_time_unmerged", row.unmerged, entry);
    if (row.base_shape) entry["base_shape"] = true;
    methods.push_back(std::move(entry));
  }
  for (const auto& result : results) {
    runs.push_back({{"method", result.run.method},
                    {"seed", result.run.seed},
                    {"job", result.job},
                    {"adapter", result.adapter},
                    {"failure", result.failure},
                    {"base_loss", result.base_loss},
                    {"loss", result.loss},
                    {"trained_tokens", result.trained_tokens},
                    {"tokens_per_second", result.tokens_per_second},
                    {"peak_memory_bytes", result.peak_memory_bytes},
                    {"decoding_time_merged", result.merged},
                    {"decoding_time_unmerged", result.unmerged}});
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].against_partner.n == 0) continue;
    methods[i]["noise_floor"] = {{"against", rows[i].noise_partner},
                                 {"difference", to_json(rows[i].against_partner)}};
  }
  for (size_t i = 0; i < results.size(); ++i) {
    add_figures(results[i], rows, runs[i]);
    add_tasks(plan, results[i], runs[i]);
  }
  for (size_t i = 0; i < rows.size(); ++i) add_tasks(plan, rows[i], methods[i]);
  json of_base = json::object();
  if (const auto losses = base_losses(rows))
    of_base = {{"loss_min", losses->first}, {"loss_max", losses->second}};
  return {{"data", data},
          {"command", command},
          {"base", of_base},
          {"model", plan.common.model},
          {"updates", plan.common.max_steps},
          {"seeds", plan.seeds},
          {"preset", plan.preset},
          {"methods", methods},
          {"runs", runs}};
}

std::string loss_svg(const std::vector<MethodSummary>& rows,
                     const std::vector<RunResult>& results) {
  std::vector<const MethodSummary*> shown;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  const auto widen = [&](double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  };
  for (const auto& row : rows) {
    if (row.loss.n == 0) continue;
    shown.push_back(&row);
    widen(row.loss.known() ? row.loss.low : row.loss.mean);
    widen(row.loss.known() ? row.loss.high : row.loss.mean);
  }
  for (const auto& result : results) {
    if (result.failure.empty()) widen(result.loss);
  }
  if (shown.empty()) return "";
  const double margin = std::max(0.05 * (high - low), 1e-4);
  low -= margin;
  high += margin;
  constexpr int kLeft = 110, kWidth = 560, kRow = 34, kTop = 34;
  const int height = kTop + kRow * static_cast<int>(shown.size()) + 40;
  const auto x = [&](double loss) {
    return fixed(kLeft + (loss - low) / (high - low) * kWidth, 1);
  };
  std::ostringstream out;
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << kLeft + kWidth + 30 << " "
      << height << "\" role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"13\">\n"
      << "<title>Held-out loss by method, mean with 95 % interval, dots are seeds</title>\n"
      << "<style>text{fill:#333}line{stroke:#777}.mean{fill:#1b5e9e}.seed{fill:none;stroke:#777}"
         "@media(prefers-color-scheme:dark){text{fill:#ddd}.mean{fill:#7db8ee}}</style>\n"
      << "<text x=\"" << kLeft
      << "\" y=\"18\">held-out loss, nats a token (left is better)</text>\n";
  int y = kTop + kRow / 2;
  for (const auto* row : shown) {
    out << "<text x=\"" << kLeft - 12 << "\" y=\"" << y + 4 << "\" text-anchor=\"end\">"
        << row->method << "</text>\n";
    if (row->loss.known()) {
      out << "<line x1=\"" << x(row->loss.low) << "\" x2=\"" << x(row->loss.high) << "\" y1=\"" << y
          << "\" y2=\"" << y << "\" stroke-width=\"2\"/>\n";
    }
    for (const auto& result : results) {
      if (result.run.method == row->method && result.failure.empty()) {
        out << "<circle class=\"seed\" cx=\"" << x(result.loss) << "\" cy=\"" << y
            << "\" r=\"3\"/>\n";
      }
    }
    out << "<circle class=\"mean\" cx=\"" << x(row->loss.mean) << "\" cy=\"" << y
        << "\" r=\"5\"><title>" << row->method << " " << text(row->loss, kDigits)
        << "</title></circle>\n";
    y += kRow;
  }
  const int axis = kTop + kRow * static_cast<int>(shown.size()) + 4;
  out << "<line x1=\"" << kLeft << "\" x2=\"" << kLeft + kWidth << "\" y1=\"" << axis << "\" y2=\""
      << axis << "\"/>\n";
  for (int tick = 0; tick <= 4; ++tick) {
    const double loss = low + (high - low) * tick / 4;
    out << "<text x=\"" << x(loss) << "\" y=\"" << axis + 18 << "\" text-anchor=\"middle\">"
        << fixed(loss, 3) << "</text>\n";
  }
  out << "</svg>\n";
  return out.str();
}

}  // namespace dex::cli
