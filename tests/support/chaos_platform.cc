#include "tests/support/chaos_platform.h"

#include <poll.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "services/base/clock.h"
#include "tests/support/artefacts.h"
#include "tests/support/content_of.h"
#include "tests/support/eventually.h"
#include "tests/support/invariants.h"
#include "tests/support/paths.h"
#include "tests/support/store_snapshot.h"
#include "tests/support/tiny_model.h"
#include "tests/support/toy_chain.h"

namespace dex::support {

namespace fs = std::filesystem;

namespace {

const std::string kShard = "dex:{s0}:";
// Long enough for a gateway that has to find a scheduler again; short for a test that waits.
constexpr std::chrono::milliseconds kCall{20'000};

fs::path binary(const std::string& name) {
  return build_dir() / "bin" / name;
}

template <typename T>
T value_or_throw(base::Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().to_string());
  return std::move(result).value();
}

std::string ms(int64_t value) {
  return std::to_string(value);
}

RedisCall calls_of(RedisServer& redis) {
  return [&redis](const std::vector<std::string>& args) { return redis.call(args); };
}

}  // namespace

fs::path toy_trainer() {
  return build_dir() / "tests/dex-toy-trainer";
}
fs::path fake_engine() {
  return build_dir() / "tests/dex-fake-engine";
}
fs::path real_trainer() {
  return binary("dex-trainer");
}
fs::path real_engine() {
  return binary("dex-engine");
}

void pass_time(int64_t ms) {
  ::poll(nullptr, 0, static_cast<int>(ms));
}

ChaosPlatform::ChaosPlatform(const Options& options)
    : options_(options),
      data_dir_(options.data_dir.empty() ? directory_ / "data" : options.data_dir),
      models_file_(write_tiny_model(directory_ / "models")),
      redis_("", options.redis_launcher) {
  fs::create_directories(data_dir_);
  start_redis_side();
  for (int i = 0; i < options.schedulers; ++i) schedulers_.push_back(new_scheduler(i));
  gateway_ = new_gateway();
  for (int i = 0; i < options.agents; ++i) agents_.push_back(new_agent(i));
  for (const auto& scheduler : schedulers_) scheduler->start();
  gateway_->start();
  for (const auto& agent : agents_) agent->start();
  client::Client::Options calls;
  calls.server = grpc_;
  calls.timeout = kCall;
  client_ = std::make_unique<client::Client>(calls);
  if (!ready()) throw std::runtime_error("the platform did not come up:\n" + scheduler().log());
  training_ = upload("train", 20);
  validation_ = upload("validation", 10);
}

ChaosPlatform::~ChaosPlatform() {
  // Frozen ones would not hear of it; everything is killed anyway.
  for (const auto& agent : agents_) agent->kill();
  if (gateway_) gateway_->kill();
  for (const auto& scheduler : schedulers_) scheduler->kill();
}

// A store of the test's own, with the platform's times: its connections greet Redis as a
// scheduler's do, and must not open a longer settle window.
void ChaosPlatform::start_redis_side() {
  store::Store::Options own;
  own.redis.address = redis_.address();
  own.times = options_.times;
  store_ = std::make_unique<store::Store>(own);
  redis_.call({"HSET", kShard + "cfg", "events_max", "0"});  // the oracle reads all of them
  const auto status = store_->set_tenant("default", 1, 10'000, 1'000, 0);
  if (!status.ok()) throw std::runtime_error(status.to_string());
}

std::unique_ptr<Program> ChaosPlatform::new_scheduler(int i) {
  const std::string name = "scheduler-" + std::to_string(i);
  scheduler_grpc_.push_back(free_address());
  scheduler_worker_.push_back(free_address());
  Program::Options program;
  program.name = name;
  program.program = binary("dex-scheduler");
  program.log_file = directory_ / (name + ".log");
  program.metrics = free_address();
  program.grpc = scheduler_grpc_.back();
  const auto& times = options_.times;
  program.args = {"--redis",
                  "unix:" + redis_.socket(),
                  "--data-dir",
                  data_dir_.string(),
                  "--models",
                  models_file_.string(),
                  "--listen",
                  scheduler_grpc_.back(),
                  "--worker-listen",
                  scheduler_worker_.back(),
                  "--metrics-listen",
                  program.metrics,
                  "--lease-ms",
                  ms(times.lease_ms),
                  "--settle-ms",
                  ms(times.settle_ms),
                  "--gap-ms",
                  ms(times.gap_ms),
                  "--crash-backoff-ms",
                  ms(times.crash_backoff_ms),
                  "--retry-backoff-ms",
                  ms(times.retry_backoff_ms),
                  "--worker-timeout-ms",
                  ms(times.worker_timeout_ms),
                  "--sweep-ms",
                  ms(options_.sweep_ms),
                  "--beat-ms",
                  ms(options_.beat_ms)};
  return std::make_unique<Program>(std::move(program));
}

std::unique_ptr<Program> ChaosPlatform::new_gateway() {
  if (options_.proxies) gateway_link_ = std::make_unique<CutProxy>(scheduler_grpc_);
  grpc_ = free_address();
  Program::Options program;
  program.name = "gateway";
  program.program = binary("dex-gateway");
  program.log_file = directory_ / "gateway.log";
  program.metrics = free_address();
  program.grpc = grpc_;
  program.args = {
      "--scheduler",      options_.proxies ? gateway_link_->address() : scheduler_grpc_.front(),
      "--listen",         grpc_,
      "--http-listen",    free_address(),
      "--metrics-listen", program.metrics};
  return std::make_unique<Program>(std::move(program));
}

std::unique_ptr<Program> ChaosPlatform::new_agent(int i) {
  const std::string name = "agent-" + std::to_string(i);
  if (options_.proxies) {
    agent_links_.push_back(std::make_unique<CutProxy>(scheduler_worker_));
  }
  const size_t own = static_cast<size_t>(i) % scheduler_worker_.size();
  std::string scheduler =
      options_.proxies ? agent_links_.back()->address() : scheduler_worker_[own];
  Program::Options program;
  program.name = name;
  program.program = binary("dex-worker");
  program.log_file = directory_ / (name + ".log");
  program.metrics = free_address();
  program.grpc = free_address();
  if (is_far(i)) {
    // Schedulers listen on loopback only, so their end of the cable has a relay.
    far_link_ = std::make_unique<CutProxy>(scheduler_worker_, FarNetwork::kHere);
    scheduler = far_link_->address();
    program.there = [far = options_.far](const auto& act) { far->visit(act); };
  }
  program.args = {"--scheduler",
                  scheduler,
                  "--data-dir",
                  data_dir_.string(),
                  "--models",
                  models_file_.string(),
                  "--worker-id",
                  name,
                  "--trainer",
                  (options_.trainer.empty() ? toy_trainer() : options_.trainer).string(),
                  "--trainer-nice",
                  "0",
                  "--threads",
                  "1",
                  "--listen",
                  program.grpc,
                  "--metrics-listen",
                  program.metrics,
                  "--stop-grace-ms",
                  ms(options_.stop_grace_ms),
                  "--kill-grace-ms",
                  ms(options_.kill_grace_ms),
                  "--inference-grace-ms",
                  ms(options_.inference_grace_ms),
                  "--min-free-bytes",
                  "1048576"};
  if (options_.orphan_limit_ms >= 0) {
    program.args.insert(program.args.end(), {"--orphan-limit-ms", ms(options_.orphan_limit_ms)});
  }
  if (options_.engine.empty()) {
    program.args.emplace_back("--no-serve");
  } else {
    program.args.insert(program.args.end(), {"--engine", options_.engine.string()});
  }
  return std::make_unique<Program>(std::move(program));
}

std::string ChaosPlatform::upload(const std::string& side, int rows) {
  const fs::path source = deps_dir() / "data" / ("code." + side + ".jsonl");
  std::ifstream in(source);
  if (!in) throw std::runtime_error(source.string() + " is missing: run deploy/setup/all");
  const fs::path part = directory_ / (side + ".jsonl");
  std::ofstream out(part);
  std::string line;
  for (int i = 0; i < rows && std::getline(in, line); ++i) out << line << "\n";
  out.close();
  const auto file = value_or_throw(client_->upload_file(part, {}));
  if (file.state() != v1::FILE_STATE_READY) throw std::runtime_error(file.DebugString());
  return file.id();
}

v1::CreateFineTuningJobRequest ChaosPlatform::request(const std::string& manner, uint32_t steps,
                                                      uint32_t checkpoint_every) const {
  v1::CreateFineTuningJobRequest request;
  request.set_request_id(client::new_request_id());
  auto& spec = *request.mutable_spec();
  spec.set_model(kTinyModel);
  spec.set_training_file(training_);
  spec.set_suffix(manner);
  spec.set_seed(1);
  spec.mutable_dex()->set_preset("code");
  spec.mutable_hyperparameters()->set_max_steps(steps);
  spec.mutable_hyperparameters()->set_batch_size(2);
  spec.mutable_hyperparameters()->set_max_seq_length(128);
  spec.mutable_checkpoints()->set_every_steps(checkpoint_every);
  return request;
}

std::string ChaosPlatform::submit(const std::string& manner, uint32_t steps,
                                  uint32_t checkpoint_every) {
  return value_or_throw(client_->create_job(request(manner, steps, checkpoint_every))).id();
}

void ChaosPlatform::forgive_crashes(const std::string& id) {
  redis_.call({"HSET", kShard + "job:" + id, "max_crash", "1000"});
}

void ChaosPlatform::open_gate(const std::string& id, int attempt) const {
  const std::string name = attempt == 0 ? "go" : "go-" + std::to_string(attempt);
  const fs::path folder = data_dir_ / "jobs/default" / id;
  fs::create_directories(folder);  // it may not have started yet
  std::ofstream(folder / name) << "go";
}

std::map<std::string, std::string> ChaosPlatform::record(const std::string& id) {
  try {
    return redis_.call({"HGETALL", kShard + "job:" + id}).fields();
  } catch (const std::runtime_error&) {
    return {};
  }
}

int64_t ChaosPlatform::number(const std::string& id, const std::string& field) {
  const std::string text = record(id)[field];
  return text.empty() ? 0 : std::stoll(text);
}

uint32_t ChaosPlatform::step(const std::string& id) {
  v1::Progress progress;
  if (!progress.ParseFromString(record(id)["progress"])) return 0;
  return progress.step();
}

bool ChaosPlatform::becomes(const std::string& id, const std::string& state, int64_t limit_ms) {
  return eventually([&] { return this->state(id) == state; }, limit_ms);
}

bool ChaosPlatform::reaches(const std::string& id, uint32_t step, int64_t limit_ms) {
  return eventually([&] { return this->step(id) >= step; }, limit_ms);
}

std::vector<std::map<std::string, std::string>> ChaosPlatform::transitions(const std::string& id) {
  std::vector<std::map<std::string, std::string>> found;
  for (const auto& entry : redis_.call({"XRANGE", kShard + "events", "-", "+"}).elements) {
    auto fields = entry.at(1).fields();
    if (fields["job"] == id) found.push_back(std::move(fields));
  }
  return found;
}

v1::FineTuningEvent ChaosPlatform::last_event(const std::string& id, const std::string& type) {
  v1::ListFineTuningEventsRequest request;
  request.set_id(id);
  request.set_page_size(1000);
  const auto page = value_or_throw(client_->list_events(request));
  v1::FineTuningEvent last;
  for (const auto& event : page.events()) {
    if (event.type() == type) last = event;
  }
  return last;
}

bool ChaosPlatform::settled() {
  return eventually([&] {
    try {
      const auto time = redis_.call({"TIME"});
      const int64_t now_ms = time.num(0) * 1000 + time.num(1) / 1000;
      return redis_.call({"HGET", kShard + "cfg", "settle_until"}).as_int() < now_ms;
    } catch (const std::runtime_error&) {
      return false;
    }
  });
}

bool ChaosPlatform::ready(int64_t limit_ms) {
  for (const auto& scheduler : schedulers_) {
    if (!eventually([&] { return scheduler->ready(); }, limit_ms)) return false;
  }
  if (!eventually([&] { return gateway_->ready(); }, limit_ms)) return false;
  for (const auto& agent : agents_) {
    if (!eventually([&] { return agent->ready(); }, limit_ms)) return false;
  }
  return true;
}

bool ChaosPlatform::stop_agents_and_gateway() {
  // The agents give their jobs back while the schedulers still listen, all at the same time.
  const int64_t patience_ms = options_.stop_grace_ms + 30'000;
  bool good = true;
  for (const auto& agent : agents_) agent->signal(SIGTERM);
  for (const auto& agent : agents_)
    good = (!agent->running() || agent->wait(patience_ms) == 0) && good;
  return (!gateway_->running() || gateway_->stop(patience_ms) == 0) && good;
}

bool ChaosPlatform::stop_schedulers() {
  bool good = true;
  for (const auto& scheduler : schedulers_)
    good = (!scheduler->running() || scheduler->stop(30'000) == 0) && good;
  return good;
}

bool ChaosPlatform::stop() {
  const bool good = stop_agents_and_gateway();
  return stop_schedulers() && good;
}

CounterValues ChaosPlatform::counted() {
  return read_counters([this](const std::string& metric, const std::string& label) {
    double sum = 0;
    for (const auto& scheduler : schedulers_) {
      if (scheduler->running()) sum += scheduler->metric(metric, label);
    }
    return sum;
  });
}

bool ChaosPlatform::lost_counts() {
  for (const auto& scheduler : schedulers_) {
    if (!scheduler->running() || scheduler->starts() != 1) return true;
    if (scheduler->metric("dex_redis_errors_total", "class=\"io\"") > 0) return true;
  }
  return false;
}

std::vector<std::string> ChaosPlatform::miscounted(EventCounts& events,
                                                   const CounterValues& before) {
  const bool some_lost = before.empty() && lost_counts();
  std::vector<std::string> wrong;
  // The store has its event a moment before the scheduler hears of it and counts.
  (void)eventually(
      [&] {
        CounterValues values = counted();
        for (const auto& [series, value] : before) values[series] -= value;
        events.add(read_store(calls_of(redis_), events.last()).events);
        wrong = events.differences(values, some_lost);
        return wrong.empty();
      },
      5'000);
  return wrong;
}

std::vector<std::string> ChaosPlatform::miscounted_during(const std::function<void()>& work) {
  EventCounts events;
  CounterValues before;
  const bool quiet = eventually([&] {
    const StoreSnapshot store = read_store(calls_of(redis_));
    for (const auto& [id, job] : store.jobs) {
      if (!is_terminal(text_of(job, "state"))) return false;
    }
    events = EventCounts();
    events.add(store.events);
    before = counted();
    return before == counted();
  });
  if (!quiet) return {"jobs go on, so nothing can be compared"};
  events.start_again();
  work();
  auto wrong = miscounted(events, before);
  if (events.events() == 0) wrong.emplace_back("nothing has happened that could be counted");
  return wrong;
}

std::vector<std::string> ChaosPlatform::wrong() {
  std::vector<std::string> wrong;
  const auto add = [&wrong](const std::vector<std::string>& faults) {
    wrong.insert(wrong.end(), faults.begin(), faults.end());
  };
  bool good = stop_agents_and_gateway();
  EventCounts events;
  add(miscounted(events, {}));
  good = stop_schedulers() && good;
  if (!good) wrong.emplace_back("a program did not end by itself");
  const base::SystemClock clock;
  add(broken_invariants(redis_, clock.now_ms()));
  const StoreSnapshot store =
      read_store([this](const std::vector<std::string>& args) { return redis_.call(args); });
  add(missing_adapters(store));
  EventHistory history;
  add(history.add(store.events));
  add(history.counters(store));
  const auto fixes = store_->reconcile();
  if (!fixes.ok()) wrong.push_back(fixes.status().to_string());
  if (fixes.ok() && *fixes != 0) wrong.push_back(std::to_string(*fixes) + " members were wrong");
  add(torn_artefacts(data_dir_));
  if (!options_.trainer.empty()) return wrong;

  for (const auto& [id, job] : store.jobs) {
    if (text_of(job, "state") != "SUCCEEDED") continue;
    const auto config = nlohmann::json::parse(
        content_of(data_dir_ / text_of(job, "result_uri") / "adapter_config.json"), nullptr, false);
    const bool good = config.is_object() && config.value("job", "") == id &&
                      config.value("state", "") == toy_state(id, config.value("step", int64_t{-1}));
    if (!good) wrong.push_back("the result of " + id + " is not its own whole chain");
  }
  return wrong;
}

}  // namespace dex::support
