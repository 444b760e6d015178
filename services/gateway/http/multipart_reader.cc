#include <utility>

#include "services/gateway/http/multipart.h"

namespace dex::gateway::http {

base::Result<std::shared_ptr<MultipartReader>> MultipartReader::open(ExchangePtr exchange) {
  const auto type = exchange->request().header("content-type");
  DEX_ASSIGN_OR_RETURN(const auto boundary, MultipartParser::boundary_of(type.value_or("")));
  return std::shared_ptr<MultipartReader>(new MultipartReader(std::move(exchange), boundary));
}

base::Status MultipartReader::take(base::Result<std::string> chunk) {
  if (!chunk.ok()) return chunk.status();
  if (!chunk->empty()) return parser_.feed(*chunk, events_);
  ended_ = true;
  return parser_.finish();
}

void MultipartReader::next(OnEvent on_event) {
  // Handed out at once: a chunk of 64 KiB holds few events, and a part has to be asked for by name
  // (64 of them at most), so callers that ask again from within the callback stay shallow.
  if (!events_.empty()) {
    MultipartEvent event = std::move(events_.front());
    events_.pop_front();
    return on_event(std::move(event));
  }
  if (ended_) return on_event(MultipartEvent());
  exchange_->read(
      [self = shared_from_this(), on_event = std::move(on_event)](base::Result<std::string> chunk) {
        const base::Status taken = self->take(std::move(chunk));
        if (!taken.ok()) return on_event(taken);
        self->next(on_event);
      });
}

void MultipartReader::read_part(size_t most, OnValue on_value) {
  read_on(most, std::make_shared<std::string>(), std::move(on_value));
}

void MultipartReader::read_on(size_t most, const std::shared_ptr<std::string>& value,
                              OnValue on_value) {
  next([self = shared_from_this(), most, value,
        on_value = std::move(on_value)](base::Result<MultipartEvent> event) {
    if (!event.ok()) return on_value(event.status());
    if (event->kind != MultipartEvent::Kind::kData) return on_value(std::move(*value));
    if (value->size() + event->data.size() > most) {
      return on_value(base::bad_field(
          "TOO_LARGE", "body",
          "has a part of more than " + std::to_string(most) + " bytes where a short one belongs"));
    }
    value->append(event->data);
    self->read_on(most, value, on_value);
  });
}

}  // namespace dex::gateway::http
