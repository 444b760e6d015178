// What belongs to another tenant does not exist. Every caller of this build is tenant default, so
// the records are moved to another tenant in the store.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/integration/scheduler/evaluation_fixture.h"

namespace dex::server {
namespace {

constexpr const char* kNotFound = "RESOURCE_NOT_FOUND";

class TenantTest : public EvaluationTest {
 protected:
  // `record`: "job:" or "file:" and the id.
  void give_away(const std::string& record) {
    const std::string key = "dex:{s0}:" + record;
    ASSERT_EQ(redis_.call({"HGET", key, "tenant"}).text, "default");
    redis_.call({"HSET", key, "tenant", "other"});
  }
};

TEST_F(TenantTest, AnotherOnesEvaluationHasNoResultsSamplesAndDownload) {
  enlist();
  const std::string id = created().id();
  const std::string line = R"({"task": "perplexity", "subject": "base", "output": "secret"})";
  ASSERT_EQ(publish(claim().job(), "w1", {{"samples-1.jsonl", line + "\n"}}), "SUCCEEDED");
  v1::ListEvaluationSamplesRequest request;
  request.set_id(id);
  const auto own = samples(request);
  ASSERT_TRUE(own.ok()) << own.status().to_string();
  ASSERT_EQ(own->samples_size(), 1);
  grpc::Status status;
  ASSERT_NE(download(id, &status), "");

  give_away("job:" + id);
  EXPECT_EQ(samples(request).status().reason(), kNotFound);
  EXPECT_EQ(download(id, &status), "");
  EXPECT_EQ(rpc::from_grpc(status).reason(), kNotFound);
  EXPECT_EQ(get_evaluation(id).status().reason(), kNotFound);
  EXPECT_EQ(get_evaluation(id, true).status().reason(), kNotFound);
  EXPECT_EQ(cancel_evaluation(id).status().reason(), kNotFound);
  const std::string mine = created().id();
  ASSERT_EQ(publish(claim().job()), "SUCCEEDED");
  for (const bool first : {true, false}) {
    v1::CompareEvaluationsRequest compared;
    compared.set_a(first ? id : mine);
    compared.set_b(first ? mine : id);
    EXPECT_EQ(call(*evaluations_, &EvaluationStub::CompareEvaluations, compared).status().reason(),
              kNotFound);
  }
  v1::DeleteEvaluationRequest gone;
  gone.set_id(id);
  EXPECT_EQ(call(*evaluations_, &EvaluationStub::DeleteEvaluation, gone).status().reason(),
            kNotFound);
  EXPECT_TRUE(std::filesystem::exists(directory_ / "data/jobs/default" / id));
}

TEST_F(TenantTest, AnotherOnesFileIsNoFileOfGatesAndEvaluations) {
  const std::string file = upload_evals("some text\n", "wiki.raw").id();
  v1::CreateFineTuningJobRequest request;
  *request.mutable_spec() = spec(upload_good());
  auto& gate = *request.mutable_spec()->add_gates();
  gate.set_metric("loss");
  gate.set_op(v1::Gate::OP_LE);
  gate.set_threshold(0);
  gate.mutable_evaluation()->mutable_perplexity()->set_file(file);
  give_away("file:" + file);

  const auto gated = create(request).status();
  EXPECT_EQ(gated.code(), base::Code::kNotFound) << gated.to_string();
  ASSERT_EQ(gated.violations().size(), 1U);
  EXPECT_EQ(gated.violations()[0].field, "gates[0].evaluation.perplexity.file");
  EXPECT_EQ(create_evaluation(perplexity_of(file)).status().code(), base::Code::kNotFound);

  redis_.call({"HSET", "dex:{s0}:file:" + file, "tenant", "default"});
  EXPECT_TRUE(create(request).ok()) << "it was the tenant alone";
}

}  // namespace
}  // namespace dex::server
