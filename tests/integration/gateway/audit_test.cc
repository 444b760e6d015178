// The audit log of a gateway, and what of a call it must not show (jobs.md §10, api.md §2).
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "services/auth/api_key.h"
#include "tests/integration/gateway/gateway_fixture.h"
#include "tests/support/content_of.h"
#include "tests/support/temporary_directory.h"

namespace dex::gateway {
namespace {

using testing::HasSubstr;
using testing::Not;

class AuditTest : public GatewayTest {
 protected:
  void SetUp() override { open(); }

  // A gateway with keys that appends to the log.
  void open() {
    internal::v1::RouteSnapshot routes;
    routes.set_revision(1);
    auto* key = routes.add_keys();
    key->set_id("key-1");
    key->set_sha256(auth::api_key_sha256(secret_));
    key->set_tenant("team-a");
    key->set_scopes("files:read files:write admin");
    scheduler_->set_routes(routes);
    Gateway::Options options;
    options.scheduler = scheduler_->address();
    options.listen = options.http_listen = options.metrics_listen = "127.0.0.1:0";
    options.authenticate = true;
    options.audit_log = log_;
    gateway_.reset();
    auto started = Gateway::start(options);
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    gateway_ = std::move(started).value();
    channel_ = rpc::channel(gateway_->grpc_address());
    files_ = v1::FileService::NewStub(channel_);
    for (int i = 0; i < 20'000 && !http("/readyz").starts_with("HTTP/1.1 200"); ++i) {
    }
  }
  void present(grpc::ClientContext& context) {
    limit(context);
    context.AddMetadata("authorization", "Bearer " + secret_);
    context.AddMetadata("x-request-id", "req-" + std::to_string(++calls_));
  }
  base::Status remove(const std::string& id) {
    grpc::ClientContext context;
    present(context);
    v1::DeleteFileRequest request;
    request.set_id(id);
    v1::DeleteFileResponse reply;
    return rpc::from_grpc(files_->DeleteFile(&context, request, &reply));
  }
  std::vector<nlohmann::json> entries() {
    std::vector<nlohmann::json> found;
    std::istringstream lines(support::content_of(log_));
    for (std::string line; std::getline(lines, line);) found.push_back(nlohmann::json::parse(line));
    return found;
  }

  base::SeededRandom random_{3};
  const std::string secret_ = auth::make_api_key(random_);
  const support::TemporaryDirectory directory_;
  const std::filesystem::path log_ = directory_ / "audit.jsonl";
  int calls_ = 0;
};

TEST_F(AuditTest, ACallThatChangesSomethingIsALineByTheTimeItIsAnswered) {
  scheduler_->files.remove = [](auto pending) { pending->answer(v1::DeleteFileResponse()); };
  ASSERT_TRUE(remove("file-1").ok());
  scheduler_->files.remove = [](auto pending) {
    pending->answer(base::failed_precondition("FILE_IN_USE", "a job needs it"));
  };
  EXPECT_EQ(remove("file-2").reason(), "FILE_IN_USE");
  const auto found = entries();
  ASSERT_EQ(found.size(), 2U);
  for (const auto& entry : found) {
    EXPECT_EQ(entry.at("tenant"), "team-a");
    EXPECT_EQ(entry.at("key"), "key-1");
    EXPECT_EQ(entry.at("method"), "FileService.DeleteFile");
    EXPECT_THAT(entry.at("time").get<std::string>(), testing::MatchesRegex("2.*T.*Z"));
    EXPECT_EQ(entry.size(), 7U) << entry;
  }
  EXPECT_EQ(found[0].at("object"), "file-1");
  EXPECT_EQ(found[0].at("request_id"), "req-1");
  EXPECT_EQ(found[0].at("result"), "OK");
  EXPECT_EQ(found[1].at("object"), "file-2");
  EXPECT_EQ(found[1].at("result"), "FILE_IN_USE");
}

TEST_F(AuditTest, WhatIsMadeIsNamedAndWhatIsOnlyReadIsNot) {
  scheduler_->files.get = [](rpc::Call&, const v1::GetFileRequest&) {
    return base::Result<v1::File>(v1::File());
  };
  scheduler_->files.upload = [](rpc::Call&, rpc::Upload<v1::UploadFileRequest>& upload) {
    for (auto part = upload.next(); part.ok() && *part; part = upload.next()) {
    }
    v1::File file;
    file.set_id("file-made");
    file.set_filename("private name");
    return base::Result<v1::File>(file);
  };
  {
    grpc::ClientContext context;
    present(context);
    v1::File file;
    ASSERT_TRUE(files_->GetFile(&context, v1::GetFileRequest(), &file).ok());
  }
  grpc::ClientContext context;
  present(context);
  v1::File file;
  const auto writer = files_->UploadFile(&context, &file);
  v1::UploadFileRequest part;
  part.mutable_header()->set_filename("private name");
  writer->Write(part);
  part.set_chunk("private bytes");
  writer->Write(part);
  writer->WritesDone();
  ASSERT_TRUE(writer->Finish().ok());
  ASSERT_EQ(entries().size(), 1U);
  EXPECT_EQ(entries()[0].at("method"), "FileService.UploadFile");
  EXPECT_EQ(entries()[0].at("object"), "file-made");
  const std::string text = support::content_of(log_);
  EXPECT_THAT(text, Not(HasSubstr("private")));
  EXPECT_THAT(text, Not(HasSubstr("dex_"))) << "no key, nor its beginning";
}

TEST_F(AuditTest, TheFileIsItsOwnersAndOnlyGrows) {
  scheduler_->files.remove = [](auto pending) { pending->answer(v1::DeleteFileResponse()); };
  ASSERT_TRUE(remove("file-1").ok());
  struct stat info {};
  ASSERT_EQ(stat(log_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  open();
  ASSERT_TRUE(remove("file-2").ok());
  ASSERT_EQ(entries().size(), 2U) << "another gateway goes on behind what is there";
  EXPECT_EQ(entries()[0].at("object"), "file-1");
}

}  // namespace
}  // namespace dex::gateway
