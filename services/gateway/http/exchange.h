#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "services/base/status.h"

namespace dex::gateway::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

// A request as a handler sees it: checked, decoded, matched to a route. A plain value.
struct Request {
  std::string method;                 // "POST"; a HEAD request comes as "GET", its body is dropped
  std::string path;                   // as sent, without the query; for messages, never for files
  std::vector<std::string> segments;  // of the path, percent-decoded: {"v1", "files", "file-01…"}
  std::vector<std::pair<std::string, std::string>> query;  // decoded, in the order sent
  Headers headers;         // names in lower case, in the order sent; values trimmed
  std::string body;        // whole, ≤ 4 MiB, for routes with Body::kWhole; else empty
  std::string request_id;  // the client's x-request-id if it is usable, else a new one
  std::string route;       // the pattern that matched, "/v1/files/{id}/content"
  std::map<std::string, std::string> parameters;  // of the pattern: {"id", "file-01…"}

  // The first one if there are several; `name` in lower case.
  [[nodiscard]] std::optional<std::string> header(std::string_view name) const;
  [[nodiscard]] std::optional<std::string> query_value(std::string_view name) const;
  // A parameter of the pattern; the route guarantees that it is there.
  [[nodiscard]] const std::string& parameter(std::string_view name) const;
};

// A complete answer. Content-Length, Date, Connection, x-request-id and the safe headers are the
// server's.
struct Reply {
  int status = 200;
  std::string content_type = "application/json";  // empty: none, e.g. for 204 and 304
  std::string body;
  Headers headers;  // more of them; values with control characters are refused (no splitting)
};

// One request and its answer. Made by the server, handed to a route's handler, kept by whoever
// still has to answer (shared_ptr). Thread-safe: every function may be called from any thread,
// returns at once and never calls back before it returns; callbacks come one after another on the
// connection's strand (an I/O thread) and must not block. Nothing may be kept in callbacks that
// keeps the exchange alive for ever: they are dropped once called, or when the exchange ends.
//
// Exactly one answer: reply(), or stream() … end() or cut(). An exchange that is let go without an
// answer becomes 500 INTERNAL, and a stream without an end is cut.
class Exchange {
 public:
  virtual ~Exchange() = default;

  [[nodiscard]] virtual const Request& request() const = 0;

  // For routes with Body::kStream. One chunk of the request's body of at most about 64 KiB; an
  // empty one is the end. The next is read from the socket only when asked for, so the client feels
  // how fast it is taken. One read at a time. Fails INVALID_ARGUMENT `TOO_LARGE` above the route's
  // limit, DEADLINE_EXCEEDED when the client sends nothing for the idle time of an upload,
  // CANCELLED when it is gone.
  using OnChunk = std::function<void(base::Result<std::string>)>;
  virtual void read(OnChunk on_chunk) = 0;

  // The whole answer. What is left of an unread body is dropped, with the connection if it is long.
  virtual void reply(Reply reply) = 0;

  // An answer of unknown length: headers go out now (200 unless said otherwise), then chunks.
  struct StreamStart {
    int status = 200;
    std::string content_type;
    Headers headers;
    std::optional<uint64_t> length;  // when known: Content-Length instead of chunks
    std::string keep_alive;  // sent whenever nothing else was for `keep_alive_every`; empty: never
    std::chrono::milliseconds keep_alive_every{15'000};
  };
  virtual void stream(StreamStart start) = 0;
  // Sends a chunk. on_written(true) when the socket has taken it: ask for the next one then, and a
  // slow reader slows its source. on_written(false): the client is gone or has taken nothing for
  // the write time-out. Chunks are sent in order; those not yet written count against 8 MiB, more
  // cuts the connection.
  using OnWritten = std::function<void(bool ok)>;
  virtual void write(std::string chunk, OnWritten on_written) = 0;
  virtual void end() = 0;  // after everything written so far; the connection may go on
  virtual void cut() = 0;  // closes the connection without the end mark: the client sees a fault

  // Called once, when the client has gone before the answer was complete, or the server cut it off;
  // at once (on the strand) if that has happened already. Not called after a complete answer. Any
  // number may be registered.
  virtual void on_gone(std::function<void()> gone) = 0;
  // Called once when the server starts to drain and the answer is not complete. Unary answers go
  // on; a stream that could last ends itself with a reason within the grace.
  virtual void on_drain(std::function<void()> drain) = 0;
  // Called once after this time, unless the answer is complete or the client gone by then.
  virtual void after(std::chrono::milliseconds time, std::function<void()> then) = 0;
};

using ExchangePtr = std::shared_ptr<Exchange>;

}  // namespace dex::gateway::http
