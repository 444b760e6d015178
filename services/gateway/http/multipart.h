#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "services/base/status.h"
#include "services/gateway/http/exchange.h"

namespace dex::gateway::http {

// The name, and what else its lines say, of one part of a multipart/form-data body.
struct Part {
  std::string name;
  std::optional<std::string> filename;  // as sent; not a path to use
  std::string content_type;             // empty: none given
};

struct MultipartEvent {
  enum class Kind : std::uint8_t { kPart, kData, kPartEnd, kEnd };
  Kind kind = Kind::kEnd;
  Part part;         // kPart
  std::string data;  // kData, never empty
};

// Takes a body apart as it comes, in any split, holding back no more than a boundary's length of it
// (RFC 7578, RFC 2046 §5.1). Pure. At most 64 parts, 8 KiB of lines a part.
class MultipartParser {
 public:
  // The boundary of a Content-Type header; INVALID_ARGUMENT `INVALID_FIELD` if it is no form.
  static base::Result<std::string> boundary_of(std::string_view content_type);

  explicit MultipartParser(const std::string& boundary);

  // Appends what `bytes` brought. INVALID_ARGUMENT `INVALID_FIELD` for a body that is no form;
  // nothing may be fed after that.
  base::Status feed(std::string_view bytes, std::deque<MultipartEvent>& events);
  // The body has ended: fails unless the last boundary was seen.
  [[nodiscard]] base::Status finish() const;

 private:
  enum class State : std::uint8_t { kPreamble, kAfterBoundary, kLines, kData, kEpilogue };
  // One step on; false: more bytes are needed, or it is over.
  base::Result<bool> step(std::deque<MultipartEvent>& events);
  base::Result<bool> find_boundary(std::deque<MultipartEvent>& events);
  base::Result<bool> after_boundary(std::deque<MultipartEvent>& events);
  base::Result<bool> read_lines(std::deque<MultipartEvent>& events);

  const std::string delimiter_;  // "\r\n--boundary"
  State state_ = State::kPreamble;
  std::string held_ = "\r\n";  // bytes that can't be judged yet; a form may start with its boundary
  int parts_ = 0;
};

// The parts of an exchange's body, one event at a time; the socket is read only when an event is
// asked for. One next() or read_part() at a time; callbacks as Exchange::read's. An instance keeps
// itself alive while one is on the way.
class MultipartReader : public std::enable_shared_from_this<MultipartReader> {
 public:
  // Fails as boundary_of for a request that is no form.
  static base::Result<std::shared_ptr<MultipartReader>> open(ExchangePtr exchange);

  using OnEvent = std::function<void(base::Result<MultipartEvent>)>;
  void next(OnEvent on_event);
  // The whole of a small part whose kPart has just come; fails `TOO_LARGE` above `most` bytes.
  using OnValue = std::function<void(base::Result<std::string>)>;
  void read_part(size_t most, OnValue on_value);

 private:
  MultipartReader(ExchangePtr exchange, const std::string& boundary)
      : exchange_(std::move(exchange)), parser_(boundary) {}
  base::Status take(base::Result<std::string> chunk);
  void read_on(size_t most, const std::shared_ptr<std::string>& value, OnValue on_value);

  const ExchangePtr exchange_;
  MultipartParser parser_;
  std::deque<MultipartEvent> events_;
  bool ended_ = false;
};

}  // namespace dex::gateway::http
