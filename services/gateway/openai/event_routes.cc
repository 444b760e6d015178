#include <charconv>
#include <memory>
#include <optional>

#include "dex/v1/finetuning.pb.h"
#include "services/gateway/http/sse.h"
#include "services/gateway/openai/door.h"
#include "services/gateway/openai/job_objects.h"
#include "services/gateway/openai/lists.h"

namespace dex::gateway::openai {

namespace {

using http::ExchangePtr;

constexpr const char* kList = "/dex.v1.FineTuningService/ListFineTuningEvents";
constexpr const char* kWatch = "/dex.v1.FineTuningService/WatchFineTuningJob";

std::optional<int64_t> sequence(std::string_view text) {
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

// "ftevent-<u of the job>-<sequence>" of that job → sequence
base::Result<int64_t> sequence_of(const std::string& event, const std::string& job) {
  const std::string own = "ftevent-" + job.substr(job.find('-') + 1) + "-";
  const auto number = event.starts_with(own) ? sequence(event.substr(own.size())) : std::nullopt;
  if (number) return *number;
  return base::bad_field(
      "INVALID_CURSOR", "after",
      "must be the id of an event of this job, got '" + event.substr(0, 80) + "'");
}

void list_events(const DoorPtr& door, const ExchangePtr& exchange) {
  const auto query = read_list_query(exchange->request(), {});
  if (!query.ok()) return http::refuse(*exchange, query.status());
  v1::ListFineTuningEventsRequest request;
  request.set_id(exchange->request().parameter("id"));
  request.set_page_size(query.value().limit);
  request.set_newest_first(true);
  if (!query.value().after.empty()) {
    const auto before = sequence_of(query.value().after, request.id());
    if (!before.ok()) return http::refuse(*exchange, before.status());
    // 0 stands for no bound, and before the first event there is nothing.
    if (before.value() == 0)
      return exchange->reply(http::json_reply(list_object(json::array(), false)));
    request.set_before_sequence(before.value());
  }
  answer_with<v1::ListFineTuningEventsResponse>(
      *door, exchange, kList, request, [](const v1::ListFineTuningEventsResponse& page) {
        json data = json::array();
        for (const auto& event : page.events()) data.push_back(event_object(event));
        return list_object(std::move(data), page.has_more());
      });
}

// Where the client has read to: its Last-Event-ID, else ?after_sequence.
base::Result<int64_t> read_position(const http::Request& request) {
  for (const auto& [name, value] : request.query) {
    if (name != "after_sequence")
      return base::bad_field("UNKNOWN_FIELD", name.substr(0, 100),
                             "is not known; did you mean after_sequence?");
  }
  const auto last = request.header("last-event-id");
  const auto asked = last && !last->empty() ? last : request.query_value("after_sequence");
  if (!asked) return 0;
  const auto number = sequence(*asked);
  if (number) return *number;
  return base::bad_field(
      "INVALID_CURSOR", last ? "Last-Event-ID" : "after_sequence",
      "must be a sequence, a whole number from 0, got '" + asked->substr(0, 40) + "'");
}

// A job's events as server-sent ones; the next is asked for when the last has been written.
class Following : public std::enable_shared_from_this<Following> {
 public:
  explicit Following(ExchangePtr exchange) : exchange_(std::move(exchange)) {}

  void begin(Door& door, int64_t after) {
    v1::WatchFineTuningJobRequest request;
    request.set_id(exchange_->request().parameter("id"));
    request.set_after_sequence(after);
    http::CallOptions options;
    options.timeout = std::chrono::milliseconds(0);
    door.upstream.watch<v1::WatchFineTuningJobResponse>(
        exchange_, kWatch, request,
        [self = shared_from_this()](const http::Upstream::StreamPtr& call,
                                    const v1::WatchFineTuningJobResponse& message) {
          self->take(call, message);
        },
        [self = shared_from_this()](const grpc::Status& status, const http::Headers& /*metadata*/) {
          self->end(status);
        },
        options);
  }

 private:
  void take(const http::Upstream::StreamPtr& call, const v1::WatchFineTuningJobResponse& message) {
    // The first one, a snapshot, says that there is such a job.
    if (!stream_) stream_.emplace(exchange_);
    if (!message.has_event()) return call->next();
    const auto& event = message.event();
    stream_->send({.data = http::dump(event_object(event)),
                   .event = event.type(),
                   .id = std::to_string(event.sequence())},
                  [call](bool ok) { ok ? call->next() : call->cancel(); });
  }
  void end(const grpc::Status& status) {
    if (!status.ok() && !stream_) return http::refuse(*exchange_, status);
    if (!stream_) stream_.emplace(exchange_);
    if (!status.ok()) return stream_->fail(status);
    // Without an end that it knows a browser's EventSource would come back for ever.
    stream_->send({.data = "{}", .event = "end"});
    stream_->end();
  }

  const ExchangePtr exchange_;
  std::optional<http::SseStream> stream_;  // of the call's callbacks, which come one by one
};

void follow_events(const DoorPtr& door, const ExchangePtr& exchange) {
  const auto after = read_position(exchange->request());
  if (!after.ok()) return http::refuse(*exchange, after.status());
  std::make_shared<Following>(exchange)->begin(*door, after.value());
}

}  // namespace

void add_event_routes(http::Router& router, const DoorPtr& door) {
  const std::string events = "/v1/fine_tuning/jobs/{id}/events";
  router.add("GET", events, [door](const ExchangePtr& exchange) { list_events(door, exchange); });
  router.add("GET", events + "/stream",
             [door](const ExchangePtr& exchange) { follow_events(door, exchange); });
}

}  // namespace dex::gateway::openai
