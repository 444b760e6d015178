#include <CLI/CLI.hpp>
#include <filesystem>

#include "client/cli/command.h"
#include "client/cli/exit_code.h"
#include "client/cli/file_checks.h"
#include "client/cli/file_view.h"
#include "client/cli/progress_view.h"

namespace dex::cli {

namespace {

struct UploadArguments {
  std::string path;
  double skip_budget = 0;
  std::string purpose = "fine-tune";
};

int upload(Context& context, const UploadArguments& arguments) {
  v1::UploadFileRequest::Header header;
  const bool evals = arguments.purpose == "evals";
  header.set_purpose(evals ? v1::FILE_PURPOSE_EVALS : v1::FILE_PURPOSE_FINE_TUNE);
  if (arguments.skip_budget > 0) header.set_skip_budget_ratio(arguments.skip_budget);
  UploadBar bar(context.output);
  const auto file = context.client.upload_file(
      arguments.path, header, [&](int64_t sent, int64_t total) { bar.show(sent, total); });
  bar.clear();
  if (!file.ok()) return context.output.failure(file.status());
  context.output.result(*file, file->id(), file_table({*file}));
  show_findings(context.output, *file);
  if (file->state() == v1::FILE_STATE_READY) return kDone;
  context.output.note(red(context.output.terminal(), "invalid") + " " + file->filename() +
                      " can't be used; repair what is named above, then upload it again");
  return kUserFault;
}

int list(Context& context, const v1::ListFilesRequest& request) {
  const auto reply = context.client.list_files(request);
  if (!reply.ok()) return context.output.failure(reply.status());
  std::vector<std::string> ids;
  for (const auto& file : reply->files()) ids.push_back(file.id());
  context.output.list(*reply, ids, file_table({reply->files().begin(), reply->files().end()}),
                      "no files yet; upload one: dexctl files upload rows.jsonl");
  return kDone;
}

int get_file(Context& context, const std::string& id) {
  const auto file = context.client.get_file(id);
  if (!file.ok()) return context.output.failure(file.status());
  context.output.result(*file, file->id(), file_table({*file}));
  show_findings(context.output, *file);
  return kDone;
}

int findings(Context& context, const v1::ListFindingsRequest& request) {
  const auto reply = context.client.list_findings(request);
  if (!reply.ok()) return context.output.failure(reply.status());
  std::vector<std::string> codes;  // a finding has no other name
  for (const auto& finding : reply->findings()) codes.push_back(finding.code());
  context.output.list(*reply, codes,
                      findings_table({reply->findings().begin(), reply->findings().end()}),
                      "nothing to complain about");
  return kDone;
}

int remove(Context& context, const std::string& id) {
  const auto reply = context.client.delete_file(id);
  if (!reply.ok()) return context.output.failure(reply.status());
  context.output.result(*reply, reply->id(), {{"deleted"}, {reply->id()}});
  return kDone;
}

int download_file(Context& context, const std::string& id, const std::string& to) {
  const base::Status status = context.client.download_file(id, to);
  if (!status.ok()) return context.output.failure(status);
  context.output.note("written to " + to);
  return kDone;
}

}  // namespace

void add_files(CLI::App& app, Action& action) {
  auto* noun = app.add_subcommand("files", "data sets: check, upload, list, inspect, delete");
  noun->require_subcommand(1);

  auto* verb = add_verb(*noun, "upload", "upload a JSONL file; it is checked while it arrives",
                        "dexctl files upload rows.jsonl");
  auto uploaded = std::make_shared<UploadArguments>();
  verb->add_option("file", uploaded->path,
                   "JSONL: messages, prompt and completion, text, or input_ids")
      ->required();
  verb->add_option("--skip-budget", uploaded->skip_budget,
                   "share of bad rows that is tolerated, 0 to 0.1");
  verb->add_option("--purpose", uploaded->purpose,
                   "fine-tune (default); evals: data of an evaluation in whatever format its task "
                   "reads (dexctl evaluations create --help)")
      ->check(CLI::IsMember({"fine-tune", "evals"}));
  verb->callback(
      [&action, uploaded] { action = [=](Context& c) { return upload(c, *uploaded); }; });

  verb = add_verb(*noun, "list", "the newest files", "dexctl files list --limit 5");
  auto listed = std::make_shared<v1::ListFilesRequest>();
  auto limit = std::make_shared<int>(20);
  auto purpose = std::make_shared<std::string>();
  verb->add_option("--limit", *limit, "how many, 1 to 1000");
  verb->add_option(
          "--purpose", *purpose,
          "fine-tune, evals, or fine-tune-results: the curves of ended jobs (all uploaded)")
      ->check(CLI::IsMember({"fine-tune", "evals", "fine-tune-results"}));
  verb->callback([&action, listed, limit, purpose] {
    action = [=](Context& c) {
      listed->set_page_size(*limit);
      if (!purpose->empty()) {
        listed->set_purpose(*purpose == "evals"               ? v1::FILE_PURPOSE_EVALS
                            : *purpose == "fine-tune-results" ? v1::FILE_PURPOSE_FINE_TUNE_RESULTS
                                                              : v1::FILE_PURPOSE_FINE_TUNE);
      }
      return list(c, *listed);
    };
  });

  auto id = std::make_shared<std::string>();
  verb = add_verb(*noun, "get", "one file with its verdict and first findings",
                  "dexctl files get file-01…");
  verb->add_option("id", *id, "file id")->required();
  verb->callback([&action, id] { action = [=](Context& c) { return get_file(c, *id); }; });

  verb = add_verb(*noun, "findings", "what is wrong or odd in a file, by line",
                  "dexctl files findings file-01… --limit 50");
  auto count = std::make_shared<int>(100);
  verb->add_option("id", *id, "file id")->required();
  verb->add_option("--limit", *count, "how many, 1 to 1000");
  verb->callback([&action, id, count] {
    action = [=](Context& c) {
      v1::ListFindingsRequest request;
      request.set_id(*id);
      request.set_page_size(*count);
      return findings(c, request);
    };
  });

  verb = add_verb(*noun, "download", "write a file's bytes to disk",
                  "dexctl files download file-01… rows.jsonl");
  auto to = std::make_shared<std::string>();
  verb->add_option("id", *id, "file id")->required();
  verb->add_option("to", *to, "where to; must not exist")->required();
  verb->callback(
      [&action, id, to] { action = [=](Context& c) { return download_file(c, *id, *to); }; });

  verb = add_verb(*noun, "delete", "delete a file that no live job uses",
                  "dexctl files delete file-01…");
  verb->add_option("id", *id, "file id")->required();
  verb->callback([&action, id] { action = [=](Context& c) { return remove(c, *id); }; });

  add_file_checks(*noun, action);
}

}  // namespace dex::cli
