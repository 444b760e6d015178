// Adapters that come in from elsewhere and leave as plain models, with a worker that only this test
// plays.
#include <gmock/gmock.h>

#include <future>

#include "scheduler/server/tar_writer.h"
#include "services/base/files.h"
#include "tests/integration/scheduler/scheduler_fixture.h"

namespace dex::server {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using TarFiles = std::vector<std::pair<std::string, std::string>>;  // name, content
using Imported = base::Result<v1::Adapter>;

constexpr const char* kLora = R"({"peft_type": "LORA", "r": 8})";

std::string tar_of(const TarFiles& files) {
  std::string tar;
  TarWriter writer([&tar](std::string_view piece) {
    tar += piece;
    return true;
  });
  for (const auto& [name, content] : files) {
    EXPECT_TRUE(writer.begin(name, static_cast<int64_t>(content.size())).ok());
    EXPECT_TRUE(writer.append(content).ok());
  }
  EXPECT_TRUE(writer.finish().ok());
  return tar;
}

TarFiles of_peft() {
  return {{"README.md", "---\nbase_model: x\n---"},
          {"adapter_config.json", kLora},
          {"adapter_model.safetensors", "weights"}};
}

// As a job of ours published it.
TarFiles of_ours() {
  const FileContents files = {{"adapter_config.json", "{}"},
                              {"adapter_model.safetensors", "weights"}};
  return {{"checksums.json", checksums_of(files)},
          {"adapter_config.json", "{}"},
          {"adapter_model.safetensors", "weights"}};
}

class AdapterJobsTest : public SchedulerTest {
 protected:
  AdapterJobsTest() { enlist(); }

  static v1::ImportAdapterRequest::Header header() {
    v1::ImportAdapterRequest::Header header;
    header.set_base_model("small-model");
    header.set_suffix("Mine");
    return header;
  }
  Imported import_now(const std::string& tar, const v1::ImportAdapterRequest::Header& header,
                      bool* replayed = nullptr) {
    grpc::ClientContext context;
    rpc::set_timeout(context, std::chrono::seconds(30));
    v1::Adapter adapter;
    const auto writer = adapters_->ImportAdapter(&context, &adapter);
    v1::ImportAdapterRequest request;
    *request.mutable_header() = header;
    bool open = writer->Write(request);
    for (size_t at = 0; open && at < tar.size(); at += 1000) {
      request.set_chunk(tar.substr(at, 1000));
      open = writer->Write(request);
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    if (replayed != nullptr)
      *replayed = context.GetServerTrailingMetadata().contains("dex-replayed");
    if (!status.ok()) return rpc::from_grpc(status);
    return adapter;
  }
  // Waits for its worker, so it has a thread.
  std::future<Imported> import_later(const TarFiles& files,
                                     const v1::ImportAdapterRequest::Header& header) {
    return std::async(std::launch::async,
                      [this, tar = tar_of(files), header] { return import_now(tar, header); });
  }
  std::future<base::Result<v1::Export>> ask_export(const v1::ExportAdapterRequest& request) {
    return std::async(std::launch::async, [this, request] {
      return call(*adapters_, &AdapterStub::ExportAdapter, request, 30'000);
    });
  }
  static v1::ExportAdapterRequest folded(const std::string& adapter) {
    v1::ExportAdapterRequest request;
    request.set_adapter(adapter);
    request.set_kind(v1::ExportAdapterRequest::KIND_FOLDED_SAFETENSORS);
    return request;
  }
  void refused(const TarFiles& files, const std::string& reason, const std::string& field) {
    expect_refused(import_now(tar_of(files), header()).status(), reason, field);
  }
  std::string uploaded(const iv1::ClaimedJob& job, const std::string& name) {
    const auto file =
        base::read_file(directory_ / "data" / job.adapter_import().path() / name, 1 << 20);
    return file.ok() ? *file : "none";
  }
  // What a worker reports of an import or export, with the files that it made.
  std::string publish(const iv1::ClaimedJob& job, iv1::AttemptResult result) {
    result.set_bytes(99);
    return publish_files(job, "w1", {{"made", "by the worker"}}, std::move(result));
  }
  static iv1::AttemptResult checked() {
    iv1::AttemptResult result;
    result.mutable_adapter()->set_method("lora");
    result.mutable_adapter()->set_form("none");
    result.mutable_adapter()->set_base_weights_sha256("aa");
    result.mutable_adapter()->set_artifact_class("LIGHT");
    result.mutable_made_as()->mutable_lora()->set_r(8);
    return result;
  }
  std::string import_well(iv1::AttemptResult result = checked()) {
    auto asked = import_later(of_peft(), header());
    EXPECT_EQ(publish(claimed(), std::move(result)), "SUCCEEDED");
    const auto adapter = asked.get();
    EXPECT_TRUE(adapter.ok()) << adapter.status().to_string();
    return adapter.ok() ? adapter->id() : "";
  }
};

TEST_F(AdapterJobsTest, AFolderOfPeftsBecomesAnAdapter) {
  auto asked = import_later(of_peft(), header());
  const auto job = claimed();
  EXPECT_EQ(job.kind(), "adapter_import");
  EXPECT_EQ(job.base_model(), "small-model");
  EXPECT_EQ(job.adapter_import().path(), "jobs/default/" + job.job_id() + "/upload");
  EXPECT_EQ(uploaded(job, "adapter_config.json"), kLora);
  EXPECT_EQ(uploaded(job, "adapter_model.safetensors"), "weights");
  EXPECT_EQ(uploaded(job, "README.md"), "none");
  EXPECT_EQ(publish(job, checked()), "SUCCEEDED");
  const auto adapter = asked.get();
  ASSERT_TRUE(adapter.ok()) << adapter.status().to_string();
  EXPECT_EQ(adapter->origin(), v1::Adapter::ORIGIN_IMPORTED);
  EXPECT_THAT(adapter->id(), StartsWith("ft:small-model:default:mine:"));
  EXPECT_EQ(adapter->job(), "");
  EXPECT_EQ(adapter->method(), "lora");
  EXPECT_EQ(adapter->bytes(), 99);

  const auto list = call(*adapters_, &AdapterStub::ListAdapters, v1::ListAdaptersRequest{});
  ASSERT_EQ(list->adapters_size(), 1);
  EXPECT_EQ(list->adapters(0).id(), adapter->id());
  const auto jobs = call(*jobs_, &JobStub::ListFineTuningJobs, v1::ListFineTuningJobsRequest{});
  EXPECT_EQ(jobs->jobs_size(), 0) << "nobody sees it as a job";
  // It is loaded like any other.
  report_engine("w1");
  v1::LoadAdapterRequest load;
  load.set_id(adapter->id());
  load.set_wait_seconds(0);
  EXPECT_EQ(call(*adapters_, &AdapterStub::LoadAdapter, load).status().reason(), "ADAPTER_LOADING");
  ASSERT_EQ(report_engine("w1").desired_size(), 1);
}

TEST_F(AdapterJobsTest, AJobGoesOnFromAnImportedOne) {
  const std::string id = import_well();
  v1::CreateFineTuningJobRequest request;
  *request.mutable_spec() = spec(upload_good());
  request.mutable_spec()->set_model(id);
  const auto created = create(request);
  ASSERT_TRUE(created.ok()) << created.status().to_string();
  EXPECT_EQ(created->effective_config().spec().lora().r(), 8U);
  EXPECT_EQ(claimed().start_adapter().id(), id);
}

TEST_F(AdapterJobsTest, AJobCantGoOnFromWhatNoJobMakes) {
  auto result = checked();
  result.clear_made_as();
  const std::string id = import_well(result);
  v1::CreateFineTuningJobRequest request;
  *request.mutable_spec() = spec(upload_good());
  request.mutable_spec()->set_model(id);
  const auto status = create(request).status();
  EXPECT_EQ(status.reason(), "ADAPTER_MISMATCH") << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("no job's LoRA has"));
}

TEST_F(AdapterJobsTest, TheWorkersRefusalReachesTheClient) {
  auto asked = import_later(of_ours(), header());
  const auto job = claimed();
  EXPECT_EQ(uploaded(job, "checksums.json"), of_ours()[0].second);
  finish(job, iv1::OUTCOME_FAIL_FINAL, "adapter_mismatch");
  const auto status = asked.get().status();
  EXPECT_EQ(status.reason(), "ADAPTER_MISMATCH") << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("can't be imported: it ended with adapter_mismatch"));
  EXPECT_EQ(
      call(*adapters_, &AdapterStub::ListAdapters, v1::ListAdaptersRequest{})->adapters_size(), 0);
}

TEST_F(AdapterJobsTest, WhatCanBeSeenWithoutAWorkerIsRefusedAtOnce) {
  refused({{"adapter_config.json", kLora}}, "INVALID_FIELD", "adapter_model.safetensors");
  refused({{"adapter_model.safetensors", "w"}}, "INVALID_FIELD", "adapter_config.json");
  refused({{"adapter_config.json", "["}, {"adapter_model.safetensors", "w"}}, "INVALID_FIELD",
          "adapter_config.json");
  refused({{"adapter_config.json", "{}"}, {"adapter_model.safetensors", "w"}}, "INVALID_FIELD",
          "checksums.json");
  const std::string deep(40, '[');
  refused({{"adapter_config.json", "{\"r\":" + deep + std::string(40, ']') + "}"},
           {"adapter_model.safetensors", "w"}},
          "INVALID_FIELD", "adapter_config.json");
  // A tree of JSON takes many times its text, in the process of all tenants.
  refused({{"adapter_config.json", "{\"r\":\"" + std::string(1 << 20, 'x') + "\"}"}}, "TOO_LARGE",
          "adapter_config.json");
  refused({{"adapter_model.bin", "pickle"}}, "INVALID_FIELD", "adapter_model.bin");
  refused({{"config.json", "{}"}}, "INVALID_FIELD", "config.json");
  refused({{"adapter_config.json", kLora}, {"adapter_config.json", kLora}}, "INVALID_FIELD",
          "adapter_config.json");
  auto other = of_ours();
  other[2].second = "other weights";
  refused(other, "CHECKSUM_MISMATCH", "adapter_model.safetensors");
  auto unnamed = of_ours();
  unnamed.emplace_back("provenance.json", "{}");
  refused(unnamed, "CHECKSUM_MISMATCH", "provenance.json");
  auto absent = of_ours();
  absent.pop_back();
  refused(absent, "INVALID_FIELD", "adapter_model.safetensors");

  auto model = header();
  model.set_base_model("another");
  EXPECT_EQ(import_now(tar_of(of_peft()), model).status().reason(), "MODEL_NOT_FOUND");
  model.clear_base_model();
  EXPECT_EQ(import_now(tar_of(of_peft()), model).status().reason(), "MISSING_FIELD");
  auto suffix = header();
  suffix.set_suffix("../a");
  EXPECT_EQ(import_now(tar_of(of_peft()), suffix).status().reason(), "INVALID_FIELD");
  auto size = header();
  size.set_size_bytes(7);
  EXPECT_EQ(import_now(tar_of(of_peft()), size).status().reason(), "CHECKSUM_MISMATCH");
  EXPECT_EQ(import_now(tar_of(of_peft()).substr(0, 1500), header()).status().reason(),
            "INVALID_FIELD")
      << "an archive that ends early";
  EXPECT_FALSE(claim().has_job());
  EXPECT_TRUE(std::filesystem::is_empty(directory_ / "data/jobs/default")) << "nothing is left";
}

TEST_F(AdapterJobsTest, ARepeatWaitsForTheSameJob) {
  auto named = header();
  named.set_request_id("once");
  auto first = import_later(of_peft(), named);
  ASSERT_EQ(publish(claimed(), checked()), "SUCCEEDED");
  const auto made = first.get();
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  bool replayed = false;
  const auto again = import_now(tar_of(of_peft()), named, &replayed);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_TRUE(replayed);
  EXPECT_EQ(again->id(), made->id());
  EXPECT_EQ(import_now(tar_of(of_ours()), named).status().reason(), "IDEMPOTENCY_CONFLICT");
  EXPECT_FALSE(claim().has_job());
}

TEST_F(AdapterJobsTest, AnExportIsMadeByAWorkerAndDownloaded) {
  const std::string id = train_adapter();
  auto request = folded(id);
  request.set_dtype(v1::ExportAdapterRequest::DTYPE_BF16);
  auto asked = ask_export(request);
  const auto job = claimed();
  EXPECT_EQ(job.kind(), "adapter_export");
  EXPECT_EQ(job.base_model(), "small-model");
  EXPECT_EQ(job.adapter_export().dtype(), "bf16");
  EXPECT_EQ(job.adapter_export().adapter().id(), id);
  EXPECT_TRUE(std::filesystem::exists(directory_ / "data" / job.adapter_export().adapter().path() /
                                      "checksums.json"));
  v1::GetExportRequest get;
  get.set_id(job.job_id());
  EXPECT_EQ(call(*adapters_, &AdapterStub::GetExport, get)->state(), v1::Export::STATE_MAKING);
  iv1::AttemptResult result;
  result.mutable_certificate()->set_largest_logit_difference(2e-5);
  result.mutable_certificate()->set_within_bound(true);
  ASSERT_EQ(publish(job, result), "SUCCEEDED");
  const auto made = asked.get();
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(made->id(), job.job_id());
  EXPECT_EQ(made->state(), v1::Export::STATE_READY);
  EXPECT_EQ(made->adapter(), id);
  EXPECT_EQ(made->certificate().largest_logit_difference(), 2e-5);
  EXPECT_EQ(call(*adapters_, &AdapterStub::GetExport, get)->sha256(), made->sha256());

  const auto download = [this](const v1::DownloadAdapterRequest& wanted, std::string* bytes) {
    grpc::ClientContext context;
    rpc::set_timeout(context, std::chrono::seconds(20));
    const auto reader = adapters_->DownloadAdapter(&context, wanted);
    v1::DownloadAdapterResponse piece;
    while (reader->Read(&piece)) *bytes += piece.chunk();
    return rpc::from_grpc(reader->Finish());
  };
  v1::DownloadAdapterRequest wanted;
  wanted.set_export_(made->id());
  std::string bytes;
  EXPECT_TRUE(download(wanted, &bytes).ok());
  EXPECT_THAT(bytes, HasSubstr("by the worker"));
  wanted.set_id(id);
  EXPECT_EQ(download(wanted, &bytes).reason(), "CONFLICTING_FIELDS");
  wanted.clear_id();
  std::filesystem::remove_all(directory_ / "data" / job.attempt_dir());  // its day is over
  EXPECT_EQ(download(wanted, &bytes).reason(), "RESOURCE_NOT_FOUND");
}

TEST_F(AdapterJobsTest, WhatCantBeFoldedIsRefusedWithItsReason) {
  const std::string id = train_adapter();
  auto asked = ask_export(folded(id));
  const auto job = claimed();
  finish(job, iv1::OUTCOME_FAIL_FINAL, "not_foldable");
  const auto status = asked.get().status();
  EXPECT_EQ(status.reason(), "NOT_FOLDABLE") << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("it ended with not_foldable"));
  v1::GetExportRequest get;
  get.set_id(job.job_id());
  const auto failed = call(*adapters_, &AdapterStub::GetExport, get);
  EXPECT_EQ(failed->state(), v1::Export::STATE_FAILED);
  EXPECT_EQ(failed->error(), "it ended with not_foldable");

  const auto whole = call(*adapters_, &AdapterStub::ExportAdapter, folded(train_adapter("MODEL")));
  EXPECT_EQ(whole.status().reason(), "NOT_FOLDABLE") << whole.status().to_string();
  EXPECT_THAT(whole.status().message(), HasSubstr("download it as it is"));
  EXPECT_FALSE(claim().has_job());
}

TEST_F(AdapterJobsTest, ExportsOfNothingAndOfNoKindAreRefused) {
  const auto refusal = [this](const v1::ExportAdapterRequest& request) {
    return call(*adapters_, &AdapterStub::ExportAdapter, request).status().reason();
  };
  EXPECT_EQ(refusal(folded("")), "MISSING_FIELD");
  EXPECT_EQ(refusal(folded("ft:small-model:default::nothing")), "RESOURCE_NOT_FOUND");
  const std::string id = train_adapter();
  auto kind = folded(id);
  kind.clear_kind();
  EXPECT_EQ(refusal(kind), "INVALID_FIELD");
  auto dtype = folded(id);
  dtype.set_dtype(static_cast<v1::ExportAdapterRequest::Dtype>(77));
  EXPECT_EQ(refusal(dtype), "INVALID_FIELD");
  v1::GetExportRequest get;
  get.set_id("export-01jd0000000000000000000000");
  EXPECT_EQ(call(*adapters_, &AdapterStub::GetExport, get).status().reason(), "RESOURCE_NOT_FOUND");
}

}  // namespace
}  // namespace dex::server
