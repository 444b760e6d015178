#include "scheduler/server/job_watches.h"

#include <algorithm>

#include "scheduler/core/public_state.h"
#include "scheduler/server/job_view.h"
#include "scheduler/store/refusals.h"

namespace dex::server {

namespace {

constexpr size_t kPage = 100;         // entries of a job in one read
constexpr size_t kJobsARead = 100;    // bounds what one reply of the store may hold
constexpr int64_t kLooksACheck = 20;  // a few seconds, between two looks for deleted jobs

v1::JobState shown_state(const store::JobRecord& record) {
  v1::Progress progress;
  if (!progress.ParseFromString(record.progress)) progress.Clear();
  return public_state(record, progress);
}

}  // namespace

// What a look has found of one job, made once for all who watch it.
struct JobWatches::Told {
  Told(const std::string& id, const std::vector<store::LogEntry>& found,
       const store::JobRecord& record)
      : entries(found),
        archived(record.archived),
        state(shown_state(record)),
        snapshot{id, record, nullptr} {
    for (const store::LogEntry& entry : entries) events.push_back({id, entry, nullptr});
  }

  const std::vector<store::LogEntry>& entries;
  const int64_t archived;
  const v1::JobState state;
  std::vector<JobNews> events;  // one for each of entries
  JobNews snapshot;
};

void JobWatches::watch(const std::string& tenant, const std::string& id, int64_t after,
                       std::shared_ptr<Client> client, std::shared_ptr<std::atomic<int64_t>> last) {
  const auto record = jobs_.get(tenant, id);
  if (!record.ok()) return client->finish(record.status());
  Watch watch{tenant, id, after, std::move(client), std::move(last)};
  if (show(watch, *record)) send_stored(std::move(watch));
}

bool JobWatches::show(Watch& watch, const store::JobRecord& record) {
  watch.shown = shown_state(record);
  watch.sequence = record.sequence;
  watch.terminal = record.terminal();
  JobNews snapshot{watch.id, record, nullptr};
  return watch.client->push(snapshot);
}

void JobWatches::send_stored(Watch watch) {
  while (true) {
    const size_t room = std::min(watch.client->room(), kPage);
    if (room == 0) {
      const auto client = watch.client;
      return client->when_room([this, watch = std::move(watch)] { send_stored(watch); });
    }
    const auto events = events_.read(watch.tenant, watch.id, watch.after, static_cast<int>(room));
    if (events.status().code() == base::Code::kDataLoss)
      return watch.client->finish(events.status());
    if (!events.ok()) break;  // the store is away just now: the first look goes on from here
    for (const auto& event : *events) {
      JobNews news{watch.id, event, nullptr};
      if (!watch.client->push(news)) return;
      watch.after = event.sequence();
      watch.last->store(event.sequence());
    }
    if (events->size() < room) break;
  }
  follow(std::move(watch));
}

void JobWatches::follow(Watch watch) {
  if (watch.after > watch.sequence) {  // it moved while its log was sent
    const auto record = jobs_.get(watch.tenant, watch.id);
    if (!record.ok()) return watch.client->finish(record.status());
    watch.sequence = record->sequence;
    watch.terminal = record->terminal();
    if (shown_state(*record) != watch.shown && !show(watch, *record)) return;
  }
  const bool told = watch.after >= watch.sequence;  // all that there will ever be
  if (watch.terminal && told) return watch.client->finish({});

  const std::lock_guard lock(mutex_);
  watches_.push_back(std::move(watch));
  if (!looking_) {
    looking_ = true;
    waiters_.add([this] { return look(); });
  } else {
    waiters_.wake();
  }
}

bool JobWatches::look() {
  std::vector<Watch> watches;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(watches_, [](const Watch& watch) { return watch.client->gone(); });
    if (watches_.empty()) {
      looking_ = false;
      return true;
    }
    watches.swap(watches_);
  }

  // Job by job, and first the one who has seen least of it.
  std::sort(watches.begin(), watches.end(), [](const Watch& a, const Watch& b) {
    return a.id != b.id ? a.id < b.id : a.after < b.after;
  });
  bool more = false;
  const bool check = ++looks_ % kLooksACheck == 0;
  std::vector<store::JobRepository::LogPosition> positions;
  for (std::span<Watch> left(watches); !left.empty();) {
    const std::span<Watch> some = next_jobs(left, positions);
    left = left.subspan(some.size());
    const auto news = jobs_.logs(positions, static_cast<int>(kPage));
    if (!news.ok()) break;  // the store is away: watches stay open and go on when it is back
    for (const auto& [id, entries] : *news) {
      more = more || entries.size() == kPage;
      const auto own = std::ranges::equal_range(some, id, {}, &Watch::id);
      if (!entries.empty() && !own.empty()) tell(std::span<Watch>(own.begin(), own.end()), entries);
    }
    if (check) end_deleted(some, positions);
  }
  std::erase_if(watches, [](const Watch& watch) { return watch.ended; });

  const std::lock_guard lock(mutex_);
  watches_.insert(watches_.end(), std::make_move_iterator(watches.begin()),
                  std::make_move_iterator(watches.end()));
  if (more) waiters_.wake();
  return false;
}

std::span<JobWatches::Watch> JobWatches::next_jobs(
    std::span<Watch> sorted, std::vector<store::JobRepository::LogPosition>& positions) {
  positions.clear();
  size_t count = 0;
  for (; count < sorted.size(); ++count) {
    const Watch& watch = sorted[count];
    if (!positions.empty() && positions.back().id == watch.id) continue;
    if (positions.size() == kJobsARead) break;
    positions.push_back({watch.id, watch.after});
  }
  return sorted.first(count);
}

void JobWatches::end_deleted(std::span<Watch> watches,
                             const std::vector<store::JobRepository::LogPosition>& positions) {
  const auto all = jobs_.exist(positions);
  if (!all.ok() || *all) return;
  for (const auto& position : positions) {
    const auto there = jobs_.exist({position});
    if (!there.ok() || *there) continue;
    for (Watch& watch : watches) {
      if (watch.id != position.id || watch.ended) continue;
      watch.client->finish(store::job_not_found(watch.id));
      watch.ended = true;
    }
  }
}

void JobWatches::tell(std::span<Watch> watches, const std::vector<store::LogEntry>& entries) {
  const Watch& first = watches.front();
  const auto job = jobs_.get(first.tenant, first.id);
  if (!job.ok()) return;  // events and snapshot go together: both at the next look
  Told told(first.id, entries, *job);
  for (Watch& watch : watches) advance(watch, told);
}

void JobWatches::advance(Watch& watch, Told& told) {
  watch.ended = true;  // on every way out but the last
  if (told.entries.front().sequence > watch.after + 1 && told.archived > watch.after) {
    // What lies between has gone to the archive, which is read where a watch begins.
    return watch.client->finish(base::unavailable(
        "WATCH_LAGGED", "the watch is behind the job's log; connect again from the last event"));
  }
  bool last = false;
  for (size_t i = 0; i < told.entries.size(); ++i) {
    const store::LogEntry& entry = told.entries[i];
    if (entry.sequence <= watch.after) continue;
    if (!watch.client->push(told.events[i])) return;
    watch.after = entry.sequence;
    watch.last->store(entry.sequence);
    last = last || is_last_event(entry.type);
  }
  const bool over = last && core::is_terminal(told.state);
  if (told.state != watch.shown || over) {
    watch.shown = told.state;
    if (!watch.client->push(told.snapshot)) return;
  }
  if (over) return watch.client->finish({});
  watch.ended = false;
}

}  // namespace dex::server
