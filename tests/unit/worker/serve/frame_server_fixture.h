#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dex/internal/v1/frames.pb.h"
#include "services/base/clock.h"
#include "services/base/frame_channel.h"
#include "services/base/random.h"
#include "services/base/signals.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/serve/tiny_folder.h"
#include "worker/serve/frame_server.h"

namespace dex::serve {

namespace pb = dex::v1;
using dex::internal::v1::EngineCommand;
using dex::internal::v1::EngineReport;

// dex-engine's frames in a thread of the test, with the tiny model and adapters of it; the test
// speaks as the agent does.
class FrameServerTest : public ::testing::Test {
 protected:
  FrameServerTest() {
    testing::write_tiny_model(dir / "model");
    testing::write_tiny_adapter(dir / "adapter", dir / "model");
    testing::write_foreign_adapter(dir / "foreign");
    auto pair = base::FrameChannel::pair();
    EXPECT_TRUE(pair.ok());
    agent = std::move(pair->first);
    engine = std::make_unique<base::FrameChannel>(std::move(pair->second));
    server = std::jthread([this] { exit = serve_frames(*engine, signals, clock, random); });
  }
  ~FrameServerTest() override { agent->shutdown(); }

  // `adapter_bytes`: of its table; 0: as it likes.
  void start(int64_t adapter_bytes = 0) {
    EngineCommand command;
    command.mutable_start()->set_adapter_bytes(adapter_bytes);
    command.mutable_start()->set_model_dir((dir / "model").string());
    command.mutable_start()->set_base("tiny");
    command.mutable_start()->set_threads(1);
    command.mutable_start()->set_dtype("f32");
    command.mutable_start()->set_kv_cache_bytes(4 << 20);  // 10,000 tokens; it fills bit by bit
    send(command);
    const auto report = next();
    ASSERT_TRUE(report.has_ready());
    EXPECT_EQ(report.ready().dtype(), "f32");
    EXPECT_EQ(report.ready().max_model_len(), 256);
  }
  void send(const EngineCommand& command) {
    ASSERT_TRUE(agent->write(command.SerializeAsString(), 5000).ok());
  }
  // The next report but figures of load.
  EngineReport next() {
    for (;;) {
      const auto frame = agent->read(20'000);
      EXPECT_TRUE(frame.ok()) << frame.status().to_string();
      EngineReport report;
      if (!frame.ok() || !report.ParseFromString(*frame)) return report;
      if (!report.has_load()) return report;
      adapter_bytes = report.load().adapter_bytes();
    }
  }
  void load(const std::string& id, const std::string& folder, bool present = true) {
    EngineCommand command;
    command.mutable_set_adapter()->set_id(id);
    command.mutable_set_adapter()->set_path((dir / folder).string());
    command.mutable_set_adapter()->set_content_sha256(std::string(64, '4'));
    command.mutable_set_adapter()->set_present(present);
    send(command);
  }
  static EngineCommand generate(uint64_t request, const std::string& adapter = {}) {
    EngineCommand command;
    auto& in = *command.mutable_generate();
    in.set_request(request);
    in.set_id("gen-" + std::to_string(request));
    in.set_adapter(adapter);
    for (const int id : {5, 9, 14, 3}) in.mutable_body()->mutable_tokens()->add_ids(id);
    in.mutable_body()->set_max_tokens(12);
    in.mutable_body()->set_seed(request % 7);
    in.mutable_body()->set_ignore_eos(true);
    in.mutable_body()->set_return_token_ids(true);
    return command;
  }
  struct Reply {
    std::optional<pb::GenerateStreamResponse::Start> start;
    std::vector<int32_t> ids;
    std::optional<pb::GenerateStreamResponse::Finish> finish;
    std::optional<EngineReport::Error> error;
    [[nodiscard]] bool ended() const { return finish || error; }
  };
  // Reads until `count` replies have ended.
  std::map<uint64_t, Reply> collect(size_t count) {
    std::map<uint64_t, Reply> replies;
    for (size_t ended = 0; ended < count;) {
      const EngineReport report = next();
      if (report.has_tokens()) {
        Reply& reply = replies[report.tokens().request()];
        EXPECT_FALSE(reply.ended());
        const auto& event = report.tokens().event();
        if (event.has_start()) reply.start = event.start();
        if (event.has_delta()) {
          EXPECT_TRUE(reply.start.has_value()) << "a token before the start";
          reply.ids.insert(reply.ids.end(), event.delta().token_ids().begin(),
                           event.delta().token_ids().end());
        }
      } else if (report.has_done()) {
        Reply& reply = replies[report.done().request()];
        if (report.done().has_error()) reply.error = report.done().error();
        if (report.done().has_finish()) reply.finish = report.done().finish();
        ++ended;
      } else {
        ADD_FAILURE() << "unexpected report " << report.ShortDebugString();
        return replies;
      }
    }
    return replies;
  }

  support::TemporaryDirectory dir;
  base::StopSignals signals;
  base::SystemClock clock;
  base::SeededRandom random{1};
  std::unique_ptr<base::FrameChannel> agent, engine;
  int exit = -1;
  int64_t adapter_bytes = -1;  // as the last figures of load had it
  std::jthread server;
};

}  // namespace dex::serve
