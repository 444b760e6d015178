#pragma once

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "dex/v1/finetuning.grpc.pb.h"
#include "dex/v1/inference.grpc.pb.h"
#include "services/base/status.h"
#include "services/rpc/channel.h"
#include "services/rpc/status.h"
#include "tests/support/chaos_platform.h"

namespace dex::support {

// One call, never repeated, and how it ended; dex::client would hide an outage.
template <typename Stub, typename Request, typename Reply>
base::Result<Reply> ask(Stub& stub,
                        grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                        const Request& request, int64_t limit_ms = 10'000) {
  grpc::ClientContext context;
  rpc::set_timeout(context, std::chrono::milliseconds(limit_ms));
  Reply reply;
  const grpc::Status status = (stub.*method)(&context, request, &reply);
  if (!status.ok()) return rpc::from_grpc(status);
  return reply;
}

// While Redis or the scheduler is away.
inline void expect_refused_submit(ChaosPlatform& platform) {
  const auto jobs = v1::FineTuningService::NewStub(rpc::channel(platform.grpc()));
  const auto refusal =
      ask(*jobs, &v1::FineTuningService::Stub::CreateFineTuningJob, platform.request("ms-1", 5))
          .status();
  EXPECT_EQ(refusal.code(), base::Code::kUnavailable) << refusal.to_string();
  EXPECT_EQ(refusal.reason(), "STORE_UNAVAILABLE") << refusal.to_string();
  EXPECT_TRUE(rpc::retryable(refusal)) << "a client must be told that it may try again";
}

// A generation that never stops by itself before it has `tokens` tokens.
inline v1::GenerateRequest generation(const std::string& model, uint32_t tokens) {
  v1::GenerateRequest request;
  request.set_model(model);
  request.set_prompt("forever");  // what the fake engine understands
  request.set_max_tokens(tokens);
  request.set_ignore_eos(true);
  request.set_seed(1);
  return request;
}

// Of the real trainer, on the tiny model: tests/e2e/small_job.h, for this client.
inline v1::CreateFineTuningJobRequest real_job(const ChaosPlatform& platform, uint32_t steps,
                                               uint32_t checkpoint_every) {
  auto request = platform.request("real", steps, checkpoint_every);
  auto& spec = *request.mutable_spec();
  spec.set_validation_file(platform.validation_file());
  auto& calibration = *spec.mutable_dex()->mutable_head_selection()->mutable_calibration();
  calibration.set_n_sequences(2);
  calibration.set_seq_length(128);
  spec.mutable_evaluation()->set_max_tokens(384);
  spec.mutable_evaluation()->set_every_steps(6);
  return request;
}

}  // namespace dex::support
