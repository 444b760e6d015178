#include "services/rpc/server.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <unistd.h>

#include "services/rpc/metrics_interceptor.h"
#include "tests/unit/services/rpc/file_server.h"

namespace dex::rpc {
namespace {

using ::testing::HasSubstr;

class ServerTest : public FileServer {
 protected:
  // The standard health service by hand: HealthCheckRequest{service = 1}, reply {status = 1};
  // SERVING is 1. -1: the call failed (NOT_FOUND for a name it does not know).
  int health(const std::string& service) {
    const std::string request =
        service.empty() ? "" : "\x0a" + std::string(1, static_cast<char>(service.size())) + service;
    const auto reply = raw("/grpc.health.v1.Health/Check", request);
    if (!reply) return -1;
    return reply->size() == 2 ? (*reply)[1] : 0;
  }

  std::optional<std::string> raw(const std::string& method, const std::string& bytes) {
    grpc::ClientContext context;
    limit(context);
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer reply;
    std::promise<grpc::Status> ended;
    grpc::GenericStub(channel_).UnaryCall(
        &context, method, {}, &request, &reply,
        [&](grpc::Status status) { ended.set_value(std::move(status)); });
    if (!ended.get_future().get().ok()) return std::nullopt;
    std::vector<grpc::Slice> slices;
    EXPECT_TRUE(reply.Dump(&slices).ok());
    std::string text;
    for (const auto& part : slices)
      text.append(reinterpret_cast<const char*>(part.begin()), part.size());
    return text;
  }
};

TEST_F(ServerTest, HealthKnowsEachServiceByName) {
  start();
  EXPECT_EQ(health(""), 1);
  EXPECT_EQ(health("dex.v1.FileService"), 1);
  EXPECT_EQ(health("dex.v1.Nothing"), -1);
  server_->set_serving("dex.v1.FileService", false);
  EXPECT_EQ(health("dex.v1.FileService"), 2);
  EXPECT_EQ(health(""), 1);
}

TEST_F(ServerTest, ATakenPortIsRefused) {
  start();
  Server::Options options;
  options.address = server_->address();
  const auto second = Server::start(options, *room_, metrics_);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().message(), HasSubstr(server_->address()));
}

TEST_F(ServerTest, ServesOnAUnixSocket) {
  start();
  files_->get = [](Call&, const v1::GetFileRequest&) -> base::Result<v1::File> {
    return v1::File();
  };
  Server::Options options;
  options.address = "unix:/tmp/dex-rpc-test-" + std::to_string(getpid()) + ".sock";
  Files more(*room_);
  more.get = files_->get;
  options.services = {{"dex.v1.FileService", &more}};
  auto server = Server::start(options, *room_, metrics_);
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  EXPECT_EQ(server.value()->address(), options.address);
  stub_ = v1::FileService::NewStub(channel(options.address));
  EXPECT_TRUE(get().ok());
}

TEST_F(ServerTest, LongMetadataIsRefused) {
  start({}, /*is_public=*/true);
  files_->get = [](Call&, const v1::GetFileRequest&) -> base::Result<v1::File> {
    return v1::File();
  };
  grpc::ClientContext context;
  limit(context);
  context.AddMetadata("x-large", std::string(20 << 10, 'x'));
  EXPECT_EQ(get(context).code(), base::Code::kResourceExhausted);
  // gRPC 1.51 may close that client's connection with it; others don't notice.
  const auto other = v1::FileService::NewStub(channel(server_->address()));
  grpc::ClientContext next;
  limit(next);
  v1::File reply;
  EXPECT_EQ(from_grpc(other->GetFile(&next, v1::GetFileRequest(), &reply)).to_string(), "OK");
}

TEST_F(ServerTest, CallsAreTimedByMethodAndCode) {
  start();
  files_->get = [](Call&, const v1::GetFileRequest&) -> base::Result<v1::File> {
    return base::not_found("RESOURCE_NOT_FOUND", "no");
  };
  EXPECT_FALSE(get().ok());
  server_->stop();  // the last call's status has been sent
  EXPECT_THAT(metrics_.text(), HasSubstr("dex_rpc_duration_seconds_count{code=\"NOT_FOUND\","
                                         "method=\"dex.v1.FileService/GetFile\"} 1"));
}

TEST(MethodLabelTest, UnknownMethodsShareOneLabel) {
  v1::GetFileRequest::descriptor();
  EXPECT_EQ(method_label("/dex.v1.FileService/GetFile"), "dex.v1.FileService/GetFile");
  EXPECT_EQ(method_label("/dex.v1.FileService/Made_Up"), "other");
  EXPECT_EQ(method_label(""), "other");
}

}  // namespace
}  // namespace dex::rpc
