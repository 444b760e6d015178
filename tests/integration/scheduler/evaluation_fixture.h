#pragma once

#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "dex/v1/evaluation.grpc.pb.h"
#include "tests/integration/scheduler/scheduler_fixture.h"

namespace dex::server {

using EvaluationStub = v1::EvaluationService::Stub;

// A scheduler with its door for evaluations, and what a worker does with one.
class EvaluationTest : public SchedulerTest {
 protected:
  EvaluationTest() { reconnect(); }
  void reconnect() {
    evaluations_ = v1::EvaluationService::NewStub(connected(scheduler_->grpc_address()));
  }

  v1::File upload_evals(const std::string& bytes, const std::string& name) {
    v1::UploadFileRequest::Header header;
    header.set_filename(name);
    header.set_purpose(v1::FILE_PURPOSE_EVALS);
    const auto file = upload(bytes, header);
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    return file.ok() ? *file : v1::File();
  }
  v1::CreateEvaluationRequest perplexity_of(const std::string& file) {
    v1::CreateEvaluationRequest request;
    request.mutable_spec()->add_subjects()->set_model("small-model");
    request.mutable_spec()->add_tasks()->mutable_perplexity()->set_file(file);
    return request;
  }
  base::Result<v1::Evaluation> create_evaluation(const v1::CreateEvaluationRequest& request,
                                                 bool* replayed = nullptr) {
    return call(*evaluations_, &EvaluationStub::CreateEvaluation, request, 20000, replayed);
  }
  v1::Evaluation created() {
    const auto made =
        create_evaluation(perplexity_of(upload_evals("some text\n", "wiki.raw").id()));
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? *made : v1::Evaluation();
  }
  base::Result<v1::Evaluation> get_evaluation(const std::string& id, bool with_pictures = false) {
    v1::GetEvaluationRequest request;
    request.set_id(id);
    request.set_with_pictures(with_pictures);
    return call(*evaluations_, &EvaluationStub::GetEvaluation, request);
  }
  // The whole tar.
  std::string download(const std::string& id, grpc::Status* status) {
    grpc::ClientContext context;
    rpc::set_timeout(context, std::chrono::seconds(20));
    v1::DownloadEvaluationRequest request;
    request.set_id(id);
    const auto reader = evaluations_->DownloadEvaluation(&context, request);
    v1::DownloadEvaluationResponse piece;
    std::string bytes;
    while (reader->Read(&piece)) bytes += piece.chunk();
    *status = reader->Finish();
    return bytes;
  }
  base::Result<v1::Evaluation> cancel_evaluation(const std::string& id) {
    v1::CancelEvaluationRequest request;
    request.set_id(id);
    return call(*evaluations_, &EvaluationStub::CancelEvaluation, request);
  }
  void refused(const v1::CreateEvaluationRequest& request, const std::string& reason,
               const std::string& field) {
    expect_refused(create_evaluation(request).status(), reason, field);
  }

  base::Result<v1::ListEvaluationSamplesResponse> samples(
      const v1::ListEvaluationSamplesRequest& request) {
    return call(*evaluations_, &EvaluationStub::ListEvaluationSamples, request);
  }

  // What a worker publishes of an evaluation, and `files` beside it.
  std::string publish(const iv1::ClaimedJob& job, const std::string& worker = "w1",
                      FileContents files = {}) {
    v1::EvaluationReport report;
    auto& result = *report.add_results();
    result.set_task("perplexity");
    auto& row = *result.add_rows();
    row.set_metric("perplexity");
    row.set_value(17.5);
    row.set_low(16);
    row.set_high(19);
    std::string& results = files["results.json"];
    EXPECT_TRUE(google::protobuf::util::MessageToJsonString(report, &results).ok());
    results.insert(results.rfind('}'), R"(, "ofANewerWorker": {"a": [1]})");  // is passed over
    files["report.md"] = "## perplexity\n";
    return publish_files(job, worker, std::move(files));
  }

  std::unique_ptr<EvaluationStub> evaluations_;
};

}  // namespace dex::server
