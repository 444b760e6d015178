#include <grpcpp/generic/generic_stub.h>

#include <future>
#include <thread>

#include "tests/integration/gateway/gateway_fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/http_reply.h"
#include "tests/support/log_lines.h"

// Control-plane calls through a gateway: what the scheduler gets is what the client sent, and back.
namespace dex::gateway {
namespace {

using rpc::Event;
using ::testing::HasSubstr;

v1::DownloadFileResponse chunk(const std::string& bytes) {
  v1::DownloadFileResponse made;
  made.set_chunk(bytes);
  return made;
}

class ForwardTest : public GatewayTest {
 protected:
  base::Status get(grpc::ClientContext& context, v1::File* reply = nullptr) {
    v1::File ignored;
    return rpc::from_grpc(
        files_->GetFile(&context, v1::GetFileRequest(), reply ? reply : &ignored));
  }
  base::Status get() {
    grpc::ClientContext context;
    limit(context);
    return get(context);
  }
  // A unary call of any method with an empty message.
  grpc::Status call(const std::string& path) {
    grpc::ClientContext context;
    limit(context);
    const grpc::ByteBuffer request(nullptr, 0);
    grpc::ByteBuffer reply;
    std::promise<grpc::Status> ended;
    grpc::GenericStub(channel_).UnaryCall(
        &context, path, {}, &request, &reply,
        [&](grpc::Status status) { ended.set_value(std::move(status)); });
    return ended.get_future().get();
  }
};

TEST_F(ForwardTest, MetadataTravelsBothWays) {
  scheduler_->files.get = [](rpc::Call& call, const v1::GetFileRequest&) {
    v1::File file;
    file.set_id(call.header("traceparent").value_or("-") + " " + call.request_id());
    file.set_filename(call.header("dex-tenant").value_or("-") + " " +
                      call.header("authorization").value_or("no key"));
    call.add_trailer("dex-replayed", "true");
    return base::Result<v1::File>(file);
  };
  grpc::ClientContext context;
  limit(context);
  context.AddMetadata("traceparent", "00-abc");
  context.AddMetadata("x-request-id", "my-id");
  context.AddMetadata("dex-tenant", "somebody-else");  // not the client's to say
  context.AddMetadata("authorization", "Bearer secret");
  v1::File reply;
  ASSERT_TRUE(get(context, &reply).ok());
  EXPECT_EQ(reply.id(), "00-abc my-id");
  EXPECT_EQ(reply.filename(), "default no key");
  EXPECT_EQ(context.GetServerTrailingMetadata().find("dex-replayed")->second, "true");
  EXPECT_EQ(context.GetServerInitialMetadata().count("x-request-id"), 1);
  EXPECT_EQ(context.GetServerInitialMetadata().find("x-request-id")->second, "my-id");
}

// Before the gateway, which logs from the first moment.
struct Logged {
  support::LogLines log_;
};
class TracedTest : protected Logged, public ForwardTest {
 protected:
  // Each server logs a call's end just before its status goes, so the last line may still come.
  std::vector<std::string> lines_with(const std::string& text, size_t count) {
    (void)support::eventually([&] { return log_.with(text).size() >= count; },
                              support::kPatience_ms);
    return log_.with(text);
  }
};

// Gateway and scheduler are found by the trace and by the id that the client was told.
TEST_F(TracedTest, ATracedCallIsLoggedWithItsIdsWhereverItGoes) {
  const std::string parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  scheduler_->files.get = [](rpc::Call&, const v1::GetFileRequest&) {
    return base::Result<v1::File>(v1::File());
  };
  grpc::ClientContext context;
  limit(context);
  context.AddMetadata("traceparent", parent);
  ASSERT_TRUE(get(context).ok());
  const std::string id(
      context.GetServerInitialMetadata().find(rpc::kRequestIdHeader)->second.data(),
      context.GetServerInitialMetadata().find(rpc::kRequestIdHeader)->second.size());
  const auto lines = lines_with(parent, 2);
  ASSERT_EQ(lines.size(), 2u) << "one of the gateway, one of the scheduler";
  for (const auto& line : lines) {
    EXPECT_THAT(line, HasSubstr("dex.v1.FileService/GetFile: OK in "));
    EXPECT_THAT(line, HasSubstr("request_id " + id + ","));
  }
}

TEST_F(TracedTest, TheHttpDoorLogsToo) {
  const std::string parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
  scheduler_->files.get = [](rpc::Call&, const v1::GetFileRequest&) {
    return base::Result<v1::File>(v1::File());
  };
  const auto reply = support::ask(
      support::port_of(gateway_->http_address()), "POST", "/rpc/dex.v1.FileService/GetFile",
      R"({"id":"file-1"})",
      "Content-Type: application/json\r\nX-Request-Id: mine\r\nTraceparent: " + parent + "\r\n");
  EXPECT_EQ(reply.status, 200) << reply.body;
  // The door, the gRPC one that it goes on through, and the scheduler.
  const auto lines = lines_with(parent, 3);
  ASSERT_EQ(lines.size(), 3u);
  for (const auto& line : lines) EXPECT_THAT(line, HasSubstr("request_id mine,"));
  EXPECT_EQ(log_.with("HTTP ").size(), 1u);
}

// Nothing is logged of calls that nobody traces, nor under what is no traceparent.
TEST_F(TracedTest, OtherCallsAreNotLogged) {
  scheduler_->files.get = [](rpc::Call&, const v1::GetFileRequest&) {
    return base::Result<v1::File>(v1::File());
  };
  EXPECT_TRUE(get().ok());
  grpc::ClientContext context;
  limit(context);
  context.AddMetadata("traceparent", "00-abc");
  EXPECT_TRUE(get(context).ok());
  EXPECT_TRUE(log_.with("FileService/GetFile").empty());
}

TEST_F(ForwardTest, ErrorDetailsAreTheSchedulersBytes) {
  scheduler_->files.get = [](rpc::Call&, const v1::GetFileRequest&) {
    return base::Result<v1::File>(
        base::invalid_field("a.b", "must be positive").with_violation("c", "is unknown"));
  };
  const auto ask = [](v1::FileService::Stub& stub) {
    grpc::ClientContext context;
    limit(context);
    context.AddMetadata("x-request-id", "same");
    v1::File reply;
    return stub.GetFile(&context, v1::GetFileRequest(), &reply);
  };
  const auto direct = ask(*v1::FileService::NewStub(rpc::channel(scheduler_->address())));
  const auto through = ask(*files_);
  EXPECT_EQ(through.error_code(), direct.error_code());
  EXPECT_EQ(through.error_message(), direct.error_message());
  EXPECT_EQ(through.error_details(), direct.error_details());
  EXPECT_EQ(rpc::from_grpc(through).violations().size(), 2);
}

TEST_F(ForwardTest, UploadsPassWhole) {
  scheduler_->files.upload = [](rpc::Call&, auto& reader) -> base::Result<v1::File> {
    v1::File file;
    while (true) {
      DEX_ASSIGN_OR_RETURN(const auto message, reader.next());
      if (!message) return file;
      file.set_bytes(file.bytes() + static_cast<int64_t>(message->chunk().size()));
      file.set_filename(file.filename() + message->chunk()[0]);
    }
  };
  grpc::ClientContext context;
  limit(context);
  v1::File reply;
  const auto writer = files_->UploadFile(&context, &reply);
  std::string order;
  for (int i = 0; i < 40; ++i) {
    v1::UploadFileRequest message;
    order += static_cast<char>('A' + i);
    message.set_chunk(std::string(1 << 20, static_cast<char>('A' + i)));
    ASSERT_TRUE(writer->Write(message));
  }
  writer->WritesDone();
  const auto status = writer->Finish();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(reply.bytes(), 40 << 20);
  EXPECT_EQ(reply.filename(), order);
}

TEST_F(ForwardTest, ARefusedUploadEndsAtOnce) {
  scheduler_->files.upload = [](rpc::Call&, auto& reader) -> base::Result<v1::File> {
    EXPECT_TRUE(reader.next().ok());
    return base::invalid_field("filename", "must not be a path");
  };
  grpc::ClientContext context;
  limit(context);
  v1::File reply;
  const auto writer = files_->UploadFile(&context, &reply);
  v1::UploadFileRequest message;
  message.set_chunk(std::string(1 << 20, 'x'));
  while (writer->Write(message)) {
  }
  EXPECT_EQ(rpc::from_grpc(writer->Finish()).reason(), "INVALID_FIELD");
}

TEST_F(ForwardTest, DownloadsKeepTheirOrder) {
  scheduler_->files.download = [](rpc::Files::Chunks chunks) {
    for (int i = 0; i < 2000; ++i) chunks->write(chunk(std::to_string(i)));
    chunks->finish({});
  };
  grpc::ClientContext context;
  limit(context);
  const auto reader = files_->DownloadFile(&context, v1::DownloadFileRequest());
  v1::DownloadFileResponse message;
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(reader->Read(&message));
    ASSERT_EQ(message.chunk(), std::to_string(i));
  }
  EXPECT_FALSE(reader->Read(&message));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(ForwardTest, HeadersOfAWatchComeBeforeItsFirstEvent) {
  rpc::Files::Chunks kept;
  Event opened;
  scheduler_->files.download = [&](rpc::Files::Chunks chunks) {
    kept = std::move(chunks);
    opened.set();
  };
  grpc::ClientContext context;
  limit(context);
  context.AddMetadata("x-request-id", "watch");
  const auto reader = files_->DownloadFile(&context, v1::DownloadFileRequest());
  v1::DownloadFileResponse message;
  std::jthread later([&] {
    ASSERT_TRUE(opened.wait());
    kept->push(chunk("event"));
    kept->finish({});
  });
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_EQ(message.chunk(), "event");
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(ForwardTest, TheRemainingDeadlineIsHandedOn) {
  std::chrono::milliseconds left{0};
  scheduler_->files.get = [&](rpc::Call& call, const v1::GetFileRequest&) {
    left = call.time_left();
    return base::Result<v1::File>(v1::File());
  };
  grpc::ClientContext context;
  rpc::set_timeout(context, std::chrono::seconds(15));
  ASSERT_TRUE(get(context).ok());
  EXPECT_GT(left, std::chrono::seconds(1));
  EXPECT_LE(left, std::chrono::seconds(
                      16));  // on the wire gRPC rounds a time-out up by up to a few percent
}

TEST_F(ForwardTest, ADeadlineThatPassesStopsTheScheduler) {
  Event stopped;
  scheduler_->files.get = [&](rpc::Call& call, const v1::GetFileRequest&) {
    if (rpc::wait_for_stop(call.stop())) stopped.set();
    return base::Result<v1::File>(rpc::deadline_passed());
  };
  grpc::ClientContext context;
  rpc::set_timeout(context, std::chrono::seconds(2));  // by then it has reached the scheduler
  EXPECT_EQ(get(context).code(), base::Code::kDeadlineExceeded);
  EXPECT_TRUE(stopped.wait());
}

TEST_F(ForwardTest, AClientThatLeavesCancelsTheCallBehind) {
  Event begun, stopped;
  scheduler_->files.download = [&](rpc::Files::Chunks chunks) {
    begun.set();
    if (rpc::wait_for_stop(chunks->call().stop())) stopped.set();
  };
  grpc::ClientContext context;
  limit(context);
  const auto reader = files_->DownloadFile(&context, v1::DownloadFileRequest());
  ASSERT_TRUE(begun.wait());
  context.TryCancel();
  EXPECT_TRUE(stopped.wait());
  EXPECT_FALSE(reader->Finish().ok());
}

TEST_F(ForwardTest, ABrokenUploadIsNotHandedOnAsAWholeOne) {
  Event first, over;
  base::Code code = base::Code::kOk;
  scheduler_->files.upload = [&](rpc::Call&, auto& reader) -> base::Result<v1::File> {
    EXPECT_TRUE(reader.next().ok());
    first.set();
    code = reader.next().status().code();
    over.set();
    return v1::File();
  };
  grpc::ClientContext context;
  limit(context);
  v1::File reply;
  const auto writer = files_->UploadFile(&context, &reply);
  v1::UploadFileRequest message;
  message.set_chunk("half");
  ASSERT_TRUE(writer->Write(message));
  ASSERT_TRUE(first.wait());
  context.TryCancel();
  ASSERT_TRUE(over.wait());
  EXPECT_EQ(code, base::Code::kCancelled);
  EXPECT_FALSE(writer->Finish().ok());
}

TEST_F(ForwardTest, MessagesAboveFourMebibytesAreRefused) {
  bool asked = false;
  scheduler_->files.get = [&](rpc::Call&, const v1::GetFileRequest&) {
    asked = true;
    return base::Result<v1::File>(v1::File());
  };
  grpc::ClientContext context;
  limit(context);
  v1::GetFileRequest request;
  request.set_id(std::string(5 << 20, 'x'));
  v1::File reply;
  const auto status = rpc::from_grpc(files_->GetFile(&context, request, &reply));
  EXPECT_THAT(status.code(),
              ::testing::AnyOf(base::Code::kResourceExhausted, base::Code::kCancelled));
  EXPECT_FALSE(asked);
  EXPECT_TRUE(get().ok());
  // Just below the limit passes.
  grpc::ClientContext fits;
  limit(fits);
  request.set_id(std::string((4 << 20) - 64, 'x'));
  EXPECT_TRUE(files_->GetFile(&fits, request, &reply).ok());
}

TEST_F(ForwardTest, FieldsThatTheGatewayDoesNotKnowReachTheScheduler) {
  scheduler_->files.get = [](rpc::Call&, const v1::GetFileRequest&) {
    return base::Result<v1::File>(v1::File());
  };
  v1::GetFileRequest request;
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(77, 1);
  grpc::ClientContext context;
  limit(context);
  v1::File reply;
  const auto status = rpc::from_grpc(files_->GetFile(&context, request, &reply));
  EXPECT_EQ(status.reason(), "UNKNOWN_FIELD");
  EXPECT_THAT(status.message(), HasSubstr("#77"));
}

TEST_F(ForwardTest, UnknownServicesAreUnimplemented) {
  for (const char* path : {"/no.such.Service/Method", "/dex.internal.v1.RouteService/WatchRoutes",
                           "/dex.v1.InferenceService/FromTheFuture", "/nonsense"}) {
    const auto status = rpc::from_grpc(call(path));
    EXPECT_EQ(status.code(), base::Code::kUnimplemented) << path;
    EXPECT_EQ(status.reason(), "NOT_SUPPORTED") << path;
  }
}

TEST_F(ForwardTest, MethodsThatOnlyANewerSchedulerKnowsAreForwarded) {
  // This scheduler does not know it either; gRPC's own answer comes back, with a reason added.
  const auto status = call("/dex.v1.FileService/FromTheFuture");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_TRUE(rpc::has_error_info(status));
  EXPECT_THAT(support::http_get(support::port_of(gateway_->metrics_address()), "/metrics"),
              HasSubstr("dex_gateway_requests_total{code=\"UNIMPLEMENTED\",method=\"other\"} 1"));
}

TEST_F(ForwardTest, ASchedulerThatIsAwayIsSaidSo) {
  scheduler_->kill();
  const auto status = get();
  EXPECT_EQ(status.code(), base::Code::kUnavailable);
  EXPECT_EQ(status.reason(), "STORE_UNAVAILABLE");
  EXPECT_TRUE(rpc::retryable(status));
}

TEST_F(ForwardTest, StopEndsWatchesAndLetsUnaryCallsFinish) {
  Event running, go;
  scheduler_->files.get = [&](rpc::Call&, const v1::GetFileRequest&) {
    running.set();
    EXPECT_TRUE(go.wait());
    return base::Result<v1::File>(v1::File());
  };
  std::vector<rpc::Files::Chunks> kept;
  std::mutex mutex;
  Event all;
  scheduler_->files.download = [&](rpc::Files::Chunks chunks) {
    const std::lock_guard lock(mutex);
    kept.push_back(std::move(chunks));
    if (kept.size() == 20) all.set();
  };
  struct Watch {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::DownloadFileResponse>> reader;
  };
  std::vector<std::unique_ptr<Watch>> watches;
  for (int i = 0; i < 20; ++i) {
    auto& watch = *watches.emplace_back(std::make_unique<Watch>());
    limit(watch.context);
    watch.reader = files_->DownloadFile(&watch.context, v1::DownloadFileRequest());
  }
  auto unary = std::async(std::launch::async, [&] { return get(); });
  ASSERT_TRUE(all.wait());
  ASSERT_TRUE(running.wait());
  std::jthread stopper([&] { gateway_->stop(std::chrono::seconds(10)); });
  for (const auto& watch : watches) {
    v1::DownloadFileResponse message;
    EXPECT_FALSE(watch->reader->Read(&message));
    EXPECT_EQ(rpc::from_grpc(watch->reader->Finish()).reason(), "SERVER_DRAINING");
  }
  go.set();
  EXPECT_TRUE(unary.get().ok());
}

}  // namespace
}  // namespace dex::gateway
