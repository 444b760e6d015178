#include "services/gateway/http/sse.h"

#include <algorithm>
#include <utility>

#include "services/gateway/http/http_error.h"

namespace dex::gateway::http {

namespace {

// A line of a field whose value is one line.
void add_line(std::string& text, std::string_view name, std::string_view value) {
  if (value.empty()) return;
  text.append(name).append(": ");
  std::copy_if(value.begin(), value.end(), std::back_inserter(text),
               [](char c) { return c != '\r' && c != '\n' && c != '\0'; });
  text += '\n';
}

}  // namespace

std::string to_text(const SseEvent& event) {
  std::string text;
  text.reserve(event.data.size() + event.event.size() + event.id.size() + 32);
  add_line(text, "id", event.id);
  add_line(text, "event", event.event);
  // Every line end of the format (CR LF, LF, CR) would end the line, so each becomes a new `data:`.
  std::string_view rest = event.data;
  while (true) {
    const auto end = std::min(rest.find_first_of("\r\n"), rest.size());
    text.append("data: ").append(rest.substr(0, end)) += '\n';
    if (end == rest.size()) break;
    rest.remove_prefix(end + (rest.substr(end).starts_with("\r\n") ? 2 : 1));
  }
  text += '\n';
  return text;
}

SseStream::SseStream(ExchangePtr exchange, Headers more) : exchange_(std::move(exchange)) {
  Exchange::StreamStart start;
  start.content_type = "text/event-stream; charset=utf-8";
  start.headers = std::move(more);
  start.headers.emplace_back("Cache-Control", "no-cache, no-transform");
  start.headers.emplace_back("X-Accel-Buffering", "no");  // proxies hand each event on at once
  start.keep_alive = ": keep-alive\n\n";
  exchange_->stream(std::move(start));
}

void SseStream::send(const SseEvent& event, Exchange::OnWritten on_written) {
  exchange_->write(to_text(event), std::move(on_written));
}

void SseStream::end() {
  exchange_->end();
}

void SseStream::fail(const grpc::Status& why) {
  send({dump(error_json(why, exchange_->request().request_id)), "", ""});
  end();
}

void SseStream::fail(const base::Status& why) {
  send({dump(error_json(why, exchange_->request().request_id)), "", ""});
  end();
}

}  // namespace dex::gateway::http
