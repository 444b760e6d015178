#include "tests/integration/scheduler_model/world.h"

#include <algorithm>
#include <utility>

#include "tests/integration/scheduler_model/answers.h"
#include "tests/integration/scheduler_model/judge.h"

namespace dex::model {

namespace {

const std::string kShard = "dex:{s0}:";

void add_all(std::vector<std::string>& to, const std::vector<std::string>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

World::World(support::RedisServer& server, Tally& tally, Options options)
    : server_(server),
      tally_(tally),
      options_(std::move(options)),
      call_([this](const std::vector<std::string>& args) { return server_.call(args); }) {
  server_.call({"HSET", kShard + "cfg", "testclock", "1", "events_max", "0"});
  server_.call(
      {"CONFIG", "SET", "appendfsync", "no"});  // a kill leaves the page cache; this is fast
  for (int i = 0; i < 2; ++i) schedulers_.push_back(new_scheduler());
  (void)schedulers_[0]->shard.sweep();
  for (const std::string who : {"a", "b", "c"}) {
    store::FileRecord file;
    file.id = "file-" + who;
    file.state = "READY";
    file.sha256 = "sha";
    (void)schedulers_[0]->files.put(who, {}, file, 10);
    (void)schedulers_[0]->shard.set_tenant(who, 1, 12, 3, 0);
  }
  for (int i = 0; i < 3; ++i) {
    store::WorkerRecord record;
    record.id = "w" + std::to_string(i);
    record.pools = {"cpu", "gpu"};
    record.slots = 2;
    (void)schedulers_[0]->workers.enlist(record);
  }
  current_ = support::read_store(call_);
}

std::unique_ptr<World::Scheduler> World::new_scheduler() {
  store::Store::Options options;
  options.redis.address = options_.address.unix_path.empty() ? server_.address() : options_.address;
  options.redis.connections = 2;
  options.clock_ms = [this] { return clock_.now_ms(); };
  options.scripts = options_.scripts;
  auto made = std::make_unique<Scheduler>(options);
  (void)made->shard.command({"PING"});  // connects, which says hello
  return made;
}

std::vector<std::string> World::step(const Command& command) {
  wrong_.clear();
  dice_ = Dice(command.dice);
  switch (command.kind) {
    case Kind::kSubmit:
      submit();
      break;
    case Kind::kClaim:
      claim(dice_.chance(95) ? worker() : "w9");
      break;
    case Kind::kBeat:
      if (!attempts_.empty()) {
        beat(attempts_[static_cast<size_t>(dice_.pick(static_cast<int>(attempts_.size())))]);
      }
      break;
    case Kind::kFinish:
      random_finish();
      break;
    case Kind::kCancel:
      cancel();
      break;
    case Kind::kPause:
      pause();
      break;
    case Kind::kResume:
      resume();
      break;
    case Kind::kRedrive:
      redrive();
      break;
    case Kind::kUpdate:
      update();
      break;
    case Kind::kPurge:
      purge();
      break;
    case Kind::kCheckpoint:
      ask_checkpoint();
      break;
    case Kind::kTenant:
      set_tenant();
      break;
    case Kind::kWorker:
      worker_says();
      break;
    case Kind::kFile:
      dice_.chance(50) ? put_file() : remove_file();
      break;
    case Kind::kTime:
      move_clock();
      break;
    case Kind::kSweep:
      clock_.advance_ms(dice_.pick(3000));
      sweep();
      break;
    case Kind::kZombie:
      make_zombie();
      break;
    case Kind::kReconnect:
      reconnect();
      break;
    case Kind::kRestart:
      restart();
      break;
    case Kind::kArchive:
      archive();
      break;
    case Kind::kAdapter:
      ask_for_adapter();
      break;
    case Kind::kDamage:
      damage();
      break;
  }
  return wrong_;
}

std::vector<std::string> World::end() {
  wrong_.clear();
  const auto fixes = schedulers_[0]->shard.reconcile();
  if (!fixes.ok()) {
    say("reconcile: " + fixes.status().to_string());
  } else if (*fixes != 0) {
    say("reconcile found " + std::to_string(*fixes) + " things to repair");
  }
  return wrong_;
}

// Reads the store and judges it and the step.
void World::observe(const Expected& expected) {
  support::StoreSnapshot after = support::read_store(call_, history_.last());
  add_all(wrong_, differences(expected, current_, after, clock_.now_ms()));
  add_all(wrong_, support::broken_sets(after, clock_.now_ms()));
  add_all(wrong_, support::missing_adapters(after, forgotten_));
  add_all(wrong_, support::broken_adapters(after));
  add_all(wrong_, history_.add(after.events));
  add_all(wrong_, history_.states(after));
  add_all(wrong_, history_.counters(after));
  for (const auto& [key, made] : expected.requests) requests_[key] = made;
  add_all(wrong_, wrong_requests(requests_, after));
  current_ = std::move(after);
}

void World::act(const std::string& script, Expected expected,
                const std::function<std::string()>& call, Repeat repeat) {
  const std::string got = call();
  if (got != expected.reply) {
    say(script + " answered '" + got + "', should answer '" + expected.reply + "'");
  }
  ++tally_[script + " " + expected.word];
  observe(expected);
  if (repeat == Repeat::kNever || !wrong_.empty() || !dice_.chance(50)) return;
  const std::string again = call();
  if (!same_answer(got, again)) {
    say(script + " answered '" + got + "', and to its repeat '" + again + "'");
  }
  if (support::digest_of_store(call_) != current_.digest) {
    say("the repeat of " + script + ", answered '" + again + "', changed the store");
  }
}

void World::move_clock() {
  if (dice_.chance(8)) {
    clock_.set_now_ms(clock_.now_ms() - dice_.pick(100000));
  } else if (dice_.chance(8)) {
    clock_.advance_ms(86400000);  // a day, for what is used up a day, and for the janitor
  } else {
    clock_.advance_ms(dice_.pick(dice_.chance(10) ? 40000 : 8000));
  }
}

void World::sweep() {
  Scheduler& who = scheduler();
  const auto call = [&] { return answer_of(who.shard.sweep()); };
  act("sweep", reference().sweep(), call, Repeat::kNever);
  if (!wrong_.empty() || !dice_.chance(30)) return;
  // Its counts differ when it is sent again, but nothing is left to do.
  (void)call();
  if (support::digest_of_store(call_) != current_.digest) {
    say("a second sweep changed the store");
  }
}

// A worker sleeps until somebody else may have its job, and then says what it has to say.
void World::make_zombie() {
  if (attempts_.empty()) return;
  Attempt sleeper = dice_.of(attempts_);
  for (int i = 0; i < 8 && wrong_.empty(); ++i) {
    const auto job = current_.jobs.find(sleeper.job);
    const bool owned = job != current_.jobs.end() &&
                       support::text_of(job->second, "epoch") == std::to_string(sleeper.epoch) &&
                       support::text_of(job->second, "worker") == sleeper.worker;
    if (!owned) break;
    clock_.advance_ms(11000);
    sweep();
  }
  const std::string other = sleeper.worker == "w0" ? "w1" : "w0";
  Scheduler& at = scheduler();
  const auto alive = [&] { return answer_of(at.workers.alive(other, "")); };
  if (wrong_.empty()) act("worker", reference().worker("alive", other), alive, Repeat::kNever);
  if (wrong_.empty()) claim(other);
  if (wrong_.empty()) beat(sleeper);
  if (wrong_.empty()) finish(sleeper, dice_.chance(70) ? "success" : "release");
}

// Another scheduler process: it says hello, to a Redis that has not changed.
void World::reconnect() {
  schedulers_[static_cast<size_t>(dice_.pick(2))] = new_scheduler();
  if (support::digest_of_store(call_) != current_.digest) say("hello changed the store");
}

// What was answered before a kill -9 is there after it; then everyone gets a settle window.
void World::restart() {
  server_.restart();
  server_.call({"CONFIG", "SET", "appendfsync", "no"});
  if (support::digest_of_store(call_) != current_.digest)
    say("a restart of Redis changed the store");
  Expected expected;
  const auto until = static_cast<double>(clock_.now_ms() + times_.settle_ms);
  expected.cfg["settle_until"] =
      std::max(until, support::number_of(current_.hash("cfg"), "settle_until"));
  for (const auto& made : schedulers_) (void)made->shard.command({"PING"});
  ++tally_["hello NEW"];
  observe(expected);
}

std::string World::job_in(const std::vector<std::string>& states) {
  std::vector<std::string> fitting, all;
  for (const auto& [id, job] : current_.jobs) {
    all.push_back(id);
    const std::string& state = support::text_of(job, "state");
    if (std::find(states.begin(), states.end(), state) != states.end()) fitting.push_back(id);
  }
  if (all.empty()) return "ftjob-none";
  return fitting.empty() || dice_.chance(10) ? dice_.of(all) : dice_.of(fitting);
}

std::string World::owner_of(const std::string& job) {
  const auto found = current_.jobs.find(job);
  if (found == current_.jobs.end() || dice_.chance(10)) return tenant();
  return support::text_of(found->second, "tenant");
}

// A new request_id, one that this tenant has used for the same (now and then with another body), or
// none.
store::RequestKey World::request(const std::string& op, const std::string& who, int percent) {
  if (!dice_.chance(percent)) return {};
  std::vector<store::RequestKey> used;
  for (const auto& [key, made] : requests_) {
    const bool same = key.starts_with(who + ":" + op + "-") && made.digest.starts_with(op);
    if (same) used.push_back({key.substr(who.size() + 1), made.digest});
  }
  if (!used.empty() && dice_.chance(40)) {
    store::RequestKey again = dice_.of(used);
    if (dice_.chance(40)) again.digest += "x";
    return again;
  }
  const std::string name = new_name(op + "-");
  return {name, name};
}

std::optional<store::RequestKey> World::said_before(const std::string& op, std::string& who) {
  std::vector<std::pair<std::string, store::RequestKey>> used;
  for (const auto& [key, made] : requests_) {
    const size_t colon = key.find(':');
    const std::string id = key.substr(colon + 1);
    if (id.starts_with(op + "-") && made.digest.starts_with(op))
      used.emplace_back(key.substr(0, colon), store::RequestKey{id, made.digest});
  }
  if (used.empty()) return std::nullopt;
  std::pair<std::string, store::RequestKey> again = dice_.of(used);
  if (dice_.chance(45)) again.second.digest += "x";
  who = again.first;
  return again.second;
}

store::RequestKey World::request_again(const std::string& op, std::string& who, int percent,
                                       int again) {
  if (dice_.chance(again)) {
    if (auto key = said_before(op, who)) return *std::move(key);
  }
  return request(op, who, percent);
}

size_t World::live() const {
  size_t n = 0;
  for (const auto& [id, job] : current_.jobs) {
    n += support::is_terminal(support::text_of(job, "state")) ? 0 : 1;
  }
  return n;
}

}  // namespace dex::model
