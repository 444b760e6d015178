#include "worker/agent/request_table.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace dex::agent {

namespace {

double seconds(int64_t ms) {
  return static_cast<double>(ms) / 1000.0;
}

const char* reason_label(dex::v1::FinishReason reason) {
  switch (reason) {
    case dex::v1::FINISH_REASON_STOP:
      return "stop";
    case dex::v1::FINISH_REASON_LENGTH:
      return "length";
    case dex::v1::FINISH_REASON_CANCELLED:
      return "cancelled";
    default:
      return "error";
  }
}

}  // namespace

RequestTable::RequestTable(size_t most, const base::Clock& clock, InferenceMetrics& metrics)
    : most_(most), clock_(clock), metrics_(metrics) {}

std::optional<uint64_t> RequestTable::add(std::shared_ptr<ReplySink> sink, std::string adapter) {
  const std::lock_guard lock(mutex_);
  if (entries_.size() >= most_) return std::nullopt;
  const uint64_t request = next_++;
  entries_[request] = {std::move(sink), std::move(adapter), clock_.steady_ms(), 0, false};
  return request;
}

bool RequestTable::mark_sent(uint64_t request) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(request);
  if (found == entries_.end()) return false;
  found->second.sent = true;
  return true;
}

bool RequestTable::sent(uint64_t request) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(request);
  return found != entries_.end() && found->second.sent;
}

bool RequestTable::event(uint64_t request, dex::v1::GenerateStreamResponse event) {
  std::shared_ptr<ReplySink> sink;
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(request);
    if (found == entries_.end()) return false;
    Entry& entry = found->second;
    sink = entry.sink;
    if (event.has_delta() && event.delta().token_ids_size() + event.delta().text().size() > 0) {
      const int64_t now = clock_.steady_ms();
      if (entry.last_token_ms == 0) {
        metrics_.first_token.Observe(seconds(now - entry.arrived_ms));
      } else {
        metrics_.inter_token.Observe(seconds(now - entry.last_token_ms));
      }
      entry.last_token_ms = now;
    }
  }
  return sink->event(std::move(event));
}

void RequestTable::finish(uint64_t request, const dex::v1::GenerateStreamResponse::Finish& finish) {
  const auto entry = take(request);
  if (!entry) return;
  count_end(*entry, reason_label(finish.finish_reason()));
  metrics_.queue.Observe(finish.timing().queue_ms() / 1000.0);
  metrics_.prompt_tokens.Increment(finish.usage().prompt_tokens());
  metrics_.generation_tokens.Increment(finish.usage().completion_tokens());
  entry->sink->finish(finish);
}

void RequestTable::fail(uint64_t request, const base::Status& status) {
  const auto entry = take(request);
  if (!entry) return;
  count_end(*entry, status.code() == base::Code::kCancelled ? "cancelled" : "error");
  entry->sink->fail(status);
}

void RequestTable::fail_all(const base::Status& status) {
  std::unordered_map<uint64_t, Entry> lost;
  {
    const std::lock_guard lock(mutex_);
    lost.swap(entries_);
  }
  for (auto& [request, entry] : lost) {
    count_end(entry, "error");
    entry.sink->fail(status);
  }
}

size_t RequestTable::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

bool RequestTable::uses(const std::string& adapter) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(),
                     [&adapter](const auto& item) { return item.second.adapter == adapter; });
}

void RequestTable::add_adapters(AdapterUse& use) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [request, entry] : entries_) {
    if (entry.adapter.empty()) continue;
    (entry.last_token_ms > 0 ? use.running : use.waiting).insert(entry.adapter);
  }
}

std::optional<RequestTable::Entry> RequestTable::take(uint64_t request) {
  const std::lock_guard lock(mutex_);
  auto node = entries_.extract(request);
  if (node.empty()) return std::nullopt;
  return std::move(node.mapped());
}

void RequestTable::count_end(const Entry& entry, const char* reason) {
  metrics_.requests.Add({{"finished_reason", reason}}).Increment();
  metrics_.duration.Observe(seconds(clock_.steady_ms() - entry.arrived_ms));
}

}  // namespace dex::agent
