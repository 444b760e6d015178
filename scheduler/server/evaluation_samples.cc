#include "scheduler/server/evaluation_samples.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include "scheduler/core/evaluation_spec.h"
#include "scheduler/server/evaluation_view.h"
#include "scheduler/server/page.h"
#include "scheduler/server/published_file.h"

namespace dex::server {

namespace {

using SamplesRequest = v1::ListEvaluationSamplesRequest;

// Of a reply, so that a thousand long samples stay below gRPC's 4 MiB.
constexpr size_t kLargestSamplePage = 2 << 20;

// A sample: which task's, and which line of its file, both from 0.
struct SamplePlace {
  int task = 0;
  int64_t line = 0;
};

base::Result<SamplePlace> parse_place(const std::string& token) {
  DEX_ASSIGN_OR_RETURN(const auto cursor, parse_page_token(token));
  SamplePlace place;
  if (token.empty()) return place;
  place.line = cursor.before_ms;
  const std::string& task = cursor.before_id;
  const auto [end, error] = std::from_chars(task.data(), task.data() + task.size(), place.task);
  if (error == std::errc() && end == task.data() + task.size() && place.task >= 0) return place;
  return base::invalid_argument("INVALID_CURSOR", "page_token is not one that a list has given")
      .with_violation("page_token", "is not one that a list has given");
}

bool is_asked_for(const v1::EvaluationSpec& spec, int task, const SamplesRequest& request) {
  return request.task().empty() || request.task() == core::task_name(spec.tasks(task)) ||
         request.task() == "tasks[" + std::to_string(task) + "]";
}

// A name that nothing has would look like an evaluation without samples.
base::Status check_names(const v1::EvaluationSpec& spec, const SamplesRequest& request) {
  bool task = false;
  for (int i = 0; i < spec.tasks_size(); ++i) task = task || is_asked_for(spec, i, request);
  if (!task) {
    return base::invalid_field("task",
                               "is no task of this evaluation: name one (perplexity …), or "
                               "its place (tasks[0]), got '" +
                                   request.task() + "'");
  }
  std::string labels;
  for (const auto& subject : spec.subjects()) {
    if (request.subject().empty() || request.subject() == subject.label()) return {};
    labels += (labels.empty() ? "" : ", ") + subject.label();
  }
  return base::invalid_field("subject",
                             "must be one of " + labels + ", got '" + request.subject() + "'");
}

bool is_wanted(const v1::EvaluationSample& sample, const SamplesRequest& request) {
  if (!request.subject().empty() && sample.subject() != request.subject()) return false;
  return !request.only_changed() ||
         (sample.has_baseline_score() && sample.baseline_score() != sample.score());
}

// Collects one page.
class SamplePage {
 public:
  SamplePage(const SamplesRequest& request, int most) : request_(request), most_(most) {}

  // The wanted samples of `task`, whose file holds `lines`, from line `first` on. False: the page
  // is full, and the reply knows where the next one begins.
  base::Result<bool> add(int task, std::string_view lines, int64_t first) {
    int64_t line = 0;
    for (size_t begin = 0; begin < lines.size(); ++line) {
      const size_t end = std::min(lines.find('\n', begin), lines.size());
      const std::string text(lines.substr(begin, end - begin));
      begin = end + 1;
      if (line < first) continue;
      v1::EvaluationSample sample;
      google::protobuf::util::JsonParseOptions options;
      options.ignore_unknown_fields = true;  // of a worker that is newer than this scheduler
      const auto status = google::protobuf::util::JsonStringToMessage(text, &sample, options);
      if (!status.ok()) return base::internal(std::string(status.message()));
      if (!is_wanted(sample, request_)) continue;
      if (reply.samples_size() == most_ || bytes_ > kLargestSamplePage) {
        reply.set_next_page_token(page_token(line, std::to_string(task)));
        return false;
      }
      sample.set_task_index(static_cast<uint32_t>(task));
      bytes_ += sample.ByteSizeLong();
      *reply.add_samples() = std::move(sample);
    }
    return true;
  }

  v1::ListEvaluationSamplesResponse reply;

 private:
  const SamplesRequest& request_;
  int most_;
  size_t bytes_ = 0;
};

}  // namespace

base::Result<v1::ListEvaluationSamplesResponse> evaluation_samples(const store::JobRecord& record,
                                                                   const DataLayout& layout,
                                                                   const SamplesRequest& request) {
  DEX_ASSIGN_OR_RETURN(const int most, page_size(request.page_size()));
  DEX_ASSIGN_OR_RETURN(const SamplePlace from, parse_place(request.page_token()));
  const v1::EvaluationSpec spec = stored_evaluation(record.spec);
  DEX_RETURN_IF_ERROR(check_names(spec, request));
  DEX_ASSIGN_OR_RETURN(const auto published,
                       evaluation_checksums(record, layout, "its samples are"));
  SamplePage page(request, most);
  for (int task = from.task; task < spec.tasks_size(); ++task) {
    const std::string name = "samples-" + std::to_string(task + 1) + ".jsonl";
    if (!is_asked_for(spec, task, request) || !published.contains(name)) continue;
    DEX_ASSIGN_OR_RETURN(const std::string lines, published_file(record, layout, name));
    const auto more = page.add(task, lines, task == from.task ? from.line : 0);
    if (!more.ok()) return corrupt_results(record.id, name + ": " + more.status().message());
    if (!*more) break;
  }
  return std::move(page.reply);
}

}  // namespace dex::server
