// An entry of a job's log in the store, of which a worker's part is a message of its own making.
#include "dex/v1/events.pb.h"
#include "scheduler/server/job_view.h"
#include "tests/fuzz/target.h"

namespace dex::fuzz {

Corpus corpus() {
  dex::v1::FineTuningEvent metrics;
  metrics.mutable_metrics()->set_step(12);
  metrics.set_type("metrics");
  metrics.set_sequence(99);
  Corpus made;
  // Level, type, message, data.
  made.seeds = {
      joined({"INFO", "metrics", "step 12", metrics.SerializeAsString()}),
      joined({"INFO", "job_start", "Attempt 1 started on w.", "w\n120"}),
      joined({"WARN", "job_restarted", "Attempt 1 ended (crash); queued again.", "crash\n0"}),
      joined({"INFO", "job_complete", "The job succeeded.", "ft:a:b:c"}),
      joined({"ERROR", "job_user_error", "no", "invalid_training_file"}),
      joined({"INFO", "job_paused", "Paused: USER.", ""})};
  made.words = {"metrics",   "job_start", "job_restarted", "job_expired",
                "\n=====\n", "\n",        "\x0A",          "\xFF"};
  return made;
}

}  // namespace dex::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dex::fuzz;
  auto parts = parts_of(view(data, size));
  parts.resize(4);
  dex::store::LogEntry entry;
  entry.sequence = 7;
  entry.at_ms = static_cast<int64_t>(size) * 1'000'000'000;
  entry.level = parts[0];
  entry.type = parts[1];
  entry.message = parts[2];
  entry.data = parts[3];
  entry.attempt = 1;
  const auto event = dex::server::event_view("ftjob-1", entry);
  taken();
  // What a worker wrote never takes the place of what the store knows.
  require(event.sequence() == 7 && event.id() == "ftevent-1-7", "the store's number");
  require(event.type() == entry.type && event.message() == entry.message, "the store's words");
  return 0;
}
