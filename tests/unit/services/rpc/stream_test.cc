#include "services/rpc/stream.h"

#include <atomic>
#include <thread>

#include "tests/support/eventually.h"
#include "tests/unit/services/rpc/file_server.h"

namespace dex::rpc {
namespace {

using std::chrono::milliseconds;

v1::DownloadFileResponse chunk(const std::string& bytes) {
  v1::DownloadFileResponse made;
  made.set_chunk(bytes);
  return made;
}

// Number `next` to `end` − 1, `bytes` each, as far as there is room, and the rest when there is
// again; then the end.
void send_stored(const Files::Chunks& chunks, int next, int end, size_t bytes) {
  while (next < end) {
    const size_t room = chunks->room();
    if (room == 0) {
      return chunks->when_room(
          [chunks, next, end, bytes] { send_stored(chunks, next, end, bytes); });
    }
    for (size_t i = 0; i < room && next < end; ++i) {
      std::string text = std::to_string(next++);
      text.resize(bytes, ' ');
      if (!chunks->push(chunk(text))) return;
    }
  }
  chunks->finish({});
}

class StreamTest : public FileServer {
 protected:
  struct Download {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::DownloadFileResponse>> reader;
    std::optional<std::string> next() {
      v1::DownloadFileResponse message;
      if (!reader->Read(&message)) return std::nullopt;
      return message.chunk();
    }
    int next_number() { return std::stoi(next().value_or("-1")); }
    base::Status finish() { return from_grpc(reader->Finish()); }
  };
  std::unique_ptr<Download> download() {
    auto made = std::make_unique<Download>();
    limit(made->context);
    made->reader = stub_->DownloadFile(&made->context, v1::DownloadFileRequest());
    return made;
  }
};

TEST_F(StreamTest, MessagesArriveInOrderThenTheStatus) {
  start();
  files_->stream_options.queue = 4;
  files_->download = [](Files::Chunks chunks) {
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(chunks->write(chunk(std::to_string(i))));
    chunks->finish(base::not_found("RESOURCE_NOT_FOUND", "that was all"));
    EXPECT_FALSE(chunks->push(chunk("late")));
  };
  auto call = download();
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(call->next(), std::to_string(i));
  EXPECT_EQ(call->next(), std::nullopt);
  EXPECT_EQ(call->finish().reason(), "RESOURCE_NOT_FOUND");
}

TEST_F(StreamTest, AReaderThatFallsBehindIsCutOff) {
  start();
  Event lagged;
  files_->download = [&](Files::Chunks chunks) {
    // Nobody reads: gRPC's windows fill, then the queue of 256.
    const auto large = chunk(std::string(256 << 10, 'x'));
    int sent = 0;
    while (chunks->push(large)) ++sent;
    EXPECT_GE(sent, 256);
    lagged.set();
  };
  auto call = download();
  ASSERT_TRUE(lagged.wait());
  int read = 0;
  while (call->next()) ++read;
  EXPECT_LT(read, 256);  // what waited was dropped
  EXPECT_EQ(call->finish().reason(), "WATCH_LAGGED");
}

TEST_F(StreamTest, ADownloadWaitsForItsReaderOnlySoLong) {
  Room::Options options;
  options.stalled_reader = milliseconds(50);
  start(options);
  files_->stream_options.queue = 2;
  Event over;
  files_->download = [&](Files::Chunks chunks) {
    const auto large = chunk(std::string(1 << 20, 'x'));
    while (chunks->write(large)) {
    }
    over.set();
  };
  auto call = download();
  ASSERT_TRUE(over.wait());
  while (call->next()) {
  }
  EXPECT_EQ(call->finish().reason(), "DEADLINE");
}

TEST_F(StreamTest, ADownloadThatNobodyReadsKeepsNoWatchFromStarting) {
  Room::Options options;
  options.streams.threads = 1;
  options.transfers.threads = 1;
  start(options);
  Event begun, over;
  std::atomic<int> calls = 0;
  files_->download = [&](Files::Chunks chunks) {
    if (calls++ > 0) {
      EXPECT_TRUE(chunks->push(chunk("news")));
      return chunks->finish({});
    }
    begun.set();
    const auto large = chunk(std::string(1 << 20, 'x'));
    while (chunks->write(large)) {
    }
    over.set();
  };
  files_->stream_options.queue = 2;
  files_->stream_options.waits_for_client = true;
  auto slow = download();
  ASSERT_TRUE(begun.wait());
  files_->stream_options.waits_for_client = false;
  auto watch = download();
  EXPECT_EQ(watch->next(), "news");
  EXPECT_EQ(watch->next(), std::nullopt);
  EXPECT_TRUE(watch->finish().ok());
  slow->context.TryCancel();
  while (slow->next()) {
  }
  EXPECT_EQ(slow->finish().code(), base::Code::kCancelled);
  EXPECT_TRUE(over.wait());
}

TEST_F(StreamTest, AProducerThatWaitsForRoomHoldsNoThread) {
  Room::Options options;
  options.streams.threads = 1;
  start(options);
  files_->stream_options.queue = 8;
  constexpr int kMessages = 100;
  // More than gRPC's windows take for a client that does not read.
  files_->download = [](const Files::Chunks& chunks) {
    send_stored(chunks, 0, kMessages, 256 << 10);
  };
  auto slow = download();
  auto fast = download();
  for (int i = 0; i < kMessages; ++i) ASSERT_EQ(fast->next_number(), i);
  EXPECT_TRUE(fast->finish().ok());
  for (int i = 0; i < kMessages; ++i) ASSERT_EQ(slow->next_number(), i);
  EXPECT_TRUE(slow->finish().ok()) << "slow is no fault";
}

TEST_F(StreamTest, HalfOfTheQueueIsLeftForNews) {
  start();
  files_->stream_options.queue = 8;
  Event tried;
  files_->download = [&](Files::Chunks chunks) {
    EXPECT_EQ(chunks->room(), 4U);
    const auto large = chunk(std::string(1 << 20, 'x'));  // the first fills all windows
    while (chunks->room() > 0) EXPECT_TRUE(chunks->push(large));
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(chunks->push(chunk("news")));
    chunks->finish({});
    EXPECT_EQ(chunks->room(), 0U) << "nothing may be sent any more";
    tried.set();
  };
  auto call = download();
  ASSERT_TRUE(tried.wait());
  int news = 0;
  while (const auto message = call->next()) news += *message == "news" ? 1 : 0;
  EXPECT_EQ(news, 4);
  EXPECT_TRUE(call->finish().ok());
}

TEST_F(StreamTest, AProducerWaitsOnlySoLongForAReaderThatTakesNothing) {
  Room::Options options;
  options.stalled_reader = milliseconds(50);
  start(options);
  files_->stream_options.queue = 2000;
  Files::Chunks kept;
  Event sent;
  files_->download = [&](Files::Chunks chunks) {
    kept = chunks;
    send_stored(chunks, 0, 100'000, 1 << 10);
    sent.set();
  };
  auto call = download();
  ASSERT_TRUE(sent.wait());
  int pushed = 0;  // a push tells whether the call is over; a thousand would end it
  EXPECT_TRUE(support::eventually([&] { return !kept->push(chunk("0")) || ++pushed > 900; }));
  EXPECT_LE(pushed, 900);
  while (call->next()) {
  }
  EXPECT_EQ(call->finish().reason(), "WATCH_LAGGED");
  kept.reset();
}

TEST_F(StreamTest, AProducerThatWaitsGoesWithTheCall) {
  start();
  files_->stream_options.queue = 64;  // half of it is more than goes out without a reader
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> watched = held;
  Event waits;
  files_->download = [&](const Files::Chunks& chunks) {
    const auto large = chunk(std::string(1 << 20, 'x'));
    while (chunks->room() > 0) EXPECT_TRUE(chunks->push(large));
    chunks->when_room([chunks, held = std::move(held)] { ADD_FAILURE() << "nobody reads"; });
    waits.set();
  };
  auto call = download();
  ASSERT_TRUE(waits.wait());
  call->context.TryCancel();
  EXPECT_EQ(call->finish().code(), base::Code::kCancelled);
  EXPECT_TRUE(support::eventually([&] { return watched.expired(); }));
}

// As when thousands of watches wait for a thread and the server stops.
TEST_F(StreamTest, WhatEndsInTheQueueIsNotStartedAndTheRoomWaitsForWhatRuns) {
  Room::Options options;
  options.streams.threads = 1;
  start(options);
  Event begun, go_on;
  std::atomic<int> started = 0;
  std::atomic<bool> through = false;
  files_->download = [&](const Files::Chunks&) {
    if (++started > 1) return;
    begun.set();
    EXPECT_TRUE(go_on.wait());
    through = true;
  };
  auto first = download();
  ASSERT_TRUE(begun.wait());
  auto second = download();
  ASSERT_TRUE(support::eventually([&] { return room_->stream_threads().queued() == 1; }));
  server_->stop(std::chrono::seconds(10));
  EXPECT_EQ(first->finish().reason(), "SERVER_DRAINING");
  EXPECT_EQ(second->finish().reason(), "SERVER_DRAINING");
  EXPECT_FALSE(through);
  go_on.set();
  room_->close();
  EXPECT_TRUE(through);
  EXPECT_EQ(started, 1);
}

TEST_F(StreamTest, SilenceIsFilledWithHeartbeats) {
  Room::Options options;
  options.heartbeat = milliseconds(20);
  start(options);
  files_->stream_options.heartbeat = [] { return chunk("beat"); };
  Files::Chunks kept;
  Event begun;
  files_->download = [&](Files::Chunks chunks) {
    kept = std::move(chunks);
    begun.set();
  };
  auto call = download();
  ASSERT_TRUE(begun.wait());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(call->next(), "beat");
  kept->finish({});
  while (call->next()) {
  }
  EXPECT_TRUE(call->finish().ok());
}

TEST_F(StreamTest, AClientThatLeavesEndsTheStream) {
  start();
  Event begun, over;
  files_->download = [&](Files::Chunks chunks) {
    begun.set();
    EXPECT_TRUE(wait_for_stop(chunks->call().stop()));
    EXPECT_FALSE(chunks->push(chunk("x")));
    over.set();
  };
  auto call = download();
  ASSERT_TRUE(begun.wait());
  call->context.TryCancel();
  EXPECT_TRUE(over.wait());
  EXPECT_EQ(call->finish().code(), base::Code::kCancelled);
}

TEST_F(StreamTest, LettingGoWithoutFinishIsAnError) {
  start();
  files_->download = [](Files::Chunks chunks) { chunks->push(chunk("one")); };
  auto call = download();
  EXPECT_EQ(call->next(), "one");
  EXPECT_EQ(call->next(), std::nullopt);
  EXPECT_EQ(call->finish().code(), base::Code::kInternal);
}

TEST_F(StreamTest, DrainEndsWatchesAndTheServerStopsInTime) {
  start();
  std::vector<Files::Chunks> kept;
  std::mutex mutex;
  Event all;
  files_->download = [&](Files::Chunks chunks) {
    const std::lock_guard lock(mutex);
    kept.push_back(std::move(chunks));
    if (kept.size() == 100) all.set();
  };
  std::vector<std::unique_ptr<Download>> calls;
  for (int i = 0; i < 100; ++i) calls.push_back(download());
  ASSERT_TRUE(all.wait());
  const auto before = std::chrono::steady_clock::now();
  server_->stop(std::chrono::seconds(60));
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(15));
  for (auto& call : calls) {
    EXPECT_EQ(call->next(), std::nullopt);
    EXPECT_EQ(call->finish().reason(), "SERVER_DRAINING");
  }
}

}  // namespace
}  // namespace dex::rpc
