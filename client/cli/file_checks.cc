#include "client/cli/file_checks.h"

#include <CLI/CLI.hpp>
#include <ostream>

#include "client/cli/exit_code.h"
#include "client/cli/file_argument.h"
#include "client/cli/file_view.h"
#include "client/cli/progress_view.h"
#include "services/data/file_check.h"
#include "services/data/file_repair.h"
#include "services/data/reader.h"
#include "services/data_view/file_report.h"
#include "services/text/model_text.h"

namespace dex::cli {

namespace {

namespace fs = std::filesystem;

// One name for both ways of asking: what is said of the file, and why it is INVALID.
int show(Context& context, const v1::File& file, const std::string& message) {
  context.output.result(file, file.id().empty() ? file.filename() : file.id(),
                        statistics_table(file));
  show_findings(context.output, file);
  if (file.state() == v1::FILE_STATE_READY) return kDone;
  context.output.note(red(context.output.terminal(), "invalid") + " " + file.filename() + ": " +
                      message);
  return kUserFault;
}

v1::RowEncoding encoding_of(const std::string& preset, uint32_t max_seq_length) {
  v1::RowEncoding encoding;
  if (!preset.empty()) encoding.set_preset(preset);
  if (max_seq_length > 0) encoding.set_max_seq_length(max_seq_length);
  return encoding;
}

base::Status unused(const std::string& flag, const std::string& why) {
  return base::bad_field("UNUSED_FIELD", flag, why);
}

int validate_uploaded(Context& context, const ValidateFlags& flags) {
  const std::string local =
      "is for a file on this machine, and there is none of that path: " + flags.target;
  if (!flags.tokenizer.empty()) return context.output.failure(unused("--tokenizer", local));
  if (!flags.fix.empty()) return context.output.failure(unused("--fix", local));
  auto file = context.client.get_file(flags.target);
  if (!file.ok()) return context.output.failure(file.status());
  v1::ValidateFileRequest request;
  request.set_file(flags.target);
  request.set_max_findings(flags.max_findings);
  if (!flags.model.empty()) request.set_model(flags.model);
  const auto encoding = encoding_of(flags.preset, flags.max_seq_length);
  if (encoding.ByteSizeLong() > 0) *request.mutable_encoding() = encoding;
  file->clear_findings();
  std::string message;
  UploadBar bar(context.output);
  const base::Status done =
      context.client.validate_file(request, [&](const v1::ValidateFileResponse& part) {
        if (part.has_progress()) bar.show(part.progress().bytes(), part.progress().total_bytes());
        if (part.has_finding()) *file->add_findings() = part.finding();
        if (part.has_statistics()) *file->mutable_statistics() = part.statistics();
        if (part.has_verdict()) {
          file->set_state(part.verdict().state());
          *file->mutable_finding_counts() = part.verdict().finding_counts();
          message = part.verdict().message();
        }
        return true;
      });
  bar.clear();
  if (!done.ok()) return context.output.failure(done);
  return show(context, *file, message);
}

int validate_local(Context& context, ValidateFlags flags) {
  if (!flags.model.empty()) {
    return context.output.failure(
        unused("--model",
               "is for an uploaded file; a file on this machine is counted with "
               "--tokenizer and the model's folder"));
  }
  if (!flags.fix.empty()) {
    const auto repaired = data::repair_file(flags.target, flags.fix, context.stop);
    if (!repaired.ok()) return context.output.failure(repaired.status());
    std::string what;
    for (const auto& code : *repaired) what += (what.empty() ? "" : ", ") + code;
    context.output.note("wrote " + flags.fix + ", repaired: " + (what.empty() ? "nothing" : what));
    flags.target = flags.fix;  // what is said from here on is said of the copy
  }
  const auto checked = check_local_file(flags, context.stop);
  if (!checked.ok()) return context.output.failure(checked.status());
  return show(context, checked->file, checked->message);
}

int preview(Context& context, v1::PreviewFileRequest request) {
  const auto id = file_argument(context, request.file());
  if (!id.ok()) return context.output.failure(id.status());
  request.set_file(*id);
  const auto shown = context.client.preview_file(request);
  if (!shown.ok()) return context.output.failure(shown.status());
  if (context.output.format() != Format::kTable) {
    context.output.result(*shown, *id, {});
    return kDone;
  }
  context.output.out() << preview_text(*shown, context.output.terminal()) << std::flush;
  if (shown->next_offset() > 0)
    context.output.note("more with --offset " + std::to_string(shown->next_offset()));
  return kDone;
}

void add_encoding(CLI::App& verb, std::string& preset, uint32_t& max_seq_length) {
  verb.add_option("--preset", preset, "the job's preset: its warnings and its choice of lengths");
  verb.add_option("--max-seq-length", max_seq_length, "the job's max_seq_length");
}

void add_validate(CLI::App& noun, Action& action) {
  auto* verb = add_verb(noun, "validate",
                        "check a file: on this machine without a server, or an uploaded one again",
                        "dexctl files validate rows.jsonl --fix repaired.jsonl\n"
                        "dexctl files validate rows.jsonl --tokenizer models/smollm2\n"
                        "dexctl files validate file-01… --model smollm2-135m-instruct");
  auto flags = std::make_shared<ValidateFlags>();
  verb->add_option("file", flags->target, "a path, or the id of an uploaded file")->required();
  verb->add_option("--model", flags->model, "count an uploaded file's tokens as a job with it");
  verb->add_option("--tokenizer", flags->tokenizer,
                   "count a local file's tokens with the tokenizer and template in this folder");
  add_encoding(*verb, flags->preset, flags->max_seq_length);
  verb->add_option("--skip-budget", flags->skip_budget_ratio,
                   "share of bad rows that is tolerated in a local file, 0 to 0.1")
      ->check(CLI::Range(0.0, 0.1));
  verb->add_option("--max-findings", flags->max_findings, "how many are shown of each layer (1000)")
      ->check(CLI::Range(1, 10'000));
  verb->add_option(
      "--fix", flags->fix,
      "write a copy of a local file here, which must not exist, with what needs no "
      "choice repaired: UTF-16, byte order mark, CR LF, one JSON array, pretty-printed "
      "rows; then check the copy");
  verb->callback([&action, flags] {
    action = [=](Context& c) {
      std::error_code error;
      return fs::is_regular_file(flags->target, error) ? validate_local(c, *flags)
                                                       : validate_uploaded(c, *flags);
    };
  });
}

}  // namespace

base::Result<LocalCheck> check_local_file(const ValidateFlags& flags, std::stop_token stop) {
  text::ModelText model;
  if (!flags.tokenizer.empty()) {
    DEX_ASSIGN_OR_RETURN(model, text::ModelText::load(flags.tokenizer));
    if (model.tokenizer == nullptr) {
      return base::not_found("RESOURCE_NOT_FOUND",
                             "there is no tokenizer.json in " + flags.tokenizer);
    }
  }
  const auto limit = static_cast<int32_t>(flags.max_seq_length);
  const text::RowEncoder encoder(model.tokenizer.get(), model.chat_template.get(),
                                 {.max_seq_length = limit});
  data::FileCheck::Options options;
  options.reading.skip_budget_ratio = flags.skip_budget_ratio;
  options.reading.max_findings = flags.max_findings;
  if (model.tokenizer != nullptr) options.encoder = &encoder;
  options.tokenizer = model.tokenizer.get();
  options.max_seq_length = limit;
  options.preset = flags.preset;
  data::FileCheck check(std::move(options));
  int64_t bytes = 0;
  DEX_RETURN_IF_ERROR(data::read_pieces(flags.target, [&](std::string_view piece) -> base::Status {
    if (stop.stop_requested())
      return {base::Code::kCancelled, "CLIENT_CANCELLED", "checking stopped"};
    check.feed(piece);
    bytes += static_cast<int64_t>(piece.size());
    return {};
  }));
  const data::FileReport report = check.finish();
  LocalCheck out;
  out.file = data_view::report_view(report.structure);
  out.file.set_filename(fs::path(flags.target).filename().string());
  out.file.set_bytes(bytes);
  out.file.set_skip_budget_ratio(flags.skip_budget_ratio);
  const v1::FileVerdict verdict = data_view::verdict_view(report);
  out.file.set_state(verdict.state());
  *out.file.mutable_finding_counts() = verdict.finding_counts();
  out.file.clear_findings();
  for (const auto& finding : report.findings)
    *out.file.add_findings() = data_view::finding_view(finding);
  *out.file.mutable_statistics() =
      data_view::statistics_view(report, encoding_of(flags.preset, flags.max_seq_length));
  out.message = verdict.message();
  return out;
}

void add_file_checks(CLI::App& noun, Action& action) {
  add_validate(noun, action);
  auto* verb =
      add_verb(noun, "preview", "rows exactly as training sees them: text, ids and what is trained",
               "dexctl files preview file-01… --model smollm2-135m-instruct --limit 3");
  struct Flags {
    std::string file, model, preset;
    uint32_t max_seq_length = 0, limit = 10;
    std::vector<int64_t> lines;
    int64_t offset = 0;
  };
  auto flags = std::make_shared<Flags>();
  verb->add_option("file", flags->file, "file id, or a path, which is uploaded")->required();
  verb->add_option("--model", flags->model, "the job's model")->required();
  add_encoding(*verb, flags->preset, flags->max_seq_length);
  verb->add_option("--lines", flags->lines, "these lines: 3,17")->delimiter(',');
  verb->add_option("--offset", flags->offset, "good rows before the first one shown");
  verb->add_option("--limit", flags->limit, "how many sequences, 1 to 50 (10)")
      ->check(CLI::Range(1, 50));
  verb->callback([&action, flags] {
    action = [=](Context& c) {
      v1::PreviewFileRequest request;
      request.set_file(flags->file);
      request.set_model(flags->model);
      const auto encoding = encoding_of(flags->preset, flags->max_seq_length);
      if (encoding.ByteSizeLong() > 0) *request.mutable_encoding() = encoding;
      request.mutable_lines()->Add(flags->lines.begin(), flags->lines.end());
      request.set_offset(flags->offset);
      if (flags->lines.empty()) request.set_limit(flags->limit);
      return preview(c, std::move(request));
    };
  });
}

}  // namespace dex::cli
