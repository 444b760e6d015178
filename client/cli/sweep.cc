#include "client/cli/sweep.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <memory>
#include <sstream>

#include "client/cli/exit_code.h"
#include "client/cli/job_view.h"
#include "client/cli/question.h"
#include "client/cli/spec_flags.h"

namespace dex::cli {

namespace {

struct SweepArguments {
  SpecFlags spec;
  std::vector<std::string> grid;
  bool dry_run = false;
  bool yes = false;
};

google::protobuf::Value value_of(const std::string& text) {
  google::protobuf::Value value;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) {
    value.set_number_value(number);
  } else if (text == "true" || text == "false") {
    value.set_bool_value(text == "true");
  } else {
    value.set_string_value(text);
  }
  return value;
}

base::Result<v1::BatchCreateFineTuningJobsRequest> request_of(Context& context,
                                                              const SweepArguments& arguments) {
  v1::BatchCreateFineTuningJobsRequest request;
  for (const std::string& text : arguments.grid) {
    DEX_ASSIGN_OR_RETURN(*request.add_sweep(), parse_axis(text));
  }
  const Upload upload = arguments.dry_run ? Upload::kRefused : Upload::kAllowed;
  DEX_ASSIGN_OR_RETURN(*request.mutable_spec(), spec_with_files(context, arguments.spec, upload));
  return request;
}

int sweep(Context& context, const SweepArguments& arguments) {
  if (!arguments.yes && !arguments.dry_run && !can_be_asked(context)) return kUsage;
  auto request = request_of(context, arguments);
  if (!request.ok()) return context.output.failure(request.status());
  // The server checks every job before anything is asked or stored.
  request->set_validate_only(true);
  const auto checked = context.client.create_jobs(*request);
  if (!checked.ok()) return context.output.failure(checked.status());
  const std::string count = std::to_string(checked->jobs_size());
  if (arguments.dry_run) {
    context.output.result(*checked, "", {{"JOBS"}, {count + ", and nothing is wrong with them"}});
    return kDone;
  }
  if (!arguments.yes && !said_yes(context, "Start " + count + " jobs?")) {
    context.output.note("nothing was started");
    return kInterrupted;
  }
  request->set_validate_only(false);
  const auto made = context.client.create_jobs(*request);
  if (!made.ok()) return context.output.failure(made.status());
  std::vector<std::string> ids;
  for (const auto& job : made->jobs()) ids.push_back(job.id());
  context.output.list(*made, ids, job_table({made->jobs().begin(), made->jobs().end()}), "no jobs");
  context.output.note("see them: dexctl jobs list --metadata sweep_id=" + made->sweep_id());
  return kDone;
}

}  // namespace

base::Result<v1::BatchCreateFineTuningJobsRequest::Axis> parse_axis(const std::string& text) {
  const size_t mark = text.find('=');
  if (mark == 0 || mark == std::string::npos || mark + 1 == text.size()) {
    return base::invalid_argument("INVALID_FIELD",
                                  "--grid must be FIELD=VALUE,VALUE…, such as "
                                  "hyperparameters.learning_rate=1e-5,2e-5; got \"" +
                                      text + "\"");
  }
  v1::BatchCreateFineTuningJobsRequest::Axis axis;
  axis.set_path(text.substr(0, mark));
  std::istringstream values(text.substr(mark + 1));
  for (std::string value; std::getline(values, value, ',');) *axis.add_values() = value_of(value);
  return axis;
}

void add_sweep(CLI::App& jobs, Action& action) {
  auto* verb = add_verb(jobs, "sweep",
                        "a job for each combination of values (at most 64), all or none; they have "
                        "the same metadata sweep_id",
                        "dexctl jobs sweep --model smollm2-135m-instruct --training-file "
                        "rows.jsonl --grid hyperparameters.learning_rate=1e-5,5e-5 --grid "
                        "seed=1,2,3");
  auto arguments = std::make_shared<SweepArguments>();
  add_spec_flags(*verb, arguments->spec);
  verb->add_option("--grid", arguments->grid,
                   "FIELD=VALUE,VALUE…: any field of the spec (may be repeated)")
      ->required()
      ->allow_extra_args(false);
  verb->add_flag("--dry-run", arguments->dry_run,
                 "only have the server check every one of them; files must be there already");
  verb->add_flag("-y,--yes", arguments->yes, "don't ask");
  verb->callback(
      [&action, arguments] { action = [=](Context& c) { return sweep(c, *arguments); }; });
}

}  // namespace dex::cli
