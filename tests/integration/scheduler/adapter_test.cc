// Adapters: what a finished job leaves, loading on workers, the archive.
#include <fstream>
#include <thread>

#include "services/base/sha256.h"
#include "tests/integration/scheduler/scheduler_fixture.h"
#include "tests/support/eventually.h"

namespace dex::server {
namespace {

class AdapterTest : public SchedulerTest {
 protected:
  AdapterTest() : id_(train_adapter()) {}
  v1::Adapter adapter() {
    v1::GetAdapterRequest request;
    request.set_id(id_);
    const auto adapter = call(*adapters_, &AdapterStub::GetAdapter, request);
    EXPECT_TRUE(adapter.ok()) << adapter.status().to_string();
    return *adapter;
  }
  base::Result<v1::LoadAdapterResponse> load(double wait_seconds) {
    v1::LoadAdapterRequest request;
    request.set_id(id_);
    request.set_wait_seconds(wait_seconds);
    return call(*adapters_, &AdapterStub::LoadAdapter, request, 30000);
  }
  iv1::AdapterStatus holds(v1::Replica::State state, const std::string& error = "") {
    iv1::AdapterStatus status;
    status.set_id(id_);
    status.set_content_sha256(adapter().content_sha256());
    status.set_state(state);
    status.set_error(error);
    return status;
  }
  std::string download(grpc::Status* status) {
    grpc::ClientContext context;
    rpc::set_timeout(context, std::chrono::seconds(20));
    v1::DownloadAdapterRequest request;
    request.set_id(id_);
    const auto reader = adapters_->DownloadAdapter(&context, request);
    v1::DownloadAdapterResponse piece;
    std::string bytes;
    while (reader->Read(&piece)) bytes += piece.chunk();
    *status = reader->Finish();
    return bytes;
  }

  const std::string id_;
};

TEST_F(AdapterTest, RecordSaysWhatItIs) {
  const auto a = adapter();
  EXPECT_EQ(a.base_model(), "small-model");
  EXPECT_EQ(a.form(), "paper");
  EXPECT_EQ(a.bytes(), 1234);
  EXPECT_EQ(a.version(), a.content_sha256().substr(0, 12));
  EXPECT_EQ(a.metrics().valid_loss(), 2.5);
  EXPECT_EQ(a.desired(), v1::Adapter::DESIRED_ABSENT);
  const auto list = call(*adapters_, &AdapterStub::ListAdapters, v1::ListAdaptersRequest{});
  ASSERT_EQ(list->adapters_size(), 1);
  EXPECT_EQ(list->adapters(0).id(), id_);
  v1::ListAdaptersRequest other;
  other.set_base_model("another");
  EXPECT_EQ(call(*adapters_, &AdapterStub::ListAdapters, other)->adapters_size(), 0);
}

TEST_F(AdapterTest, LoadWaitsForTheWorkers) {
  report_engine("w1");
  base::Result<v1::LoadAdapterResponse> loaded = base::internal("");
  std::jthread loading([&] { loaded = load(20); });
  ASSERT_TRUE(
      support::eventually([&] { return adapter().desired() == v1::Adapter::DESIRED_DEVICE; }));
  const auto reply = report_engine("w1");  // here the worker learns of it
  ASSERT_EQ(reply.desired_size(), 1);
  EXPECT_EQ(reply.desired(0).id(), id_);
  EXPECT_TRUE(
      std::filesystem::exists(directory_ / "data" / reply.desired(0).path() / "checksums.json"));
  const auto same =
      report_engine("w1", {holds(v1::Replica::STATE_LOADED)}, reply.desired_revision());
  EXPECT_EQ(same.desired_size(), 0);
  loading.join();
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  ASSERT_EQ(loaded->adapter().replicas_size(), 1);
  EXPECT_EQ(loaded->adapter().replicas(0).state(), v1::Replica::STATE_LOADED);
}

TEST_F(AdapterTest, LoadSaysWhoIsMissing) {
  report_engine("w1");
  const auto status = load(0.2).status();
  EXPECT_EQ(status.reason(), "ADAPTER_LOADING");
  EXPECT_NE(status.message().find("w1"), std::string::npos);
}

TEST_F(AdapterTest, LoadSaysThatAWorkerCant) {
  report_engine("w1", {holds(v1::Replica::STATE_FAILED, "rank 7 is missing")});
  const auto status = load(20).status();
  EXPECT_EQ(status.reason(), "ADAPTER_NOT_PROVEN");
  EXPECT_NE(status.message().find("rank 7 is missing"), std::string::npos);
}

TEST_F(AdapterTest, OneThatChangesNothingIsNotProven) {
  auto idle = holds(v1::Replica::STATE_LOADED);
  idle.mutable_proof()->set_tensors_expected(6);
  idle.mutable_proof()->set_tensors_matched(6);
  idle.mutable_proof()->set_probe_tokens(23);
  idle.mutable_proof()->set_verdict(v1::AdapterProof::VERDICT_NO_EFFECT);
  report_engine("w1", {idle});
  const auto status = load(20).status();
  EXPECT_EQ(status.reason(), "ADAPTER_NOT_PROVEN");
  EXPECT_NE(status.message().find("all 6 tensors"), std::string::npos) << status.message();
  v1::LoadAdapterRequest all_the_same;
  all_the_same.set_id(id_);
  all_the_same.set_allow_no_effect(true);
  const auto loaded = call(*adapters_, &AdapterStub::LoadAdapter, all_the_same, 30'000);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded->adapter().replicas(0).proof().tensors_matched(), 6);
  v1::SetAdapterAliasRequest name;
  name.set_alias("live");
  name.set_adapter(id_);
  EXPECT_EQ(call(*adapters_, &AdapterStub::SetAdapterAlias, name, 30'000).status().reason(),
            "ADAPTER_NOT_PROVEN")
      << "an alias never points to it";

  idle.mutable_proof()->set_verdict(v1::AdapterProof::VERDICT_PROVEN);
  idle.mutable_proof()->set_max_logprob_change(0.25);
  report_engine("w1", {idle});
  const auto proven = load(20);
  ASSERT_TRUE(proven.ok()) << proven.status().to_string();
  EXPECT_EQ(proven->adapter().replicas(0).proof().max_logprob_change(), 0.25);
}

TEST_F(AdapterTest, LoadSaysThatAWorkerHasNoRoom) {
  auto full = holds(v1::Replica::STATE_FAILED, "it takes 9 bytes, 8 of 100 are free");
  full.set_no_room(true);
  report_engine("w1", {full});
  const auto status = load(20).status();
  EXPECT_EQ(status.reason(), "ADAPTER_SLOTS_FULL");
  EXPECT_EQ(status.code(), base::Code::kResourceExhausted);
  EXPECT_NE(status.message().find("8 of 100 are free"), std::string::npos);
  EXPECT_TRUE(adapter().replicas(0).no_room());
}

// full, full+dex: a model of its own can't share an engine; it is there to be downloaded.
TEST_F(AdapterTest, AWholeModelIsNotLoadedBesideOthers) {
  v1::LoadAdapterRequest request;
  request.set_id(train_adapter("MODEL"));
  report_engine("w1");
  const auto status = call(*adapters_, &AdapterStub::LoadAdapter, request, 30000).status();
  EXPECT_EQ(status.code(), base::Code::kUnimplemented);
  EXPECT_EQ(status.reason(), "NOT_SUPPORTED");
  EXPECT_NE(status.message().find("download it"), std::string::npos) << status.message();
  const auto reply = report_engine("w1");
  EXPECT_EQ(reply.desired_size(), 0);
}

TEST_F(AdapterTest, UnloadTellsTheWorkers) {
  report_engine("w1", {holds(v1::Replica::STATE_LOADED)});
  ASSERT_TRUE(load(20).ok());
  const auto held = report_engine("w1");
  v1::UnloadAdapterRequest request;
  request.set_id(id_);
  ASSERT_TRUE(call(*adapters_, &AdapterStub::UnloadAdapter, request).ok());
  const auto reply = report_engine("w1", {}, held.desired_revision());
  EXPECT_NE(reply.desired_revision(), held.desired_revision());
  EXPECT_EQ(reply.desired_size(), 0);
}

TEST_F(AdapterTest, APinnedOneIsHeldUntilItIsUnpinned) {
  report_engine("w1");
  const auto pin = [this](bool pinned) {
    v1::PinAdapterRequest request;
    request.set_id(id_);
    request.set_pinned(pinned);
    const auto now = call(*adapters_, &AdapterStub::PinAdapter, request);
    EXPECT_TRUE(now.ok()) << now.status().to_string();
    return now.ok() && now->pinned();
  };
  v1::UnloadAdapterRequest unload;
  unload.set_id(id_);
  EXPECT_TRUE(pin(true));
  const auto held = report_engine("w1", {holds(v1::Replica::STATE_LOADED)});
  ASSERT_EQ(held.desired_size(), 1) << "workers hold what is pinned";
  const auto refused = call(*adapters_, &AdapterStub::UnloadAdapter, unload).status();
  EXPECT_EQ(refused.reason(), "ADAPTER_PINNED");
  ASSERT_TRUE(load(20).ok());
  EXPECT_TRUE(adapter().pinned()) << "a load takes no pin away";
  EXPECT_EQ(call(*adapters_, &AdapterStub::UnloadAdapter, unload).status().reason(),
            "ADAPTER_PINNED");

  EXPECT_FALSE(pin(false));
  EXPECT_EQ(adapter().desired(), v1::Adapter::DESIRED_DEVICE) << "it stays where it is";
  ASSERT_TRUE(call(*adapters_, &AdapterStub::UnloadAdapter, unload).ok());
  EXPECT_FALSE(pin(false)) << "loads nothing";
  EXPECT_EQ(adapter().desired(), v1::Adapter::DESIRED_ABSENT);
  v1::LoadAdapterRequest both;
  both.set_id(id_);
  both.set_pin(true);
  ASSERT_TRUE(call(*adapters_, &AdapterStub::LoadAdapter, both, 30'000).ok());
  EXPECT_TRUE(adapter().pinned());
}

TEST_F(AdapterTest, ArchiveIsATarWithTheManifestFirst) {
  grpc::Status status;
  const std::string tar = download(&status);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(tar.size() % 512, 0U);
  EXPECT_EQ(tar.substr(0, 15), std::string("checksums.json\0", 15));
  EXPECT_EQ(tar.substr(257, 5), "ustar");
  const auto file = directory_ / "adapter.tar";
  std::ofstream(file, std::ios::binary) << tar;
  const auto to = directory_ / "unpacked";
  std::filesystem::create_directories(to);
  ASSERT_EQ(std::system(("tar -xf " + file.string() + " -C " + to.string()).c_str()), 0);
  std::string config;
  std::getline(std::ifstream(to / "adapter_config.json"), config);
  EXPECT_EQ(config, "{}");
  EXPECT_TRUE(std::filesystem::exists(to / "adapter_model.safetensors"));
}

TEST_F(AdapterTest, DamagedArtefactIsNotHandedOut) {
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(directory_ / "data/jobs")) {
    if (entry.path().filename() == "adapter_model.safetensors")
      std::ofstream(entry.path()) << "something else";
  }
  grpc::Status status;
  download(&status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(rpc::from_grpc(status).reason(), "ARTIFACT_CORRUPT");
}

TEST_F(AdapterTest, UnknownAdapter) {
  v1::LoadAdapterRequest request;
  request.set_id("ft:small-model:default::nothing");
  EXPECT_EQ(call(*adapters_, &AdapterStub::LoadAdapter, request).status().reason(),
            "RESOURCE_NOT_FOUND");
}

// A job goes on from an adapter: its id stands where a base model's name would (api.md §3).
TEST_F(AdapterTest, AJobGoesOnFromIt) {
  v1::CreateFineTuningJobRequest request;
  *request.mutable_spec() = spec(upload_good());
  request.mutable_spec()->set_model(id_);
  const auto created = create(request);
  ASSERT_TRUE(created.ok()) << created.status().to_string();
  EXPECT_EQ(created->model(), id_);
  EXPECT_EQ(created->base_model(), "small-model");
  const auto& effective = created->effective_config().spec();
  EXPECT_EQ(effective.dex().lambda().schedule(), v1::Lambda::SCHEDULE_CONSTANT);
  EXPECT_EQ(effective.dex().lambda().value(), 0.25);  // as the adapter was published

  const auto claimed = claim();
  ASSERT_TRUE(claimed.has_job());
  const auto& job = claimed.job();
  EXPECT_EQ(job.base_model(), "small-model");
  EXPECT_EQ(job.start_adapter().id(), id_);
  EXPECT_EQ(job.start_adapter().content_sha256(), adapter().content_sha256());
  EXPECT_TRUE(
      std::filesystem::exists(directory_ / "data" / job.start_adapter().path() / "checksums.json"));
  EXPECT_TRUE(job.adapter_id().starts_with("ft:small-model:default::"));
  EXPECT_EQ(finish_well(job), "SUCCEEDED");
}

TEST_F(AdapterTest, AJobCantGoOnFromWhatIsNotThereOrDoesNotFit) {
  v1::CreateFineTuningJobRequest request;
  *request.mutable_spec() = spec(upload_good());
  request.mutable_spec()->set_model("ft:small-model:default::01jxxxxxxxxxxxxxxxxxxxxxxx");
  EXPECT_EQ(create(request).status().reason(), "RESOURCE_NOT_FOUND");
  request.mutable_spec()->set_model("ft:nothing:default::01jxxxxxxxxxxxxxxxxxxxxxxx");
  EXPECT_EQ(create(request).status().reason(), "MODEL_NOT_FOUND");
  request.mutable_spec()->set_model(id_);
  request.mutable_spec()->mutable_lora();
  const auto refused = create(request).status();
  EXPECT_EQ(refused.reason(), "ADAPTER_MISMATCH");
  EXPECT_NE(refused.message().find("lora is not the adapter's method"), std::string::npos);
}

}  // namespace
}  // namespace dex::server
