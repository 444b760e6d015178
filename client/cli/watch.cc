#include "client/cli/watch.h"

#include "client/cli/exit_code.h"
#include "client/cli/job_view.h"
#include "client/cli/progress_view.h"

namespace dex::cli {

int follow_job(Context& context, const std::string& id, int64_t after_sequence, Until until) {
  JobProgress progress(context.output);
  int64_t last_sequence = after_sequence;
  const base::Status status = context.client.watch_job(
      id, after_sequence, [&](const v1::WatchFineTuningJobResponse& message) {
        if (message.has_snapshot()) progress.show(message.snapshot());
        if (message.has_event()) {
          last_sequence = message.event().sequence();
          progress.show(message.event());
        }
        return until == Until::kEnded ||
               message.snapshot().pause_reason() != v1::PAUSE_REASON_AWAITING_START;
      });
  progress.clear();
  if (status.code() == base::Code::kCancelled) {
    context.output.note("the job goes on; watch it again: dexctl jobs watch " + id + " --after " +
                        std::to_string(last_sequence));
    return kInterrupted;
  }
  if (!status.ok()) return context.output.failure(status);
  const auto job = context.client.get_job(id);
  if (!job.ok()) return context.output.failure(job.status());
  context.output.result(*job, job->id(), job_details(*job));
  if (job->pause_reason() == v1::PAUSE_REASON_AWAITING_START)
    context.output.note("start it: dexctl jobs resume " + id);
  return exit_code(*job);
}

}  // namespace dex::cli
