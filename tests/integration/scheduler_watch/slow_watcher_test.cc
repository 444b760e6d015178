// Watchers that read slowly or not at all, through a gateway: who falls too far behind is told to
// come back, and nobody waits for them.
#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "services/base/clock.h"
#include "services/gateway/gateway.h"
#include "services/rpc/room.h"
#include "tests/integration/scheduler/scheduler_fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/figures.h"

namespace dex::server {
namespace {

// A watch in the hand of the test: it takes a message when it is told to.
class HeldWatch {
 public:
  HeldWatch(JobStub& stub, const std::string& id, int64_t after = 0) {
    rpc::set_timeout(context_, std::chrono::seconds(120));
    v1::WatchFineTuningJobRequest request;
    request.set_id(id);
    request.set_after_sequence(after);
    reader_ = stub.WatchFineTuningJob(&context_, request);
  }
  ~HeldWatch() {
    context_.TryCancel();
    if (!finished_) read_all();
  }
  HeldWatch(const HeldWatch&) = delete;
  HeldWatch& operator=(const HeldWatch&) = delete;

  // The next message; false at the end.
  bool read() {
    v1::WatchFineTuningJobResponse message;
    if (!reader_->Read(&message)) return false;
    if (!message.has_event()) return true;
    seen_.push_back(message.event().sequence());
    last_ = message.event().sequence();
    return true;
  }
  bool read_to(int64_t sequence) {
    while (last_ < sequence) {
      if (!read()) return false;
    }
    return true;
  }
  // To the end; its reason, "" when there is nothing more to tell.
  std::string read_all() {
    while (read()) {
    }
    finished_ = true;
    return rpc::from_grpc(reader_->Finish()).reason();
  }

  [[nodiscard]] int64_t last() const { return last_; }  // also while another thread reads
  [[nodiscard]] const std::vector<int64_t>& seen() const { return seen_; }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchFineTuningJobResponse>> reader_;
  std::vector<int64_t> seen_;
  std::atomic<int64_t> last_ = 0;
  bool finished_ = false;
};

std::vector<int64_t> numbers(int64_t first, int64_t last) {
  std::vector<int64_t> all(static_cast<size_t>(last - first + 1));
  std::iota(all.begin(), all.end(), first);
  return all;
}

class SlowWatcherTest : public SchedulerTest {
 protected:
  SlowWatcherTest() {
    gateway::Gateway::Options options;
    options.scheduler = scheduler_->grpc_address();
    options.listen = options.http_listen = options.metrics_listen = "127.0.0.1:0";
    auto started = gateway::Gateway::start(options);
    if (!started.ok()) throw std::runtime_error(started.status().to_string());
    gateway_ = std::move(started).value();
  }

  // With a connection of its own.
  std::unique_ptr<JobStub> client() {
    return v1::FineTuningService::NewStub(rpc::channel(gateway_->grpc_address()));
  }
  iv1::ClaimedJob running() {
    enlist();
    create_good();
    return claim().job();
  }
  // A beat with `count` events of `bytes` each.
  void send(const iv1::ClaimedJob& job, int64_t beat_number, int count, size_t bytes) {
    std::vector<v1::FineTuningEvent> events(static_cast<size_t>(count));
    for (auto& event : events) {
      event.set_type("warning");
      event.set_message(std::string(bytes, 'x'));
    }
    beat(job, beat_number, "w1", std::move(events));
  }

  static constexpr int64_t kFirstEvents = 2;  // job_queued, job_start
  const base::SystemClock clock_{};
  std::unique_ptr<gateway::Gateway> gateway_;
};

TEST_F(SlowWatcherTest, IsToldToComeBackAndFastOnesDoNotWaitForIt) {
  // Far more than a queue of 256 and the windows of two connections take.
  constexpr int kBeats = 400, kEvents = 3, kFast = 4, kBeatsALook = 5;
  constexpr size_t kBytes = 16 << 10;
  const auto job = running();
  const auto crowded = client(), quiet = client();
  HeldWatch among(*crowded, job.job_id()), alone(*quiet, job.job_id());
  for (HeldWatch* slow : {&among, &alone}) ASSERT_TRUE(slow->read_to(kFirstEvents));

  std::vector<std::unique_ptr<HeldWatch>> fast;
  for (int i = 0; i < kFast; ++i)
    fast.push_back(std::make_unique<HeldWatch>(*crowded, job.job_id()));
  std::vector<std::string> ends(kFast, "none");
  int64_t sequence = kFirstEvents;
  double longest_s = 0;
  {
    std::vector<std::jthread> readers;
    for (size_t i = 0; i < kFast; ++i)
      readers.emplace_back([&, i] { ends[i] = fast[i]->read_all(); });
    for (int n = 1; n <= kBeats; ++n) {
      const int64_t sent_ms = clock_.steady_ms();
      send(job, n, kEvents, kBytes);
      sequence += kEvents;
      if (n % kBeatsALook != 0) continue;
      const bool told = support::eventually([&] {
        return std::all_of(fast.begin(), fast.end(),
                           [&](const auto& watch) { return watch->last() >= sequence; });
      });
      EXPECT_TRUE(told) << "event " << sequence;
      if (!told) break;
      longest_s = std::max(longest_s, clock_.seconds_since(sent_ms));
    }
    EXPECT_EQ(finish_well(job), "SUCCEEDED");
    ++sequence;  // job_complete
  }
  support::figure("watch", "beside_slow_ones_max_s", longest_s);
  for (size_t i = 0; i < kFast; ++i) {
    EXPECT_EQ(ends[i], "");
    EXPECT_EQ(fast[i]->seen(), numbers(1, sequence));
  }

  for (HeldWatch* slow : {&among, &alone}) {
    EXPECT_EQ(slow->read_all(), "WATCH_LAGGED");
    ASSERT_LT(slow->last(), sequence);
    EXPECT_EQ(slow->seen(), numbers(1, slow->last()));
    HeldWatch again(*quiet, job.job_id(), slow->last());
    EXPECT_EQ(again.read_all(), "");
    EXPECT_EQ(again.seen(), numbers(slow->last() + 1, sequence)) << "nothing is lost by it";
  }
}

TEST_F(SlowWatcherTest, ManyThatTakeNothingOfALongHistoryHoldNoThread) {
  constexpr int kBeats = 50, kEvents = 12;
  constexpr size_t kBytes = 4 << 10, kSlow = 40;
  ASSERT_GT(kSlow, rpc::Room::Options{}.streams.threads);
  const auto job = running();
  for (int n = 1; n <= kBeats; ++n) send(job, n, kEvents, kBytes);
  ASSERT_EQ(finish_well(job), "SUCCEEDED");
  const int64_t last = kFirstEvents + kBeats * kEvents + 1;

  const auto crowded = client(), other = client();
  std::vector<std::unique_ptr<HeldWatch>> slow;
  for (size_t i = 0; i < kSlow; ++i) {
    slow.push_back(std::make_unique<HeldWatch>(*crowded, job.job_id()));
    ASSERT_TRUE(slow.back()->read()) << "the snapshot, and then nothing";
  }
  const int64_t asked_ms = clock_.steady_ms();
  HeldWatch fast(*other, job.job_id());
  EXPECT_EQ(fast.read_all(), "");
  // A thread that waits for a reader does so for half a minute.
  EXPECT_LT(clock_.seconds_since(asked_ms), 15);
  EXPECT_EQ(fast.seen(), numbers(1, last));

  for (const size_t i : {size_t{0}, kSlow - 1}) {
    EXPECT_EQ(slow[i]->read_all(), "") << "it was slow, which is no fault while nothing is new";
    EXPECT_EQ(slow[i]->seen(), numbers(1, last));
  }
}

}  // namespace
}  // namespace dex::server
