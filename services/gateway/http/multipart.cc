#include "services/gateway/http/multipart.h"

#include <algorithm>
#include <cctype>

#include "services/gateway/http/target.h"

namespace dex::gateway::http {

namespace {

constexpr int kMostParts = 64;
constexpr size_t kLongestLines = 8 << 10;
constexpr size_t kLongestBoundary = 70;  // RFC 2046 §5.1.1

base::Status bad_form(const std::string& what) {
  return base::invalid_field("body", "the multipart/form-data body " + what);
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return lower;
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// A token, or a quoted string with its escapes undone, at the front of `rest`, which it shortens.
std::string take_value(std::string_view& rest) {
  std::string value;
  if (!rest.starts_with('"')) {
    const auto end = std::min(rest.find(';'), rest.size());
    value = trimmed(rest.substr(0, end));
    rest.remove_prefix(end);
    return value;
  }
  rest.remove_prefix(1);
  while (!rest.empty() && rest.front() != '"') {
    // Only a quote is escaped: browsers send a backslash of a file's name as it is.
    if (rest.starts_with("\\\"")) rest.remove_prefix(1);
    value += rest.front();
    rest.remove_prefix(1);
  }
  rest.remove_prefix(std::min<size_t>(1, rest.size()));
  return value;
}

// The value of `wanted` among `; name=value` parameters; nullopt: there is none.
std::optional<std::string> parameter_of(std::string_view header, std::string_view wanted) {
  auto rest = header.substr(std::min(header.find(';'), header.size()));
  while (rest.starts_with(';')) {
    rest.remove_prefix(1);
    const auto equals = rest.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string name = lower_case(trimmed(rest.substr(0, equals)));
    rest.remove_prefix(equals + 1);
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
    std::string value = take_value(rest);
    if (name == wanted) return value;
    rest.remove_prefix(std::min(rest.find(';'), rest.size()));
  }
  return std::nullopt;
}

base::Result<Part> part_of(std::string_view lines) {
  Part part;
  bool named = false;
  while (!lines.empty()) {
    const auto end = std::min(lines.find("\r\n"), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 2, lines.size()));
    const auto colon = line.find(':');
    if (colon == std::string_view::npos) return bad_form("has a header line without ':'");
    const std::string name = lower_case(trimmed(line.substr(0, colon)));
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (name == "content-type") part.content_type = value;
    if (name != "content-disposition") continue;
    if (!lower_case(value).starts_with("form-data")) return bad_form("has a part of another kind");
    const auto form_name = parameter_of(value, "name");
    if (!form_name) return bad_form("has a part without a name");
    part.name = *form_name;
    part.filename = parameter_of(value, "filename");
    named = true;
  }
  if (!named) return bad_form("has a part without Content-Disposition");
  if (!is_utf8(part.name) || (part.filename && !is_utf8(*part.filename))) {
    return bad_form("has a name that is not UTF-8");
  }
  return part;
}

}  // namespace

base::Result<std::string> MultipartParser::boundary_of(std::string_view content_type) {
  const auto semicolon = std::min(content_type.find(';'), content_type.size());
  if (lower_case(trimmed(content_type.substr(0, semicolon))) != "multipart/form-data") {
    return base::invalid_field("content-type", "this route takes multipart/form-data, got '" +
                                                   std::string(content_type.substr(0, 100)) + "'");
  }
  auto boundary = parameter_of(content_type, "boundary");
  if (!boundary || boundary->empty() || boundary->size() > kLongestBoundary) {
    return base::invalid_field("content-type",
                               "multipart/form-data needs a boundary of 1 to 70 "
                               "characters: let the HTTP library set this header");
  }
  return std::move(*boundary);
}

MultipartParser::MultipartParser(const std::string& boundary) : delimiter_("\r\n--" + boundary) {}

base::Status MultipartParser::feed(std::string_view bytes, std::deque<MultipartEvent>& events) {
  if (state_ == State::kEpilogue) return {};
  held_.append(bytes);
  while (true) {
    DEX_ASSIGN_OR_RETURN(const bool more, step(events));
    if (!more) return {};
  }
}

base::Status MultipartParser::finish() const {
  return state_ == State::kEpilogue ? base::Status()
                                    : bad_form("ended before its last boundary came");
}

base::Result<bool> MultipartParser::step(std::deque<MultipartEvent>& events) {
  switch (state_) {
    case State::kPreamble:
    case State::kData:
      return find_boundary(events);
    case State::kAfterBoundary:
      return after_boundary(events);
    case State::kLines:
      return read_lines(events);
    case State::kEpilogue:
      break;
  }
  return false;
}

base::Result<bool> MultipartParser::find_boundary(std::deque<MultipartEvent>& events) {
  const auto found = held_.find(delimiter_);
  // What could be the beginning of a boundary waits for the rest of it.
  const size_t sure = found != std::string::npos         ? found
                      : held_.size() < delimiter_.size() ? 0
                                                         : held_.size() - delimiter_.size() + 1;
  if (state_ == State::kData && sure > 0) {
    events.push_back({MultipartEvent::Kind::kData, {}, held_.substr(0, sure)});
  }
  if (found == std::string::npos) {
    held_.erase(0, sure);
    return false;
  }
  held_.erase(0, found + delimiter_.size());
  if (state_ == State::kData) events.push_back({MultipartEvent::Kind::kPartEnd, {}, {}});
  state_ = State::kAfterBoundary;
  return true;
}

base::Result<bool> MultipartParser::after_boundary(std::deque<MultipartEvent>& events) {
  if (held_.size() < 2) return false;
  if (held_.starts_with("--")) {
    state_ = State::kEpilogue;
    held_.clear();
    events.push_back({MultipartEvent::Kind::kEnd, {}, {}});
    return false;
  }
  const auto end = held_.find("\r\n");
  const auto padding = std::string_view(held_).substr(0, std::min(end, held_.size()));
  const auto odd = padding.find_first_not_of(" \t\r");
  if (odd != std::string_view::npos || padding.size() > kLongestLines) {
    return bad_form("has a line that starts with its boundary and goes on differently");
  }
  if (end == std::string::npos) return false;
  held_.erase(0, end);  // its line end stays: a part may have no lines
  state_ = State::kLines;
  return true;
}

base::Result<bool> MultipartParser::read_lines(std::deque<MultipartEvent>& events) {
  const auto end = held_.find("\r\n\r\n");
  if (std::min(end, held_.size()) > kLongestLines) {
    return bad_form("has a part with more than 8 KiB of header lines");
  }
  if (end == std::string::npos) return false;
  if (++parts_ > kMostParts) return bad_form("has more than 64 parts");
  const size_t lines = std::min<size_t>(end, 2);
  DEX_ASSIGN_OR_RETURN(auto part, part_of(std::string_view(held_).substr(lines, end - lines)));
  events.push_back({MultipartEvent::Kind::kPart, std::move(part), {}});
  held_.erase(0, end + 4);
  state_ = State::kData;
  return true;
}

}  // namespace dex::gateway::http
