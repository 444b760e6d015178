#include "services/base/frame_channel.h"
#include "tests/support/eventually.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <future>
#include <thread>

namespace dex::base {
namespace {

using support::kPatience_ms;

struct Pair {
  std::unique_ptr<FrameChannel> a;
  Fd b;
  Pair() {
    auto made = FrameChannel::pair();
    EXPECT_TRUE(made.ok());
    a = std::move(made->first);
    b = std::move(made->second);
  }
  void send_raw(std::string_view bytes) const {
    ASSERT_EQ(::write(b.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
};

TEST(FrameChannelTest, CarriesFramesOfEverySizeInOrder) {
  Pair pair;
  FrameChannel other(std::move(pair.b));
  std::jthread writer([&] {
    for (const size_t size : {0u, 1u, 3u, 70'000u, FrameChannel::kMaxBytes}) {
      EXPECT_TRUE(pair.a->write(std::string(size, 'x'), kPatience_ms).ok());
    }
  });
  for (const size_t size : {0u, 1u, 3u, 70'000u, FrameChannel::kMaxBytes}) {
    const auto frame = other.read(kPatience_ms);
    ASSERT_TRUE(frame.ok()) << frame.status().to_string();
    EXPECT_EQ(frame->size(), size);
  }
}

TEST(FrameChannelTest, RefusesToSendWhatIsTooLong) {
  Pair pair;
  EXPECT_EQ(pair.a->write(std::string(FrameChannel::kMaxBytes + 1, 'x'), 1000).reason(),
            "TOO_LARGE");
}

TEST(FrameChannelTest, AHostileLengthIsRefusedBeforeAllocation) {
  for (const std::string_view header :
       {std::string_view("\xff\xff\xff\xff", 4), std::string_view("\x01\x00\x40\x00", 4)}) {
    Pair pair;
    pair.send_raw(header);
    const auto frame = pair.a->read(kPatience_ms);
    EXPECT_EQ(frame.status().reason(), "MALFORMED_FRAME");
    EXPECT_FALSE(pair.a->read(1000).ok()) << "the channel is useless after it";
  }
}

TEST(FrameChannelTest, TellsAnOrderlyEndFromACutFrame) {
  for (const std::string_view bytes : {std::string_view(""), std::string_view("\x05\x00", 2),
                                       std::string_view("\x05\x00\x00\x00"
                                                        "ab",
                                                        6)}) {
    Pair pair;
    pair.send_raw(bytes);
    pair.b.reset();
    EXPECT_EQ(pair.a->read(kPatience_ms).status().reason(),
              bytes.empty() ? "CHANNEL_CLOSED" : "MALFORMED_FRAME");
  }
}

TEST(FrameChannelTest, ADeadlineInTheMiddleOfAFrameLosesNothing) {
  Pair pair;
  pair.send_raw(std::string_view("\x03\x00\x00", 3));
  EXPECT_EQ(pair.a->read(10).status().code(), Code::kDeadlineExceeded);
  pair.send_raw(
      std::string_view("\x00"
                       "ab",
                       3));
  EXPECT_EQ(pair.a->read(10).status().code(), Code::kDeadlineExceeded);
  pair.send_raw("c");
  EXPECT_EQ(pair.a->read(kPatience_ms).value(), "abc");
}

TEST(FrameChannelTest, StopAndShutdownWakeAReader) {
  Pair pair;
  std::stop_source stop;
  auto reader =
      std::async(std::launch::async, [&] { return pair.a->read(-1, stop.get_token()).status(); });
  stop.request_stop();
  EXPECT_EQ(reader.get().code(), Code::kCancelled);

  reader = std::async(std::launch::async, [&] { return pair.a->read(-1).status(); });
  pair.a->shutdown();
  EXPECT_EQ(reader.get().reason(), "CHANNEL_CLOSED");
}

TEST(FrameChannelTest, AStopThatCameEarlierDoesNotDisturbALaterRead) {
  Pair pair;
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(pair.a->read(1000, stop.get_token()).status().code(), Code::kCancelled);
  pair.send_raw(std::string_view("\x01\x00\x00\x00z", 5));
  EXPECT_EQ(pair.a->read(kPatience_ms).value(), "z");
}

TEST(FrameChannelTest, AWriterDoesNotWaitForeverForAReaderThatSleeps) {
  Pair pair;
  const std::string large(FrameChannel::kMaxBytes, 'x');
  EXPECT_EQ(pair.a->write(large, 50).code(), Code::kDeadlineExceeded);
  EXPECT_FALSE(pair.a->write("next", 50).ok()) << "half a frame is out: nothing may follow";
}

TEST(FrameChannelTest, AWriteToAClosedPeerIsAnErrorNotASignal) {
  Pair pair;
  pair.b.reset();
  EXPECT_EQ(pair.a->write("x", 1000).reason(), "CHANNEL_CLOSED");
}

TEST(FrameChannelTest, OffersNeverBlockAndTheNewestReplacesTheWaitingOne) {
  Pair pair;
  const std::string padding(50'000, 'p');
  for (int i = 0; i < 1000; ++i) pair.a->offer(std::to_string(i) + " " + padding);

  FrameChannel other(std::move(pair.b));
  std::jthread writer([&] { EXPECT_TRUE(pair.a->write("last", kPatience_ms).ok()); });
  int last = -1;
  int count = 0;
  while (true) {
    const auto frame = other.read(kPatience_ms);
    ASSERT_TRUE(frame.ok());
    if (*frame == "last") break;
    const int number = std::stoi(*frame);
    EXPECT_GT(number, last);
    last = number;
    ++count;
  }
  EXPECT_EQ(last, 999) << "the newest offer goes out before the next frame";
  EXPECT_LT(count, 100) << "those in between were replaced";
}

}  // namespace
}  // namespace dex::base
