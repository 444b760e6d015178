// Frames between agent and trainer or engine: the length in front, and the messages behind it.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "dex/internal/v1/frames.pb.h"
#include "services/base/frame_channel.h"
#include "tests/fuzz/target.h"

namespace dex::fuzz {

namespace {

namespace iv1 = dex::internal::v1;

std::string frame(const std::string& body) {
  std::string text;
  for (int shift = 0; shift < 32; shift += 8)
    text += static_cast<char>(body.size() >> shift & 0xff);
  return text + body;
}

// What can be read can be written, and then reads the same.
template <class Message>
bool read_as(const std::string& bytes) {
  Message message;
  if (!message.ParseFromString(bytes)) return false;
  (void)message.ShortDebugString();
  Message again;
  require(again.ParseFromString(message.SerializeAsString()), "a frame that was read can be sent");
  return true;
}

}  // namespace

Corpus corpus() {
  iv1::TrainerReport progress;
  progress.mutable_progress()->mutable_progress()->set_step(7);
  progress.mutable_progress()->set_step_seconds(0.5);
  iv1::TrainerReport event;
  event.mutable_event()->set_type("metrics");
  event.mutable_event()->mutable_metrics()->set_step(3);
  iv1::TrainerReport result;
  result.mutable_result()->set_code("internal");
  result.mutable_result()->mutable_result()->set_bytes(1 << 20);
  iv1::TrainerCommand start;
  start.mutable_start()->set_model_dir("/m");
  start.mutable_start()->mutable_spec()->mutable_dex()->mutable_lambda()->set_end(0.5);
  iv1::TrainerCommand stop;
  stop.mutable_stop()->set_grace_ms(-1);
  iv1::EngineCommand generate;
  generate.mutable_generate()->set_request(1);
  generate.mutable_generate()->mutable_body()->set_prompt("x");
  iv1::EngineReport tokens;
  tokens.mutable_tokens()->set_request(1);
  tokens.mutable_tokens()->mutable_event();
  Corpus made;
  for (const google::protobuf::Message* message : std::vector<const google::protobuf::Message*>{
           &progress, &event, &result, &start, &stop, &generate, &tokens}) {
    made.seeds.push_back(frame(message->SerializeAsString()));
  }
  made.seeds.push_back(made.seeds[0] + made.seeds[1] + frame(""));
  made.seeds.push_back("\xFF\xFF\xFF\xFF rest");
  made.words = {std::string("\0\0\0\0", 4), std::string("\1\0\0\0", 4), "\x0A", "\x12", "\xFF\xFF"};
  return made;
}

}  // namespace dex::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dex::fuzz;
  auto pair = dex::base::FrameChannel::pair();
  require(pair.ok(), "a socket pair");
  {
    // Closed behind the last byte. A socket's buffer holds what an input may have.
    dex::base::Fd sender = std::move(pair->second);
    const size_t most = std::min<size_t>(size, 64 << 10);
    require(send(sender.get(), data, most, MSG_NOSIGNAL) == static_cast<ssize_t>(most),
            "the socket takes an input whole");
  }
  while (true) {
    const auto body = pair->first->read(-1);
    if (!body.ok()) {
      const std::string reason = body.status().reason();
      require(reason == "CHANNEL_CLOSED" || reason == "MALFORMED_FRAME", "a named end");
      return 0;
    }
    namespace iv1 = dex::internal::v1;
    const bool known = read_as<iv1::TrainerReport>(*body) | read_as<iv1::TrainerCommand>(*body) |
                       read_as<iv1::EngineReport>(*body) | read_as<iv1::EngineCommand>(*body);
    if (known) taken();
  }
}
