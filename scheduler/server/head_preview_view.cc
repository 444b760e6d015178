#include "scheduler/server/head_preview_view.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/server/job_view.h"
#include "scheduler/server/published_file.h"

namespace dex::server {

namespace {

using nlohmann::json;

constexpr const char* kReport = "head_selection.json";
constexpr const char* kPicture = "head_selection.svg";

template <typename Number>
void add_numbers(const json& table, size_t layer, google::protobuf::RepeatedField<Number>& out) {
  if (table.empty()) return;  // the criterion did not need this score
  for (const json& value : table.at(layer)) out.Add(value.get<Number>());
}

// Why each selected head of a layer was chosen: `reasons` has one for each head, null for the
// others.
void add_reasons(const json& reasons, v1::HeadSelectionReport::Layer& layer) {
  for (const uint32_t head : layer.selected())
    layer.add_chosen_by(reasons.at(static_cast<size_t>(head)).get<std::string>());
}

using ChosenHeads = std::vector<std::vector<uint32_t>>;  // a layer, ascending

// The heads of `some` that `others` lack.
void add_difference(const ChosenHeads& some, const ChosenHeads& others,
                    google::protobuf::RepeatedPtrField<v1::HeadSelection::LayerHeads>& out) {
  for (size_t l = 0; l < some.size(); ++l) {
    std::vector<uint32_t> heads;
    std::set_difference(some[l].begin(), some[l].end(), others.at(l).begin(), others.at(l).end(),
                        std::back_inserter(heads));
    if (heads.empty()) continue;
    auto& layer = *out.Add();
    layer.set_layer(static_cast<uint32_t>(l));
    for (const uint32_t head : heads) layer.add_heads(head);
  }
}

// The log of method.md §3.4 by its changes: whole sets with their scores, one for each
// re-selection, could be more than a reply may hold.
void add_selections(const json& reports, v1::HeadSelectionReport& out) {
  ChosenHeads before;
  for (const json& report : reports) {
    const auto now = report.at("selected").get<ChosenHeads>();
    before.resize(now.size());
    auto& selection = *out.add_selections();
    selection.set_step(report.at("step").get<uint32_t>());
    uint32_t heads = 0;
    for (const auto& layer : now) heads += static_cast<uint32_t>(layer.size());
    selection.set_selected_heads(heads);
    selection.set_selected_ratio(report.at("selected_ratio").get<double>());
    add_difference(now, before, *selection.mutable_entered());
    add_difference(before, now, *selection.mutable_left());
    before = now;
  }
}

void add_warnings(const json& report, v1::HeadSelectionReport& out) {
  for (const json& warning : report.at("warnings")) {
    out.add_warnings(warning.at("topic").get<std::string>() + ": " +
                     warning.at("evidence").get<std::string>() +
                     ". Try: " + warning.at("suggestion").get<std::string>());
  }
}

// Throws json::exception for another document than the trainer's.
v1::HeadSelectionReport message_of(const json& report) {
  v1::HeadSelectionReport out;
  out.set_criterion(report.at("rule").at("criterion").get<std::string>());
  const json& selected = report.at("selected");
  uint32_t heads = 0;
  for (size_t l = 0; l < selected.size(); ++l) {
    auto& layer = *out.add_layers();
    add_numbers(report.at("entropy"), l, *layer.mutable_entropy());
    add_numbers(report.at("importance"), l, *layer.mutable_importance());
    add_numbers(selected, l, *layer.mutable_selected());
    add_reasons(report.at("chosen_by").at(l), layer);
    layer.set_selected_ratio(report.at("selected_ratio_by_layer").at(l).get<double>());
    heads += static_cast<uint32_t>(layer.selected_size());
  }
  out.set_selected_heads(heads);
  out.set_selected_ratio(report.at("selected_ratio").get<double>());
  if (const auto stability = report.find("stability_ratio");
      stability != report.end() && !stability->is_null())
    out.set_stability_ratio(stability->get<double>());
  out.set_step(report.at("step").get<uint32_t>());
  if (const json& measured = report.at("calibration"); !measured.is_null()) {
    auto& calibration = *out.mutable_calibration();
    calibration.set_sequences(measured.at("sequences").get<uint32_t>());
    calibration.set_tokens(measured.at("tokens").get<int64_t>());
    calibration.set_skip_rows(measured.at("skip_rows").get<uint32_t>());
    calibration.set_entropy_unit(report.at("entropy_unit").get<std::string>());
    calibration.set_seed(measured.at("seed").get<int64_t>());
    calibration.set_source(measured.at("source").get<std::string>());
  }
  add_warnings(report, out);
  return out;
}

// The last of the reports in head_selection.json, with what became of the heads in all of them.
base::Result<v1::HeadSelectionReport> last_report(const store::JobRecord& record,
                                                  const std::string& text) {
  try {
    const json reports = json::parse(text);
    v1::HeadSelectionReport report =
        message_of(reports.at(reports.empty() ? 0 : reports.size() - 1));
    add_selections(reports, report);
    *report.mutable_head_selection() = effective_spec(record.spec).dex().head_selection();
    return report;
  } catch (const json::exception& error) {
    return corrupt_results(record.id, std::string("head_selection.json: ") + error.what());
  }
}

void set_picture(std::string svg, v1::HeadSelectionReport& report) {
  if (svg.size() > kLargestPicture) return;
  report.mutable_picture()->set_name(kPicture);
  report.mutable_picture()->set_svg(std::move(svg));
}

}  // namespace

base::Result<v1::HeadSelectionReport> head_selection_report(const store::JobRecord& record,
                                                            const DataLayout& layout,
                                                            bool with_picture) {
  DEX_ASSIGN_OR_RETURN(const std::string text, published_file(record, layout, kReport));
  DEX_ASSIGN_OR_RETURN(v1::HeadSelectionReport report, last_report(record, text));
  report.mutable_head_selection()->clear_reselect_every_steps();
  report.mutable_head_selection()->clear_soft_floor();
  if (!with_picture) return report;
  DEX_ASSIGN_OR_RETURN(std::string svg, published_file(record, layout, kPicture));
  set_picture(std::move(svg), report);
  return report;
}

base::Result<std::optional<v1::HeadSelectionReport>> head_selection_of_job(
    const store::JobRecord& record, const DataLayout& layout) {
  DEX_ASSIGN_OR_RETURN(const auto text, attempt_file(record, layout, kReport));
  if (!text) return std::optional<v1::HeadSelectionReport>();
  DEX_ASSIGN_OR_RETURN(v1::HeadSelectionReport report, last_report(record, *text));
  DEX_ASSIGN_OR_RETURN(auto svg, attempt_file(record, layout, kPicture));
  if (svg) set_picture(std::move(*svg), report);
  return std::optional<v1::HeadSelectionReport>(std::move(report));
}

}  // namespace dex::server
