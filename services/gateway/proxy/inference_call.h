#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "services/gateway/metrics.h"
#include "services/gateway/proxy/metadata.h"
#include "services/gateway/proxy/upstream.h"
#include "services/gateway/routing/balancer.h"
#include "services/gateway/routing/route_watcher.h"
#include "services/gateway/routing/use_report.h"
#include "services/rpc/live_call.h"

namespace dex::gateway {

// A generation on its way to a worker. The request is read for its model and adapter only and
// handed on as it came, with the routed base, adapter and content hash as metadata. Replies pass as
// bytes. If the worker is lost before a token was handed on, the request is repeated once, at
// another worker (jobs.md §9): so a stream's first message, which names what answers, waits for the
// second. A model that no worker serves is waited for a little: a worker that has just become ready
// may be on its way in the next routes.
class InferenceCall final : public grpc::ServerGenericBidiReactor,
                            public rpc::LiveCall,
                            private Upstream::Owner {
 public:
  struct Parts {  // all outlive the call
    RouteWatcher& routes;
    Balancer& balancer;
    Metrics& metrics;
    UseReport& uses;
    std::chrono::milliseconds route_patience;  // for a worker or a new adapter; 0: none
  };
  InferenceCall(rpc::Room& room, grpc::CallbackServerContext& context, auth::Principal principal,
                std::string method, bool streaming, const Parts& parts);

  void open();
  void end(base::Status why) override;
  void drain() override {}  // generations end by themselves, or at the end of the grace

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnSendInitialMetadataDone(bool /*ok*/) override {}
  void OnCancel() override;
  void OnDone() override { done(); }

 private:
  void on_headers(bool ok, const grpc::ClientContext& context) override;
  void on_sent(bool /*ok*/) override {}
  void on_reply(bool ok) override;
  void on_end(const grpc::Status& status, const grpc::ClientContext& context) override;

  void look_again();  // newer routes are there; on the watcher's thread
  void give_up();     // the patience is over; on the timer's thread

  // All of these are called with mutex_ held.
  base::Status read();   // request_ → model_ and adapter_
  base::Status route();  // try_worker, or waits for a worker
  // An adapter that was published a moment ago is in the next routes; any other unknown name is no
  // matter of time.
  [[nodiscard]] bool may_be_new(const base::Status& refusal) const;
  bool wait_for_routes(const RouteTable* known);  // false: newer ones are there already
  void stop_waiting();
  void refuse(base::Status why);
  base::Status try_worker();                // opens upstream_ at the best worker other than tried_
  bool repeat(const grpc::Status& status);  // true: the call goes on at another worker
  void hand_out();                          // writes what may be written to the client
  void read_on();                           // asks the upstream for more when there is room
  void finish_if_done();
  void count_tokens() const;  // of a generation that has ended well
  grpc::Status upstreams_word(const grpc::Status& status) const;

  grpc::CallbackServerContext& context_;
  const std::string method_;
  const bool streaming_;
  const Parts parts_;
  std::mutex mutex_;  // guards all below
  grpc::ByteBuffer request_;
  std::string model_, adapter_;
  std::optional<rpc::Timer::Ticket> patience_;  // armed while it waits for routes
  std::optional<RouteWatcher::Ticket> news_;    // likewise
  bool gave_up_ = false;
  Target target_;
  std::vector<RouteTable::Worker> candidates_;
  std::optional<Balancer::Lease> place_;
  std::string tried_;             // address of the worker that was lost
  Upstream* upstream_ = nullptr;  // null: nothing may be started on it
  bool upstream_lives_ = false;   // on_end is still to come
  bool reading_ = false;          // an upstream read is on the way
  bool headers_known_ = false;    // on_headers has come
  MetadataList headers_;
  std::deque<grpc::ByteBuffer> outbox_;
  grpc::ByteBuffer newest_;  // the last reply that has come: it tells the tokens
  grpc::ByteBuffer writing_;
  bool is_writing_ = false;
  bool committed_ = false;             // something was handed out: no repeat
  std::optional<grpc::Status> last_;   // the upstream's word; given once the outbox is empty
  std::optional<base::Status> ended_;  // why this call was ended here; wins
  bool finished_ = false;
};

}  // namespace dex::gateway
