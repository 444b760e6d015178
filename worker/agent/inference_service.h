#pragma once

#include <string>

#include "dex/v1/inference.grpc.pb.h"
#include "services/base/ids.h"
#include "services/rpc/call.h"
#include "services/rpc/room.h"
#include "worker/agent/data_paths.h"
#include "worker/agent/engine_set.h"

namespace dex::agent {

// dex.v1.InferenceService of a worker, as a gateway calls it: relays between the call and the
// engine of the routed base. A slow client's tokens wait in a bounded queue; a client that goes
// away frees its place in the batch.
class InferenceService final : public dex::v1::InferenceService::CallbackService {
 public:
  // All outlive this object.
  InferenceService(rpc::Room& room, EngineSet& engines, const DataPaths& paths,
                   base::UlidGenerator& ids);

  grpc::ServerUnaryReactor* Generate(grpc::CallbackServerContext* context,
                                     const dex::v1::GenerateRequest* in,
                                     dex::v1::GenerateResponse* out) override;
  grpc::ServerWriteReactor<dex::v1::GenerateStreamResponse>* GenerateStream(
      grpc::CallbackServerContext* context, const dex::v1::GenerateRequest* in) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const dex::v1::TokenizeRequest* in,
                                     dex::v1::TokenizeResponse* out) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const dex::v1::DetokenizeRequest* in,
                                       dex::v1::DetokenizeResponse* out) override;
  grpc::ServerUnaryReactor* GetTokenizerInfo(grpc::CallbackServerContext* context,
                                             const dex::v1::GetTokenizerInfoRequest* in,
                                             dex::v1::TokenizerInfo* out) override;

 private:
  // Whose engine answers, with which adapter (id empty: the base).
  struct Target {
    Engine* engine = nullptr;
    iv1::DesiredAdapter adapter;
    std::string alias;  // by which the adapter was asked for
  };
  // `Request` has model and adapter.
  template <typename Request>
  base::Result<Target> target(const Request& request, const rpc::Call& call) const;
  // One call to the tokenizer of the model that the request names: `ask` puts the request into the
  // frame, `take` the reply out of it.
  template <typename Request, typename Reply, typename Ask, typename Take>
  grpc::ServerUnaryReactor* ask_text(grpc::CallbackServerContext* context, const Request* in,
                                     Reply* out, Ask ask, Take take);

  rpc::Room& room_;
  EngineSet& engines_;
  const DataPaths& paths_;
  base::UlidGenerator& ids_;
};

}  // namespace dex::agent
