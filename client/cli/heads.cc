#include "client/cli/heads.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>
#include <optional>
#include <ostream>

#include "client/cli/exit_code.h"
#include "client/cli/file_argument.h"
#include "client/cli/head_grid.h"
#include "client/cli/names.h"
#include "client/cli/report_folder.h"
#include "client/cli/set_field.h"

namespace dex::cli {

namespace {

// Writes the report and its picture into the folder that --out names, if it names one.
int write_heads(Context& context, const v1::HeadSelectionReport& report, const std::string& out) {
  if (out.empty()) return kDone;
  const auto files = report_files(report);
  if (const auto written = write_report(out, files); !written.ok())
    return context.output.failure(written);
  for (const ReportFile& file : files)
    context.output.note("wrote " + (std::filesystem::path(out) / file.name).string());
  return kDone;
}

// What a finished job's trainer left beside the adapter: more than its events tell.
int write_heads_of_job(Context& context, const v1::FineTuningJob& job, const std::string& out) {
  if (out.empty()) return kDone;
  if (job.has_head_selection()) return write_heads(context, job.head_selection(), out);
  return context.output.failure(base::failed_precondition(
      "JOB_STATE_CONFLICT", "job " + job.id() + " has no report of its heads yet: it is " +
                                words(short_name(job.state())) +
                                ", and the report comes with its adapter"));
}

// The job's last selection: a re-selection during training replaces the first.
int heads_of_job(Context& context, const std::string& id, const std::string& out) {
  v1::ListFineTuningEventsRequest request;
  request.set_id(id);
  request.set_page_size(1000);
  std::optional<v1::HeadSelectionComplete> last;
  while (true) {
    const auto reply = context.client.list_events(request);
    if (!reply.ok()) return context.output.failure(reply.status());
    for (const auto& event : reply->events()) {
      request.set_after_sequence(event.sequence());
      if (event.has_head_selection_complete()) last = event.head_selection_complete();
    }
    if (!reply->has_more() || reply->events().empty()) break;
  }
  if (!last) {
    return context.output.failure(base::not_found(
        "RESOURCE_NOT_FOUND", "job " + id +
                                  " has chosen no heads: it trains without a branch, or "
                                  "has not come that far (dexctl jobs watch " +
                                  id + ")"));
  }
  const auto job = context.client.get_job(id, true);
  if (!job.ok()) return context.output.failure(job.status());
  if (context.output.format() == Format::kTable) {
    context.output.out() << head_grid_text(*last)
                         << (job->has_head_selection() ? selection_text(job->head_selection()) : "")
                         << std::flush;
  } else {
    context.output.result(*last, id, {});
  }
  return write_heads_of_job(context, *job, out);
}

int preview_heads(Context& context, const PreviewFlags& flags) {
  auto request = make_preview(flags);
  if (!request.ok()) return context.output.failure(request.status());
  if (!request->file().empty()) {
    auto file = file_argument(context, request->file());
    if (!file.ok()) return context.output.failure(file.status());
    request->set_file(std::move(file).value());
  }
  request->set_with_picture(!flags.out.empty());
  context.output.note("a worker measures the heads of " + request->model() + " …");
  auto report = context.client.preview_head_selection(*request);
  if (!report.ok()) return context.output.failure(report.status());
  if (const int code = write_heads(context, *report, flags.out); code != kDone) return code;
  report->clear_picture();
  if (context.output.format() == Format::kTable) {
    context.output.out() << preview_text(*report) << std::flush;
  } else {
    context.output.result(*report, "", {});
  }
  return kDone;
}

int heads(Context& context, const std::string& id, const PreviewFlags& flags) {
  if (id.empty() == flags.model.empty()) {
    context.output.failure(base::invalid_argument(
        "MISSING_FIELD", "give either a job's id, or --model and --file or --text"));
    return kUsage;
  }
  return id.empty() ? preview_heads(context, flags) : heads_of_job(context, id, flags.out);
}

// What the grids take; scores are shown with four digits.
v1::HeadSelectionComplete as_event(const v1::HeadSelectionReport& report) {
  v1::HeadSelectionComplete out;
  out.set_criterion(report.criterion());
  out.set_selected_heads(report.selected_heads());
  out.set_selected_ratio(report.selected_ratio());
  for (const auto& layer : report.layers()) {
    auto& shown = *out.add_layers();
    for (const double value : layer.entropy()) shown.add_entropy(static_cast<float>(value));
    for (const double value : layer.importance()) shown.add_importance(static_cast<float>(value));
    *shown.mutable_selected() = layer.selected();
  }
  return out;
}

// "12 entropy, 3 both": how many of the chosen heads each condition chose.
std::string reasons_text(const v1::HeadSelectionReport& report) {
  std::map<std::string, int> heads;
  for (const auto& layer : report.layers()) {
    for (const std::string& reason : layer.chosen_by()) ++heads[reason];
  }
  std::string out;
  for (const auto& [reason, count] : heads)
    out += (out.empty() ? "" : ", ") + std::to_string(count) + " " + reason;
  return out;
}

// "layer 0: 1 3; layer 2: 0", or "none".
std::string changed_text(
    const google::protobuf::RepeatedPtrField<v1::HeadSelection::LayerHeads>& layers) {
  std::string out;
  for (const auto& layer : layers) {
    out += (out.empty() ? "layer " : "; layer ") + std::to_string(layer.layer()) + ":";
    for (const uint32_t head : layer.heads()) out += " " + std::to_string(head);
  }
  return out.empty() ? "none" : out;
}

}  // namespace

base::Result<v1::PreviewHeadSelectionRequest> make_preview(const PreviewFlags& flags) {
  v1::PreviewHeadSelectionRequest request;
  request.set_model(flags.model);
  request.set_file(flags.file);
  request.set_preset(flags.preset);
  for (const std::string& text : flags.texts) request.add_texts(text);
  if (!flags.seed.empty()) DEX_RETURN_IF_ERROR(set_field(request, "seed", flags.seed));
  if (!flags.criterion.empty())
    DEX_RETURN_IF_ERROR(set_field(request, "head_selection.criterion", flags.criterion));
  for (const std::string& set : flags.sets) {
    const size_t equals = set.find('=');
    if (equals == std::string::npos) {
      return base::invalid_argument(
          "INVALID_FIELD", "--set takes path=value, such as calibration.n_sequences=4, got " + set);
    }
    DEX_RETURN_IF_ERROR(
        set_field(request, "head_selection." + set.substr(0, equals), set.substr(equals + 1)));
  }
  return request;
}

std::string selection_text(const v1::HeadSelectionReport& report) {
  std::string out;
  if (report.layers_size() > 0) {
    const std::string reasons = reasons_text(report);
    if (!reasons.empty()) out += "chosen by: " + reasons + "; ";
    out += "share by layer, %:";
    for (const auto& layer : report.layers()) out += " " + fixed(100 * layer.selected_ratio(), 0);
    out += "\n";
  }
  if (report.has_calibration()) {
    const auto& calibration = report.calibration();
    out += "measured on " + std::to_string(calibration.sequences()) + " sequences with " +
           std::to_string(calibration.tokens()) + " tokens" +
           (calibration.source().empty() ? "" : " of the " + words(calibration.source())) +
           ", seed " + std::to_string(calibration.seed()) + "; entropy in " +
           calibration.entropy_unit() + " from row " + std::to_string(calibration.skip_rows()) +
           " on\n";
  }
  if (report.has_stability_ratio()) {
    out += "stability: the two halves of these sequences agree on " +
           fixed(100 * report.stability_ratio(), 0) + " % of the heads that either chooses\n";
  }
  for (int i = 1; i < report.selections_size(); ++i) {  // the first is no change
    const auto& again = report.selections(i);
    out += "chosen again before step " + std::to_string(again.step() + 1) + ": " +
           std::to_string(again.selected_heads()) + " heads, " +
           fixed(100 * again.selected_ratio(), 0) + " %; entered " + changed_text(again.entered()) +
           "; left " + changed_text(again.left()) + "\n";
  }
  for (const std::string& warning : report.warnings()) out += "warning: " + warning + "\n";
  return out.empty() ? "" : "\n" + out;
}

std::string preview_text(const v1::HeadSelectionReport& report) {
  return head_grid_text(as_event(report)) + selection_text(report);
}

void add_heads(CLI::App& jobs, Action& action) {
  auto* verb = add_verb(
      jobs, "heads", "the attention heads that a job adapts, or would, as a grid of their scores",
      "dexctl jobs heads --model smollm2-135m-instruct --file rows.jsonl "
      "--preset code\n"
      "dexctl jobs heads ftjob-01… --out heads/");
  auto id = std::make_shared<std::string>();
  auto flags = std::make_shared<PreviewFlags>();
  auto* job = verb->add_option("id", *id, "a job that has chosen its heads");
  auto* model = verb->add_option("--model", flags->model,
                                 "without a job: the base model, whose heads a worker measures; "
                                 "nothing is trained");
  model->excludes(job);
  verb->add_option("--file", flags->file,
                   "the rows that a job would be trained on: a file id, or a path that is uploaded "
                   "first")
      ->needs(model);
  verb->add_option("--text", flags->texts, "or up to 64 rows of plain text (may be repeated)")
      ->allow_extra_args(false)
      ->needs(model);
  verb->add_option("--preset", flags->preset, "whose head_selection holds where none is given")
      ->needs(model);
  verb->add_option("--criterion", flags->criterion,
                   "entropy, importance, threshold, all or explicit; default: the preset's")
      ->needs(model);
  verb->add_option("--seed", flags->seed, "of the choice of rows: that of the job to be")
      ->needs(model);
  verb->add_option("--set", flags->sets,
                   "any field of head_selection: --set tau=1.2 (may be repeated)")
      ->allow_extra_args(false)
      ->needs(model);
  verb->add_option("--out", flags->out,
                   "folder that gets the whole report (head_selection.json) and its picture "
                   "(head_selection.svg); of a job once it has succeeded");
  verb->callback(
      [&action, id, flags] { action = [=](Context& c) { return heads(c, *id, *flags); }; });
}

}  // namespace dex::cli
