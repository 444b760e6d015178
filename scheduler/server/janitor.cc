#include "scheduler/server/janitor.h"

#include <spdlog/spdlog.h>

#include "scheduler/server/leftovers.h"
#include "services/base/signals.h"

namespace dex::server {

Janitor::Janitor(const Parts& parts, Options options)
    : parts_(parts),
      options_(options),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

Janitor::~Janitor() {
  stop();
}

void Janitor::request_stop() {
  thread_.request_stop();
}

void Janitor::stop() {
  request_stop();
  if (thread_.joinable()) thread_.join();
}

void Janitor::run(const std::stop_token& stop) {
  std::string last_fault;
  while (!stop.stop_requested()) {
    const base::Status status = tidy(stop);
    if (stop.stop_requested()) return;
    if (!status.ok() && status.message() != last_fault)  // an outage is one line, not many
      spdlog::warn("the data directory could not be tidied: {}", status.message());
    last_fault = status.message();
    base::wait_for_stop(stop, status.ok() ? options_.period_ms : options_.retry_ms);
  }
}

base::Status Janitor::tidy(const std::stop_token& stop) {
  DEX_ASSIGN_OR_RETURN(const auto recovered, parts_.blobs.recover());
  if (recovered.removed > 0)
    spdlog::info("removed the bytes of {} files that nobody names", recovered.removed);
  if (recovered.lost > 0) {
    spdlog::error("the bytes of {} files are gone from {}; is it the right data directory?",
                  recovered.lost, parts_.layout.all_blobs().string());
  }
  if (recovered.returned > 0) spdlog::info("the bytes of {} files are back", recovered.returned);
  const int64_t now_ms = parts_.clock.now_ms();
  DEX_ASSIGN_OR_RETURN(const int64_t uploads,
                       remove_dead_uploads(parts_.layout, parts_.files, now_ms));
  if (uploads > 0) spdlog::info("removed {} leftovers of uploads", uploads);
  DEX_ASSIGN_OR_RETURN(const int64_t attempts,
                       remove_needless_attempts(parts_.layout, parts_.jobs, now_ms, stop));
  if (attempts > 0) spdlog::info("removed {} attempt directories of ended jobs", attempts);
  return {};
}

}  // namespace dex::server
