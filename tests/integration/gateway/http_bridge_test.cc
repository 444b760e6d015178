#include <unistd.h>

#include <fstream>
#include <future>
#include <nlohmann/json.hpp>

#include "tests/integration/gateway/gateway_fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/http_reply.h"
#include "tests/support/sanitizer.h"

// RPCs through the HTTP door of a whole gateway.
namespace dex::gateway {
namespace {

using nlohmann::json;
using support::RawConnection;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class HttpBridgeTest : public GatewayTest {
 protected:
  int port() { return support::port_of(gateway_->http_address()); }
  support::HttpReply rpc(const std::string& path, const std::string& body,
                         const std::string& lines = "") {
    return support::ask(port(), "POST", "/rpc/dex.v1." + path, body,
                        "Content-Type: application/json\r\n" + lines);
  }
};

json error_of(const std::string& body) {
  return json::parse(body).at("error");
}

TEST_F(HttpBridgeTest, AUnaryCallCarriesItsHeadersThereAndBack) {
  scheduler_->files.get = [](rpc::Call& call, const v1::GetFileRequest& in) {
    v1::File file;
    file.set_id(in.id());
    file.set_bytes(7);
    file.set_filename(call.header("traceparent").value_or("-"));
    file.set_sha256(call.request_id());
    call.add_trailer("dex-replayed", "true");
    return base::Result<v1::File>(file);
  };
  const auto reply = rpc("FileService/GetFile", R"({"id":"file-1"})",
                         "X-Request-Id: mine\r\nTraceparent: 00-ab-cd-01\r\n");
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.headers.at("x-request-id"), "mine");
  EXPECT_EQ(reply.headers.at("dex-replayed"), "true");
  const auto file = json::parse(reply.body);
  EXPECT_EQ(file.at("id"), "file-1");
  EXPECT_EQ(file.at("bytes"), "7");
  EXPECT_EQ(file.at("filename"), "00-ab-cd-01");
  EXPECT_EQ(file.at("sha256"), "mine");
}

TEST_F(HttpBridgeTest, ErrorsComeThroughWithTheirFacts) {
  scheduler_->files.get = [](rpc::Call&, const v1::GetFileRequest&) {
    return base::Result<v1::File>(base::not_found("RESOURCE_NOT_FOUND", "there is no file 'x'"));
  };
  const auto missing = rpc("FileService/GetFile", R"({"id":"x"})");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(error_of(missing.body).at("code"), "resource_not_found");
  EXPECT_EQ(error_of(missing.body).at("message"), "there is no file 'x'");
  EXPECT_EQ(missing.headers.at("x-should-retry"), "false");
  const auto unknown = rpc("FileService/GetFile", R"({"idd":"x"})");
  EXPECT_EQ(unknown.status, 400);
  EXPECT_EQ(error_of(unknown.body).at("code"), "unknown_field");
  EXPECT_EQ(error_of(unknown.body).at("param"), "idd");
  EXPECT_EQ(rpc("FileService/Nothing", "{}").status, 404);
  EXPECT_EQ(support::ask(port(), "GET", "/rpc/dex.v1.FileService/GetFile").status, 405);
  // A header that gRPC could not carry is left behind, not fatal.
  EXPECT_EQ(rpc("FileService/GetFile", R"({"id":"x"})", "Authorization: \xff\xfe\r\n").status, 404);
}

TEST_F(HttpBridgeTest, AServerStreamIsEventsWithTheErrorLast) {
  scheduler_->files.download = [](rpc::Files::Chunks chunks) {
    for (const char* text : {"a", "b"}) {
      v1::DownloadFileResponse piece;
      piece.set_chunk(text);
      chunks->push(piece);
    }
    chunks->finish(base::unavailable("STORE_UNAVAILABLE", "gone"));
  };
  const auto reply = rpc("FileService/DownloadFile", R"({"id":"file-1"})");
  EXPECT_EQ(reply.status, 200);
  EXPECT_THAT(reply.headers.at("content-type"), StartsWith("text/event-stream"));
  EXPECT_TRUE(reply.whole);
  EXPECT_THAT(reply.body, StartsWith("data: {\"chunk\":\"YQ==\"}\n\ndata: {\"chunk\":\"Yg==\"}\n\n"
                                     "data: {\"error\":"));
  EXPECT_THAT(reply.body, HasSubstr("store_unavailable"));
  EXPECT_THAT(reply.body, EndsWith("\n\n"));
}

TEST_F(HttpBridgeTest, AStreamThatFailsBeforeItBeginsIsAPlainError) {
  scheduler_->files.download = [](rpc::Files::Chunks chunks) {
    chunks->finish(base::not_found("RESOURCE_NOT_FOUND", "no such file"));
  };
  EXPECT_EQ(rpc("FileService/DownloadFile", R"({"id":"x"})").status, 404);
}

TEST_F(HttpBridgeTest, AClientThatLeavesEndsTheCallBehind) {
  std::promise<rpc::Files::Chunks> begun;
  scheduler_->files.download = [&](rpc::Files::Chunks chunks) {
    chunks->push(v1::DownloadFileResponse());
    begun.set_value(std::move(chunks));
  };
  rpc::Files::Chunks chunks;
  {
    RawConnection connection(port());
    connection.send(
        support::request_text("POST", "/rpc/dex.v1.FileService/DownloadFile", R"({"id":"x"})"));
    chunks = begun.get_future().get();
    connection.read_until("data: ");
    EXPECT_FALSE(chunks->call().stop().stop_requested());
  }
  EXPECT_TRUE(support::eventually([&] { return chunks->call().stop().stop_requested(); }));
}

// A form with a file of so many MiB, sent piece by piece.
void send_form(RawConnection& connection, const std::string& header, size_t mebibytes) {
  const std::string before =
      "--B\r\nContent-Disposition: form-data; name=\"header\"\r\n\r\n" + header +
      "\r\n--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n";
  const std::string after = "\r\n--B--\r\n";
  const size_t length = before.size() + (mebibytes << 20) + after.size();
  connection.send(
      "POST /rpc/dex.v1.FileService/UploadFile HTTP/1.1\r\nHost: localhost\r\n"
      "Content-Type: multipart/form-data; boundary=B\r\nIdempotency-Key: key-1\r\n"
      "Content-Length: " +
      std::to_string(length) + "\r\n\r\n" + before);
  const std::string piece(1 << 20, 'x');
  for (size_t i = 0; i < mebibytes; ++i) {
    if (!connection.send(piece)) return;
  }
  connection.send(after);
}

size_t resident_bytes() {
  size_t all = 0;
  size_t resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST_F(HttpBridgeTest, AnUploadPassesThroughWithoutBeingKept) {
  size_t most = 0;
  scheduler_->files.upload = [&](rpc::Call&, rpc::Upload<v1::UploadFileRequest>& upload) {
    v1::File file;
    int64_t bytes = 0;
    while (true) {
      auto message = upload.next();
      if (!message.ok()) return base::Result<v1::File>(message.status());
      if (!*message) break;
      const v1::UploadFileRequest& part = **message;
      if (part.has_header()) {
        file.set_filename(part.header().filename());
        file.set_id(part.header().request_id());
      }
      bytes += static_cast<int64_t>(part.chunk().size());
      most = std::max(most, resident_bytes());
    }
    file.set_bytes(bytes);
    return base::Result<v1::File>(file);
  };
  const size_t before = resident_bytes();
  RawConnection connection(port());
  send_form(connection, R"({"filename":"a.jsonl","purpose":"FILE_PURPOSE_FINE_TUNE"})", 64);
  const auto reply = support::read_reply(connection);
  ASSERT_EQ(reply.status, 200) << reply.body;
  const auto file = json::parse(reply.body);
  EXPECT_EQ(file.at("bytes"), std::to_string(64 << 20));
  EXPECT_EQ(file.at("filename"), "a.jsonl");
  EXPECT_EQ(file.at("id"), "key-1");
  if (!support::kSanitized) {
    EXPECT_LT(most - std::min(most, before), 40U << 20);
  }
}

TEST_F(HttpBridgeTest, AnUploadThatTheSchedulerRefusesIsAnsweredBeforeItsEnd) {
  scheduler_->files.upload = [](rpc::Call&, rpc::Upload<v1::UploadFileRequest>&) {
    return base::Result<v1::File>(
        base::Status(base::Code::kResourceExhausted, "QUOTA_EXCEEDED", "no more files"));
  };
  RawConnection connection(port());
  send_form(connection, R"({"filename":"a"})", 2);
  const auto reply = support::read_reply(connection);
  EXPECT_EQ(reply.status, 429);
  EXPECT_EQ(error_of(reply.body).at("code"), "insufficient_quota");
}

TEST_F(HttpBridgeTest, FormsThatAreNoUploadAreRefused) {
  const auto post = [&](const std::string& body) {
    return support::ask(port(), "POST", "/rpc/dex.v1.FileService/UploadFile", body,
                        "Content-Type: multipart/form-data; boundary=B\r\n");
  };
  EXPECT_EQ(post("nonsense").status, 400);
  EXPECT_EQ(post("--B\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--B--").status,
            400);
  const auto unknown = post(
      "--B\r\nContent-Disposition: form-data; name=\"header\"\r\n\r\n{\"filname\":\"x\"}\r\n--B--");
  EXPECT_EQ(unknown.status, 400);
  EXPECT_EQ(error_of(unknown.body).at("code"), "unknown_field");
  EXPECT_EQ(rpc("FileService/UploadFile", "{}").status, 400);
}

TEST_F(HttpBridgeTest, ADrainEndsStreamsWithTheirReason) {
  std::promise<rpc::Files::Chunks> begun;
  scheduler_->files.download = [&](rpc::Files::Chunks chunks) {
    chunks->push(v1::DownloadFileResponse());
    begun.set_value(std::move(chunks));
  };
  RawConnection connection(port());
  connection.send(
      support::request_text("POST", "/rpc/dex.v1.FileService/DownloadFile", R"({"id":"x"})"));
  const auto chunks = begun.get_future().get();
  gateway_->stop(std::chrono::seconds(10));
  const auto reply = support::read_reply(connection);
  EXPECT_TRUE(reply.whole);
  EXPECT_THAT(reply.body, HasSubstr("server_draining"));
  EXPECT_EQ(rpc("FileService/GetFile", "{}").status, 503);
}

TEST_F(HttpBridgeTest, ADoorWithoutDashboardSaysWhatItIs) {
  const auto reply = support::ask(port(), "GET", "/");
  EXPECT_EQ(reply.status, 200);
  EXPECT_THAT(reply.body, HasSubstr("/rpc/dex.v1"));
  EXPECT_EQ(std::count(reply.body.begin(), reply.body.end(), '\n'), 2);
}

}  // namespace
}  // namespace dex::gateway
