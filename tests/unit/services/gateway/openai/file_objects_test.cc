#include "services/gateway/openai/file_objects.h"

#include <gtest/gtest.h>

#include "services/gateway/openai/model_objects.h"

namespace dex::gateway::openai {
namespace {

TEST(FileObjectTest, OneWithFaultsSaysWhichAndHowMany) {
  v1::File file;
  file.set_id("file-1");
  file.set_bytes(12);
  file.set_purpose(v1::FILE_PURPOSE_FINE_TUNE);
  file.set_state(v1::FILE_STATE_INVALID);
  auto& info = *file.add_findings();
  info.set_severity(v1::Finding::SEVERITY_INFO);
  info.set_code("bom_removed");
  auto& fault = *file.add_findings();
  fault.set_severity(v1::Finding::SEVERITY_ERROR);
  fault.set_line(3);
  fault.set_json_path("$.messages");
  fault.set_code("missing_key");
  fault.set_message("there is no messages");
  (*file.mutable_finding_counts())["missing_key"] = 2;
  const json made = file_object(file);
  EXPECT_EQ(made.at("status"), "error") << "so that wait_for_processing() ends";
  EXPECT_EQ(made.at("status_details"),
            "line 3, $.messages: missing_key: there is no messages; in all missing_key 2");
  EXPECT_EQ(made.at("purpose"), "fine-tune");
  EXPECT_EQ(made.at("dex").at("findings").size(), 2U);
  file.set_state(v1::FILE_STATE_READY);
  EXPECT_EQ(file_object(file).at("status"), "processed");
  EXPECT_TRUE(file_object(file).at("status_details").is_null());
}

TEST(PurposeTest, TwoAreKnown) {
  EXPECT_TRUE(read_purpose("purpose", "fine-tune").ok());
  EXPECT_TRUE(read_purpose("purpose", "evals").ok());
  EXPECT_EQ(read_purpose("purpose", "batch").status().reason(), "UNSUPPORTED_PARAMETER");
}

TEST(ModelObjectTest, AnAdapterNamesItsBaseAndOwner) {
  v1::Adapter adapter;
  adapter.set_id("ft:smol:acme:x:01jd");
  adapter.set_base_model("smol");
  adapter.set_version("0123456789ab");
  adapter.add_replicas()->set_state(v1::Replica::STATE_LOADED);
  adapter.mutable_branch_effect()->set_verdict(v1::BranchEffect::VERDICT_ACTIVE);
  v1::Model base;
  base.set_name("smol");
  base.set_context_length(128);
  const json made = model_object(adapter, &base);
  EXPECT_EQ(made.at("owned_by"), "acme");
  EXPECT_EQ(made.at("parent"), "smol");
  EXPECT_EQ(made.at("max_model_len"), 128);
  EXPECT_EQ(made.at("dex").at("loaded"), true);
  EXPECT_EQ(made.at("dex").at("branch_effect"), "active");
  EXPECT_EQ(made.at("dex").at("version"), "0123456789ab");
  EXPECT_TRUE(model_object(base).at("parent").is_null());
  EXPECT_EQ(model_object(base).at("object"), "model");
}

}  // namespace
}  // namespace dex::gateway::openai
