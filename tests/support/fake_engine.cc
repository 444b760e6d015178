// An engine without a model: echoes prompts. "count N" gives N tokens, "forever" tokens until it is
// cancelled, "die" ends the process, "long" an error. Texts have an id a byte. Adapters and models
// whose path ends in "broken" fail.

#include <chrono>
#include <cstdlib>
#include <map>
#include <string>

#include "dex/internal/v1/frames.pb.h"
#include "services/base/frame_channel.h"

namespace {

namespace iv1 = dex::internal::v1;
using dex::base::FrameChannel;
using dex::v1::GenerateStreamResponse;

class FakeEngine {
 public:
  int run() {
    while (true) {
      const auto frame = channel_.read(forever_.empty() ? -1 : 10);
      if (frame.ok()) {
        iv1::EngineCommand command;
        if (!command.ParseFromString(*frame)) return 1;
        if (command.has_stop()) return 0;
        take(command);
      } else if (frame.status().code() != dex::base::Code::kDeadlineExceeded) {
        return 0;
      }
      for (const auto& [request, unused] : forever_) token(request, "tick ");
    }
  }

 private:
  void send(const iv1::EngineReport& report) {
    if (!channel_.write(report.SerializeAsString(), 30'000).ok()) std::exit(1);
  }
  void token(uint64_t request, const std::string& text) {
    iv1::EngineReport report;
    report.mutable_tokens()->set_request(request);
    report.mutable_tokens()->mutable_event()->mutable_delta()->set_text(text);
    report.mutable_tokens()->mutable_event()->mutable_delta()->add_token_ids(7);
    send(report);
  }
  void done(uint64_t request, dex::v1::FinishReason reason, int tokens) {
    iv1::EngineReport report;
    report.mutable_done()->set_request(request);
    auto& finish = *report.mutable_done()->mutable_finish();
    finish.set_finish_reason(reason);
    finish.mutable_usage()->set_prompt_tokens(1);
    finish.mutable_usage()->set_completion_tokens(tokens);
    send(report);
  }
  void take(const iv1::EngineCommand& command) {
    if (command.has_start()) {
      if (command.start().model_dir().ends_with("broken")) std::exit(17);
      iv1::EngineReport report;
      report.mutable_ready()->set_version("fake");
      report.mutable_ready()->set_dtype(command.start().dtype());
      report.mutable_ready()->set_max_running(32);
      report.mutable_ready()->set_kv_block_tokens(16);
      report.mutable_ready()->set_kv_blocks(512);
      send(report);
      iv1::EngineReport load;
      load.mutable_load()->set_kv_usage_ratio(0.25);
      send(load);
    } else if (command.has_generate()) {
      generate(command.generate());
    } else if (command.has_text()) {
      text(command.text());
    } else if (command.has_cancel()) {
      if (forever_.erase(command.cancel().request()) == 0) return;
      done(command.cancel().request(), dex::v1::FINISH_REASON_CANCELLED, 1);
    } else if (command.has_set_adapter()) {
      const auto& set = command.set_adapter();
      const bool broken = set.path().ends_with("broken");
      iv1::EngineReport report;
      report.mutable_adapter()->set_id(set.id());
      report.mutable_adapter()->set_bytes(1000);
      report.mutable_adapter()->set_state(!set.present() ? dex::v1::Replica::STATE_UNSPECIFIED
                                          : broken       ? dex::v1::Replica::STATE_FAILED
                                                         : dex::v1::Replica::STATE_LOADED);
      if (broken) report.mutable_adapter()->set_error("w_d has the wrong shape");
      send(report);
    }
  }
  // An id a byte. "die" ends the process, "" is an error.
  void text(const iv1::EngineCommand::Text& ask) {
    iv1::EngineReport report;
    report.mutable_text()->set_request(ask.request());
    const std::string& text = ask.tokenize().text();
    if (text == "die") std::abort();
    if (text.empty()) {
      report.mutable_text()->mutable_error()->set_code(3);
      report.mutable_text()->mutable_error()->set_reason("MISSING_FIELD");
      report.mutable_text()->mutable_error()->set_field("text");
    }
    for (const char byte : text) report.mutable_text()->mutable_tokenize()->add_ids(byte);
    send(report);
  }
  void generate(const iv1::EngineCommand::Generate& generate) {
    const uint64_t request = generate.request();
    const std::string& prompt = generate.body().prompt();
    if (prompt == "die") std::abort();
    if (prompt == "long") {
      iv1::EngineReport report;
      report.mutable_done()->set_request(request);
      report.mutable_done()->mutable_error()->set_code(3);
      report.mutable_done()->mutable_error()->set_reason("CONTEXT_LENGTH_EXCEEDED");
      report.mutable_done()->mutable_error()->set_message("prompt has 9000 tokens, at most 8192");
      send(report);
      return;
    }
    iv1::EngineReport start;
    start.mutable_tokens()->set_request(request);
    start.mutable_tokens()->mutable_event()->mutable_start()->set_id(generate.id());
    start.mutable_tokens()->mutable_event()->mutable_start()->set_model(
        generate.adapter().empty() ? "base" : generate.adapter());
    send(start);
    if (prompt == "forever") {
      forever_[request] = true;
      return;
    }
    const int count = prompt.starts_with("count ") ? std::stoi(prompt.substr(6)) : 1;
    for (int i = 0; i < count; ++i) token(request, count == 1 ? prompt : std::to_string(i) + " ");
    done(request, dex::v1::FINISH_REASON_STOP, count);
  }

  FrameChannel channel_{dex::base::Fd(3)};
  std::map<uint64_t, bool> forever_;
};

}  // namespace

int main() {
  return FakeEngine().run();
}
