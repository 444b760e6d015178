#pragma once

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dex/v1/files.grpc.pb.h"
#include "tests/e2e/chaos/calls.h"
#include "tests/support/eventually.h"
#include "tests/support/tiny_model.h"

namespace dex::support {

// The word of a server that ends a call because it stops.
inline constexpr const char* kDraining = "SERVER_DRAINING";

// What a process is under when it is asked to stop (jobs.md §9, drain): a hundred watches of one
// job, twenty uploads and eight generations, each on a thread that waits for its end.
class Load {
 public:
  enum class Kind { kWatch, kUpload, kGeneration };

  // Generations have so many tokens, or no end with a fake engine.
  Load(const std::string& server, std::string job, uint32_t tokens)
      : job_(std::move(job)),
        tokens_(tokens),
        jobs_(v1::FineTuningService::NewStub(rpc::channel(server))),
        files_(v1::FileService::NewStub(rpc::channel(server))),
        inference_(v1::InferenceService::NewStub(rpc::channel(server))) {
    for (int i = 0; i < 100; ++i) add(Kind::kWatch);
    for (int i = 0; i < 20; ++i) add(Kind::kUpload);
    for (int i = 0; i < 8; ++i) add(Kind::kGeneration);
  }
  ~Load() {
    for (const auto& call : calls_) call->context.TryCancel();
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  // All have begun; else one that has not is told, with its end if it has one.
  testing::AssertionResult open() {
    const auto waits = [](const auto& call) { return !call->begun.load(); };
    const auto begun = [&] { return std::none_of(calls_.begin(), calls_.end(), waits); };
    if (eventually(begun)) return testing::AssertionSuccess();
    const auto late = std::find_if(calls_.begin(), calls_.end(), waits);
    if (late == calls_.end()) return testing::AssertionSuccess();
    const Call& call = **late;
    return testing::AssertionFailure()
           << std::count_if(calls_.begin(), calls_.end(), waits) << " of " << calls_.size()
           << " calls have not begun, the first of kind " << static_cast<int>(call.kind) << ": "
           << (call.ended ? call.end.to_string() : "it waits");
  }
  [[nodiscard]] bool is_open(Kind kind) const {
    return std::none_of(calls_.begin(), calls_.end(), [kind](const auto& call) {
      return call->kind == kind && call->ended.load();
    });
  }
  // What those of a kind were told at their end: the reason of an UNAVAILABLE, else the whole
  // status; "open" for one that has none after a while.
  std::vector<std::string> reasons(Kind kind) {
    std::vector<std::string> reasons;
    for (const auto& call : calls_) {
      if (call->kind != kind) continue;
      const bool ended = eventually([&] { return call->ended.load(); }, kPatience_ms);
      const bool told = ended && call->end.code() == base::Code::kUnavailable;
      reasons.push_back(told ? call->end.reason() : ended ? call->end.to_string() : "open");
    }
    return reasons;
  }

 private:
  struct Call {
    Kind kind;
    grpc::ClientContext context;
    std::atomic<bool> begun = false, ended = false;
    base::Status end;  // once `ended`
    std::jthread thread;
  };

  void add(Kind kind) {
    auto& call = *calls_.emplace_back(std::make_unique<Call>());
    call.kind = kind;
    rpc::set_timeout(call.context, std::chrono::seconds(120));
    call.thread = std::jthread([this, &call] {
      const grpc::Status end = call.kind == Kind::kWatch    ? watch(call)
                               : call.kind == Kind::kUpload ? upload(call)
                                                            : generate(call);
      call.end = rpc::from_grpc(end);
      call.ended = true;
    });
  }
  grpc::Status watch(Call& call) {
    v1::WatchFineTuningJobRequest request;
    request.set_id(job_);
    const auto reader = jobs_->WatchFineTuningJob(&call.context, request);
    v1::WatchFineTuningJobResponse message;
    while (reader->Read(&message)) call.begun = true;
    return reader->Finish();
  }
  grpc::Status upload(Call& call) {
    v1::File file;
    const auto writer = files_->UploadFile(&call.context, &file);
    v1::UploadFileRequest part;
    part.mutable_header()->set_filename("endless.jsonl");
    bool open = writer->Write(part);
    part.set_chunk("{\"text\": \"the first row\"}\n");
    open = open && writer->Write(part);
    call.begun = open;
    return writer->Finish();  // nothing more is sent: the server has the last word
  }
  grpc::Status generate(Call& call) {
    const auto reader = inference_->GenerateStream(&call.context, generation(kTinyModel, tokens_));
    v1::GenerateStreamResponse message;
    while (reader->Read(&message)) call.begun = true;
    return reader->Finish();
  }

  const std::string job_;
  const uint32_t tokens_;
  const std::unique_ptr<v1::FineTuningService::Stub> jobs_;
  const std::unique_ptr<v1::FileService::Stub> files_;
  const std::unique_ptr<v1::InferenceService::Stub> inference_;
  std::vector<std::unique_ptr<Call>> calls_;
};

}  // namespace dex::support
