#include "tests/perf/load/stream_load.h"

#include <fcntl.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <latch>
#include <memory>
#include <stdexcept>
#include <vector>

#include "dex/v1/inference.grpc.pb.h"
#include "services/base/fd.h"
#include "tests/perf/load/backend.h"
#include "tests/support/http_client.h"

namespace dex::perf {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{300};

// When one stream's tokens came.
struct Seen {
  int tokens = 0;
  Clock::time_point first, last;
  double longest_gap_ms = 0;

  void add(int more, Clock::time_point now) {
    if (more == 0) return;
    if (tokens == 0) {
      first = now;
    } else {
      longest_gap_ms =
          std::max(longest_gap_ms, std::chrono::duration<double, std::milli>(now - last).count());
    }
    last = now;
    tokens += more;
  }
};

Streams summary(const std::vector<Seen>& all, int tokens) {
  Streams found;
  for (const Seen& seen : all) {
    if (seen.tokens != tokens) {
      throw std::runtime_error("a stream had " + std::to_string(seen.tokens) + " of " +
                               std::to_string(tokens) + " tokens");
    }
    const double each =
        std::chrono::duration<double, std::milli>(seen.last - seen.first).count() / (tokens - 1);
    found.token_ms += each / static_cast<double>(all.size());
    found.worst_ms = std::max(found.worst_ms, each);
    found.longest_gap_ms = std::max(found.longest_gap_ms, seen.longest_gap_ms);
  }
  return found;
}

class Reader final : public grpc::ClientReadReactor<v1::GenerateStreamResponse> {
 public:
  Reader(v1::InferenceService::Stub& stub, int tokens, std::latch& ended) : ended_(ended) {
    request_.set_model(Backend::kModel);
    request_.set_prompt("x");
    request_.set_max_tokens(static_cast<uint32_t>(tokens));
    context_.set_deadline(std::chrono::system_clock::now() + kPatience);
    stub.async()->GenerateStream(&context_, &request_, this);
    StartRead(&message_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    seen.add(message_.has_delta() ? 1 : 0, Clock::now());
    StartRead(&message_);
  }
  void OnDone(const grpc::Status& status) override {
    failure = status.error_message();
    ended_.count_down();
  }
  Seen seen;
  std::string failure;

 private:
  std::latch& ended_;
  grpc::ClientContext context_;
  v1::GenerateRequest request_;
  v1::GenerateStreamResponse message_;
};

// One HTTP connection whose events are counted as they come.
struct Events {
  base::Fd fd;
  std::string tail;  // of what was read: a mark may come in two pieces
  Seen seen;
  bool done = false;
};

// Chunks with text in it, as many as marks that are whole now; the rest stays in the tail.
int take_marks(std::string& text, const std::string& mark) {
  int found = 0;
  size_t from = 0;
  for (size_t at = 0; (at = text.find(mark, from)) != std::string::npos; ++found)
    from = at + mark.size();
  const size_t kept = std::max(from, text.size() - std::min(text.size(), mark.size() - 1));
  text.erase(0, kept);
  return found;
}

void read_some(Events& events) {
  constexpr const char* kText = "\"text\":\" word\"";
  char buffer[8192];
  const ssize_t got = recv(events.fd.get(), buffer, sizeof buffer, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) throw std::runtime_error("the gateway closed a stream before its end");
  const std::string_view fresh(buffer, static_cast<size_t>(got));
  const std::string_view head = std::string_view("HTTP/1.1 ");
  if (events.seen.tokens == 0 && fresh.starts_with(head) && !fresh.starts_with("HTTP/1.1 200"))
    throw std::runtime_error("the gateway answered " + std::string(fresh.substr(0, 400)));
  events.tail += fresh;
  events.done = events.done || events.tail.find("[DONE]") != std::string::npos;
  events.seen.add(take_marks(events.tail, kText), Clock::now());
}

Events open(int port, int tokens) {
  Events events;
  events.fd = base::Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(events.fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    throw std::runtime_error("the gateway takes no connection");
  const std::string body =
      std::string("{\"model\":\"") + Backend::kModel +
      "\",\"prompt\":\"x\",\"stream\":true,\"max_tokens\":" + std::to_string(tokens) + "}";
  const std::string request =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
      "Content-Type: application/json\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body;
  if (::send(events.fd.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size()))
    throw std::runtime_error("the gateway took no request");
  fcntl(events.fd.get(), F_SETFL, O_NONBLOCK);
  return events;
}

}  // namespace

Streams grpc_streams(const std::string& server, int count, int tokens) {
  const auto stub = v1::InferenceService::NewStub(
      grpc::CreateChannel(server, grpc::InsecureChannelCredentials()));
  std::latch ended(count);
  std::vector<std::unique_ptr<Reader>> readers;
  for (int i = 0; i < count; ++i) readers.push_back(std::make_unique<Reader>(*stub, tokens, ended));
  ended.wait();
  std::vector<Seen> all;
  for (const auto& reader : readers) {
    if (!reader->failure.empty()) throw std::runtime_error("GenerateStream: " + reader->failure);
    all.push_back(reader->seen);
  }
  return summary(all, tokens);
}

Streams sse_streams(const std::string& server, int count, int tokens) {
  std::vector<Events> streams;
  for (int i = 0; i < count; ++i) streams.push_back(open(support::port_of(server), tokens));
  std::vector<pollfd> waiting;
  for (const Events& events : streams) waiting.push_back({events.fd.get(), POLLIN, 0});
  const auto deadline = Clock::now() + kPatience;
  for (int open = count; open > 0;) {
    if (poll(waiting.data(), waiting.size(), 1000) < 0 && errno != EINTR)
      throw std::runtime_error("poll failed");
    if (Clock::now() > deadline) throw std::runtime_error("streams did not end in time");
    for (size_t i = 0; i < streams.size(); ++i) {
      if (waiting[i].fd < 0 || waiting[i].revents == 0) continue;
      read_some(streams[i]);
      if (!streams[i].done) continue;
      waiting[i].fd = -1;
      --open;
    }
  }
  std::vector<Seen> all;
  for (const Events& events : streams) all.push_back(events.seen);
  return summary(all, tokens);
}

}  // namespace dex::perf
