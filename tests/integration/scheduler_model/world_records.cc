// Calls of the model test about records beside the queue: files, adapters, archived logs. And
// damage by hand, which reconcile mends.
#include <array>

#include "tests/integration/scheduler_model/answers.h"
#include "tests/integration/scheduler_model/world.h"

namespace dex::model {

using support::text_of;

void World::put_file() {
  std::string who = tenant();
  const store::RequestKey key = request_again("upload", who, 100, 10);
  store::FileRecord file;
  file.id = new_name("file-");
  file.state = dice_.chance(85) ? "READY" : "PROCESSING";
  file.sha256 = "sha" + std::to_string(dice_.pick(3));
  Scheduler& at = scheduler();
  act(
      "file", reference().put_file(who, key, file.id, 2),
      [&] { return answer_of(at.files.put(who, key, file, 2)); }, Repeat::kHalf);
}

// Often one that a failed job would need again, so that a redrive can find it gone.
void World::remove_file() {
  std::vector<std::string> all = {"file-missing"};
  std::vector<std::string> used, missed;
  for (const auto& [name, file] : current_.hashes) {
    if (!name.starts_with("file:")) continue;
    all.push_back(name.substr(5));
    if (!current_.zset("fileuse:" + all.back()).empty()) used.push_back(all.back());
  }
  // Of jobs that have failed, and could not be redriven without.
  for (const auto& [name, job] : current_.jobs) {
    if (text_of(job, "state") != "FAILED") continue;
    for (const std::string& file : support::words_of(text_of(job, "files"))) {
      const bool held = !current_.zset("fileuse:" + file).empty();
      if (!held && current_.hashes.contains("file:" + file)) missed.push_back(file);
    }
  }
  std::string id = !used.empty() && dice_.chance(35) ? dice_.of(used) : dice_.of(all);
  if (!missed.empty() && dice_.chance(60)) id = dice_.of(missed);
  const std::string owner = text_of(current_.hash("file:" + id), "tenant");
  std::string who = owner.empty() || dice_.chance(15) ? tenant() : owner;
  const store::RequestKey key = request_again("delete", who, 50, 10);
  Scheduler& at = scheduler();
  const Expected expected = reference().remove_file(who, id, key);
  // Without a request_id the second call finds no file.
  const bool repeatable = !key.id.empty() || expected.reply != "OK";
  act(
      "file", expected, [&] { return answer_of(at.files.remove(who, id, key)); },
      repeatable ? Repeat::kHalf : Repeat::kNever);
}

// Mostly a log of an ended job, and one that is long enough to be cut; up to some place in it, up
// to its end, or beyond either.
void World::archive() {
  std::string id = dice_.chance(80) ? job_in({"SUCCEEDED", "FAILED", "CANCELLED"})
                                    : job_in({"READY", "RUNNING"});
  std::vector<std::string> long_ones;
  for (const auto& [name, log] : current_.streams) {
    if (name.starts_with("log:") && log.length >= 50) long_ones.push_back(name.substr(4));
  }
  if (!long_ones.empty() && dice_.chance(65)) id = dice_.of(long_ones);
  if (dice_.chance(10)) id = "ftjob-none";
  const auto job = current_.jobs.find(id);
  const auto last = job == current_.jobs.end()
                        ? int64_t{0}
                        : static_cast<int64_t>(support::number_of(job->second, "seq"));
  const int where = dice_.pick(100);
  const int64_t sequence = where < 12   ? last
                           : where < 88 ? dice_.pick(static_cast<int>(last) + 1)
                           : where < 93 ? last + 5
                                        : 0;
  Scheduler& at = scheduler();
  const auto call = [&] {
    const auto done = at.jobs.archived(id, sequence);
    if (!done.ok()) return refused(done.status());
    return std::string(*done ? "OK" : "GONE");
  };
  act("archived", reference().archived(id, sequence), call, Repeat::kHalf);
}

std::vector<std::string> World::adapters_of(const std::string& who) const {
  std::vector<std::string> ids;
  for (const auto& [name, record] : current_.hashes) {
    const bool fits = who.empty() || text_of(record, "tenant") == who;
    if (name.starts_with("adapter:") && fits) ids.push_back(name.substr(8));
  }
  return ids;
}

void World::ask_for_adapter() {
  const std::vector<std::string> all = adapters_of("");
  if (all.empty() && dice_.chance(80)) return archive();
  std::string id = all.empty() || dice_.chance(10) ? "ft:b:t::none" : dice_.of(all);
  const int what = dice_.pick(100);
  if (what < 60) return desire_adapter(id, what < 40);
  std::vector<std::string> needed;
  for (const std::string& adapter : all) {
    if (!current_.zset("adapteruse:" + adapter).empty()) needed.push_back(adapter);
  }
  if (!needed.empty() && dice_.chance(30)) id = dice_.of(needed);
  forget_adapter(id);
}

void World::desire_adapter(const std::string& id, bool loaded) {
  const std::string owner = text_of(current_.hash("adapter:" + id), "tenant");
  std::string who = owner.empty() || dice_.chance(15) ? tenant() : owner;
  const store::RequestKey key = request_again("desire", who, 60, 35);
  Scheduler& at = scheduler();
  const auto call = [&] {
    const auto known = at.adapters.desire(who, id, loaded, key);
    if (!known.ok()) return refused(known.status());
    return std::string(*known ? "DUP" : "OK");
  };
  act("adapter", reference().desire_adapter(who, id, loaded, key), call, Repeat::kHalf);
}

void World::forget_adapter(const std::string& id) {
  const std::string owner = text_of(current_.hash("adapter:" + id), "tenant");
  std::string who = owner.empty() || dice_.chance(15) ? tenant() : owner;
  const store::RequestKey key = request_again("forget", who, 60, 35);
  Scheduler& at = scheduler();
  const auto call = [&] {
    const auto removed = at.adapters.remove(who, id, key);
    if (!removed.ok()) return refused(removed.status());
    return std::string(removed->replayed ? "DUP" : "OK");
  };
  const Expected expected = reference().forget_adapter(who, id, key);
  if (expected.word == "OK delete") forgotten_.insert(id);
  // Without a request_id the second call finds no adapter.
  const bool repeatable = !key.id.empty() || expected.reply != "OK";
  act("adapter", expected, call, repeatable ? Repeat::kHalf : Repeat::kNever);
}

// What somebody spoils by hand is as it was once reconcile has been there (T18).
void World::damage() {
  Scheduler& at = scheduler();
  const auto healthy = at.shard.reconcile();
  if (!healthy.ok()) return say("reconcile: " + healthy.status().to_string());
  if (*healthy != 0) {
    return say("reconcile found " + std::to_string(*healthy) + " things to repair in a good store");
  }
  // A tenant whose day is over may have come back into its rings: no repair, but a change.
  observe({});
  if (!wrong_.empty()) return;
  const std::string what = spoil();
  if (what.empty()) return;
  const auto fixes = at.shard.reconcile();
  if (!fixes.ok()) return say("reconcile: " + fixes.status().to_string());
  if (*fixes == 0) say("reconcile did not see that " + what);
  if (support::digest_of_store(call_) != current_.digest)
    say("reconcile did not mend that " + what);
  ++tally_["reconcile mended"];
}

// Of the sets of jobs.md §2 all but `rq` and `trun`: of what these hold a tenant's place in the
// rings is made anew, so it need not be the old one once they are mended.
std::string World::spoil() {
  static const std::set<std::string> families = {"delayed", "lease", "deadline", "paused",
                                                 "done",    "dead",  "inflight", "ready",
                                                 "tjobs",   "twait"};
  static const std::array<std::string, 5> foreign = {"delayed", "lease", "deadline", "paused",
                                                     "done"};
  struct Place {
    std::string set, id;
    double score = 0;
  };
  std::vector<Place> places;
  for (const auto& [name, members] : current_.zsets) {
    if (!families.contains(name.substr(0, name.find(':')))) continue;
    for (const auto& [id, score] : members) places.push_back({name, id, score});
  }
  if (places.empty()) return "";
  const Place place = dice_.of(places);
  const std::string prefix = "dex:{s0}:";
  const int how = dice_.pick(4);
  if (how == 0) {
    server_.call({"ZREM", prefix + place.set, place.id});
    return place.id + " is missing in " + place.set;
  }
  if (how == 1) {
    server_.call({"ZADD", prefix + place.set, whole(place.score + 1), place.id});
    return place.id + " has another score in " + place.set;
  }
  const std::string& other = foreign.at(static_cast<size_t>(dice_.pick(5)));
  if (how == 2 && !current_.zset(other).contains(place.id)) {
    server_.call({"ZADD", prefix + other, whole(place.score), place.id});
    return place.id + " is in " + other;
  }
  server_.call({"ZADD", prefix + place.set, whole(place.score), "ftjob-ghost"});
  return "a job that is none is in " + place.set;
}

}  // namespace dex::model
