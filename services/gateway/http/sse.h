#pragma once

#include <grpcpp/support/status.h>

#include <memory>
#include <string>
#include <string_view>

#include "services/gateway/http/exchange.h"

namespace dex::gateway::http {

// One server-sent event: "id: …\nevent: …\ndata: …\n\n". Empty id or event: no such line. Line ends
// inside data become several `data:` lines; in id and event they are dropped.
struct SseEvent {
  std::string data;
  std::string event;
  std::string id;
};
std::string to_text(const SseEvent& event);

// An answer of server-sent events: unbuffered (Cache-Control: no-cache, X-Accel-Buffering: no),
// with
// `: keep-alive` after 15 s of silence. Thread-safe, as Exchange. Made once nothing can be refused
// with an HTTP status any more: best when the upstream's first message has come.
class SseStream {
 public:
  explicit SseStream(ExchangePtr exchange, Headers more = {});

  // Exchange::write's rules: ask for more once on_written(true) comes.
  void send(const SseEvent& event, Exchange::OnWritten on_written = {});
  void end();  // write `data: [DONE]` first where the dialect wants it
  // The error as the last event, then the end without `[DONE]`: `data: {"error": …}`.
  void fail(const grpc::Status& why);
  void fail(const base::Status& why);

 private:
  const ExchangePtr exchange_;
};

}  // namespace dex::gateway::http
