// Adapters that come and go while others are answered (api.md §12: C35, C36, C37).
#include <gmock/gmock.h>
#include <unistd.h>

#include "tests/support/processes.h"
#include "tests/support/sanitizer.h"
#include "tests/unit/worker/serve/frame_server_fixture.h"

namespace dex::serve {
namespace {

class AdapterTrafficTest : public FrameServerTest {
 protected:
  // A change of an adapter, and what the engine says of it.
  EngineReport::AdapterState changed(const std::string& id, const std::string& folder,
                                     bool present) {
    load(id, folder, present);
    const EngineReport report = next();
    EXPECT_TRUE(report.has_adapter()) << report.ShortDebugString();
    return report.adapter();
  }

  void await_gauge(int64_t bytes) {
    while (adapter_bytes != bytes) {
      const auto frame = agent->read(20'000);
      ASSERT_TRUE(frame.ok()) << "the gauge says " << adapter_bytes << ", not " << bytes;
      EngineReport report;
      ASSERT_TRUE(report.ParseFromString(*frame) && report.has_load());
      adapter_bytes = report.load().adapter_bytes();
    }
  }

  // Which of the streams a request is: those of one have the same subject and seed.
  static uint64_t stream_of(uint64_t request) { return request % kStreams; }

  static EngineCommand long_generation(uint64_t request) {
    EngineCommand command = generate(request, stream_of(request) % 2 == 0 ? "" : "ft:tiny");
    command.mutable_generate()->mutable_body()->set_max_tokens(kTokens);
    command.mutable_generate()->mutable_body()->set_seed(stream_of(request));
    return command;
  }

  static constexpr int64_t kLayers = 2;  // of the tiny model
  static constexpr uint32_t kTokens = 200;
  static constexpr uint64_t kStreams = 8;
};

TEST_F(AdapterTrafficTest, AThousandLoadsAndUnloadsGiveTheirMemoryBack) {
  start();
  constexpr int kWarmUp = 100, kRounds = 1000;  // of each load and unload
  double before_mib = 0;
  int64_t bytes = 0;
  for (int round = 0; round < kWarmUp + kRounds; ++round) {
    if (round == kWarmUp) before_mib = support::resident_mib(::getpid());
    const auto loaded = changed("ft:tiny", "adapter", true);
    ASSERT_EQ(loaded.state(), pb::Replica::STATE_LOADED) << loaded.error();
    bytes = loaded.bytes();
    ASSERT_EQ(changed("ft:tiny", "adapter", false).state(), pb::Replica::STATE_UNSPECIFIED);
  }
  // Were even every second adapter still there, it would show.
  const double limit_mib = kRounds * static_cast<double>(bytes) / 2 / (1 << 20);
  ASSERT_GT(limit_mib, 4) << "too small an adapter to see a leak beside what the allocator keeps";
  if (!support::kSanitized) {
    EXPECT_LT(support::resident_mib(::getpid()) - before_mib, limit_mib);
  }

  // And the gauge, which tells once a second what is new: of one adapter, then of none.
  ASSERT_EQ(changed("ft:tiny", "adapter", true).state(), pb::Replica::STATE_LOADED);
  await_gauge(bytes);
  ASSERT_EQ(changed("ft:tiny", "adapter", false).state(), pb::Replica::STATE_UNSPECIFIED);
  await_gauge(0);
}

// Of what acts and of what does not, measured by the engine that serves them.
TEST_F(AdapterTrafficTest, ALoadProvesThatTheAdapterActs) {
  start();
  testing::write_idle_adapter(dir / "idle", dir / "model");
  const auto acts = changed("ft:tiny", "adapter", true);
  ASSERT_EQ(acts.state(), pb::Replica::STATE_LOADED) << acts.error();
  EXPECT_EQ(acts.proof().verdict(), pb::AdapterProof::VERDICT_PROVEN);
  EXPECT_GT(acts.proof().max_logprob_change(), 1e-3) << "it is far from its start";
  EXPECT_GT(acts.proof().probe_tokens(), 8);
  EXPECT_GT(acts.proof().tensors_matched(), 0);
  EXPECT_EQ(acts.proof().tensors_matched(), acts.proof().tensors_expected());

  const auto idle = changed("ft:idle", "idle", true);
  ASSERT_EQ(idle.state(), pb::Replica::STATE_LOADED) << idle.error();
  EXPECT_EQ(idle.proof().verdict(), pb::AdapterProof::VERDICT_NO_EFFECT);
  EXPECT_LE(idle.proof().max_logprob_change(), 1e-6);
  EXPECT_EQ(idle.proof().tensors_matched(), 2 * 4 * kLayers) << "two factors of q, k, v, o a layer";

  // A refused one proves nothing, and the proofs of the others are nobody's requests.
  EXPECT_FALSE(changed("ft:foreign", "foreign", true).has_proof());
  send(generate(1, "ft:idle"));
  send(generate(8, ""));
  const auto replies = collect(2);
  EXPECT_EQ(replies.at(1).ids, replies.at(8).ids);
}

// The agent makes room for the one, and no room helps the other.
TEST_F(AdapterTrafficTest, WantOfRoomIsToldApartFromAFault) {
  start(/*adapter_bytes=*/40'000);  // for one
  ASSERT_EQ(changed("ft:tiny", "adapter", true).state(), pb::Replica::STATE_LOADED);
  const auto full = changed("ft:other", "adapter", true);
  EXPECT_EQ(full.state(), pb::Replica::STATE_FAILED);
  EXPECT_TRUE(full.no_room());
  EXPECT_THAT(full.error(), ::testing::HasSubstr("no room for ft:other"));
  const auto foreign = changed("ft:foreign", "foreign", true);
  EXPECT_EQ(foreign.state(), pb::Replica::STATE_FAILED);
  EXPECT_FALSE(foreign.no_room());
}

TEST_F(AdapterTrafficTest, OneThatNoRoomWouldHoldIsAFault) {
  start(/*adapter_bytes=*/1);
  const auto refused = changed("ft:tiny", "adapter", true);
  EXPECT_EQ(refused.state(), pb::Replica::STATE_FAILED);
  EXPECT_FALSE(refused.no_room());
  EXPECT_THAT(refused.error(), ::testing::HasSubstr("more than the 1 that all adapters may have"));
}

// Loads go on as long as anything streams: one that is good, one that is gone again, one that is
// hostile. No stream fails, and none has another token than alone.
TEST_F(AdapterTrafficTest, StreamsAreTheSameWhateverIsLoadedBesideThem) {
  start();
  ASSERT_EQ(changed("ft:tiny", "adapter", true).state(), pb::Replica::STATE_LOADED);
  std::map<uint64_t, std::vector<int32_t>> alone;
  for (uint64_t i = 1; i <= kStreams; ++i) {
    send(long_generation(i));
    alone[stream_of(i)] = collect(1).at(i).ids;
    ASSERT_EQ(alone[stream_of(i)].size(), kTokens);
  }

  // A stream that has ended begins anew, as request i + kStreams, until enough has been loaded
  // beside them: nothing depends on which of the two is quicker.
  for (uint64_t i = 1; i <= kStreams; ++i) send(long_generation(i));
  std::map<uint64_t, std::vector<int32_t>> beside;
  uint64_t streaming = kStreams;
  int loading = 2, loaded = 0, unloaded = 0, refused = 0;
  const auto enough = [&] { return loaded >= 2 && unloaded >= 1 && refused >= 2; };
  load("ft:other", "adapter");
  load("ft:foreign", "foreign");
  while (streaming > 0 || loading > 0) {
    const EngineReport report = next();
    if (report.has_tokens()) {
      const auto& ids = report.tokens().event().delta().token_ids();
      auto& all = beside[report.tokens().request()];
      all.insert(all.end(), ids.begin(), ids.end());
    } else if (report.has_done()) {
      const uint64_t request = report.done().request();
      EXPECT_TRUE(report.done().has_finish()) << report.ShortDebugString();
      EXPECT_EQ(beside[request], alone[stream_of(request)]) << request;
      --streaming;
      if (enough()) continue;
      send(long_generation(request + kStreams));
      ++streaming;
    } else if (report.has_adapter()) {
      --loading;
      const auto state = report.adapter().state();
      (state == pb::Replica::STATE_LOADED   ? loaded
       : state == pb::Replica::STATE_FAILED ? refused
                                            : unloaded)++;
      if (streaming == 0) continue;
      const bool foreign = report.adapter().id() == "ft:foreign";
      load(report.adapter().id(), foreign ? "foreign" : "adapter",
           foreign || state != pb::Replica::STATE_LOADED);
      ++loading;
    } else {
      FAIL() << "unexpected report " << report.ShortDebugString();
    }
  }
  EXPECT_TRUE(enough()) << loaded << " loads, " << unloaded << " unloads, " << refused
                        << " refusals";
}

}  // namespace
}  // namespace dex::serve
