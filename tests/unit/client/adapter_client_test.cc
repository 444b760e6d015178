// Imports and exports as the library speaks them, with a server of the test's own.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include <fstream>

#include "client/cpp/adapter_archive.h"
#include "client/cpp/client.h"
#include "services/base/sha256.h"

namespace dex::client {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class AdapterServer : public v1::AdapterService::Service {
 public:
  grpc::Status ImportAdapter(grpc::ServerContext*,
                             grpc::ServerReader<v1::ImportAdapterRequest>* reader,
                             v1::Adapter* reply) override {
    v1::ImportAdapterRequest part;
    while (reader->Read(&part)) {
      if (part.has_header()) header = part.header();
      EXPECT_LE(part.chunk().size(), 1U << 20);
      archive += part.chunk();
      if (refuse) return {grpc::StatusCode::FAILED_PRECONDITION, "k_proj does not fit"};
    }
    reply->set_id("ft:tiny:default::01");
    return grpc::Status::OK;
  }
  grpc::Status ExportAdapter(grpc::ServerContext*, const v1::ExportAdapterRequest* request,
                             v1::Export* reply) override {
    exported = *request;
    reply->set_id("export-1");
    return grpc::Status::OK;
  }
  // Whatever was imported last.
  grpc::Status DownloadAdapter(grpc::ServerContext*, const v1::DownloadAdapterRequest* request,
                               grpc::ServerWriter<v1::DownloadAdapterResponse>* writer) override {
    if (request->export_() != "export-1" || !request->id().empty())
      return {grpc::StatusCode::NOT_FOUND, "no such export"};
    v1::DownloadAdapterResponse part;
    part.set_chunk(archive);
    writer->Write(part);
    return grpc::Status::OK;
  }

  v1::ImportAdapterRequest::Header header;
  v1::ExportAdapterRequest exported;
  std::string archive;
  bool refuse = false;
};

class AdapterClientTest : public testing::Test {
 protected:
  AdapterClientTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    client_ =
        std::make_unique<Client>(Client::Options{.server = "127.0.0.1:" + std::to_string(port)});
    std::string pattern = (fs::temp_directory_path() / "dex-import-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    fs::create_directories(root_ / "mine");
    const std::string weights(600'000, 'w');
    std::ofstream(root_ / "mine/adapter_config.json") << "{}";
    std::ofstream(root_ / "mine/adapter_model.safetensors") << weights;
    std::ofstream(root_ / "mine/checksums.json")
        << R"({"adapter_config.json": ")" << base::sha256_hex("{}")
        << R"(", "adapter_model.safetensors": ")" << base::sha256_hex(weights) << "\"}";
  }
  ~AdapterClientTest() override { fs::remove_all(root_); }

  static v1::ImportAdapterRequest::Header header() {
    v1::ImportAdapterRequest::Header header;
    header.set_base_model("tiny");
    header.set_suffix("mine");
    return header;
  }

  AdapterServer service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
  fs::path root_;
};

TEST_F(AdapterClientTest, AnImportSendsHeaderAndArchive) {
  const auto adapter = client_->import_adapter(root_ / "mine", header());
  ASSERT_TRUE(adapter.ok()) << adapter.status().to_string();
  EXPECT_EQ(adapter->id(), "ft:tiny:default::01");
  EXPECT_EQ(service_.header.base_model(), "tiny");
  EXPECT_EQ(service_.header.suffix(), "mine");
  EXPECT_FALSE(service_.header.request_id().empty());
  std::string expected;
  ASSERT_TRUE(pack_adapter(root_ / "mine", [&](std::string_view piece) {
                expected += piece;
                return true;
              }).ok());
  EXPECT_EQ(service_.archive, expected);
}

TEST_F(AdapterClientTest, TheServersRefusalIsTheAnswer) {
  service_.refuse = true;
  const auto status = client_->import_adapter(root_ / "mine", header()).status();
  EXPECT_EQ(status.code(), base::Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("k_proj does not fit"));
}

TEST_F(AdapterClientTest, AFolderWithoutAnAdapterIsNotSent) {
  fs::remove(root_ / "mine/adapter_model.safetensors");
  EXPECT_EQ(client_->import_adapter(root_ / "mine", header()).status().reason(),
            "RESOURCE_NOT_FOUND");
  EXPECT_EQ(service_.archive, "");
}

TEST_F(AdapterClientTest, AnExportIsMadeThenDownloadedAndChecked) {
  v1::ExportAdapterRequest request;
  request.set_adapter("ft:tiny:default::01");
  const auto made = client_->export_adapter(request);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(service_.exported.adapter(), "ft:tiny:default::01");
  EXPECT_FALSE(service_.exported.request_id().empty());
  ASSERT_TRUE(client_->import_adapter(root_ / "mine", header()).ok());
  ASSERT_TRUE(client_->download_export(made->id(), root_ / "out").ok());
  EXPECT_TRUE(fs::exists(root_ / "out/adapter_model.safetensors"));
  EXPECT_EQ(client_->download_export("export-2", root_ / "other").code(), base::Code::kNotFound);
}

}  // namespace
}  // namespace dex::client
