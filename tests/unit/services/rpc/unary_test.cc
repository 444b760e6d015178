#include "services/rpc/unary.h"

#include <gmock/gmock.h>

#include <latch>
#include <memory>
#include <thread>

#include "tests/unit/services/rpc/file_server.h"

namespace dex::rpc {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class UnaryTest : public FileServer {};

v1::File file(const std::string& id) {
  v1::File made;
  made.set_id(id);
  return made;
}

TEST_F(UnaryTest, AnswersWithTheRequestIdThatTheClientSent) {
  start();
  files_->get = [](Call& call, const v1::GetFileRequest&) -> base::Result<v1::File> {
    call.add_trailer("dex-replayed", "true");
    return file(call.principal().tenant() + "/" + call.request_id());
  };
  grpc::ClientContext context;
  limit(context);
  context.AddMetadata("x-request-id", "my-id");
  v1::File reply;
  ASSERT_TRUE(get(context, &reply).ok());
  EXPECT_EQ(reply.id(), "default/my-id");
  EXPECT_EQ(context.GetServerInitialMetadata().find("x-request-id")->second, "my-id");
  EXPECT_EQ(context.GetServerTrailingMetadata().find("dex-replayed")->second, "true");
}

TEST_F(UnaryTest, AnUnusableRequestIdIsReplaced) {
  start();
  files_->get = [](Call& call, const v1::GetFileRequest&) -> base::Result<v1::File> {
    return file(call.request_id());
  };
  grpc::ClientContext context;
  limit(context);
  context.AddMetadata("x-request-id", std::string(65, 'x'));
  v1::File reply;
  ASSERT_TRUE(get(context, &reply).ok());
  EXPECT_EQ(reply.id().substr(0, 4), "req-");
}

TEST_F(UnaryTest, ErrorsCarryReasonAndRequestId) {
  start();
  files_->get = [](Call&, const v1::GetFileRequest&) -> base::Result<v1::File> {
    return base::not_found("RESOURCE_NOT_FOUND", "there is no file 'file-1'");
  };
  grpc::ClientContext context;
  limit(context);
  const auto status = get(context);
  EXPECT_EQ(status.code(), base::Code::kNotFound);
  EXPECT_EQ(status.reason(), "RESOURCE_NOT_FOUND");
  EXPECT_EQ(context.GetServerInitialMetadata().count("x-request-id"), 1);
}

TEST_F(UnaryTest, FieldsThatTheServerDoesNotKnowAreRefused) {
  start();
  bool asked = false;
  files_->get = [&](Call&, const v1::GetFileRequest&) -> base::Result<v1::File> {
    asked = true;
    return file("");
  };
  v1::GetFileRequest request;
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(99, 1);
  grpc::ClientContext context;
  limit(context);
  v1::File reply;
  const auto status = from_grpc(stub_->GetFile(&context, request, &reply));
  EXPECT_EQ(status.reason(), "UNKNOWN_FIELD");
  EXPECT_FALSE(asked);
}

TEST_F(UnaryTest, AClientThatLeavesStopsTheHandler) {
  start();
  Event running, done;
  bool stopped = false;
  files_->get = [&](Call& call, const v1::GetFileRequest&) -> base::Result<v1::File> {
    running.set();
    stopped = wait_for_stop(call.stop());
    done.set();
    return file("");
  };
  grpc::ClientContext context;
  limit(context);
  std::jthread client([&] { EXPECT_EQ(get(context).code(), base::Code::kCancelled); });
  ASSERT_TRUE(running.wait());
  context.TryCancel();
  ASSERT_TRUE(done.wait());
  EXPECT_TRUE(stopped);
}

TEST_F(UnaryTest, TheCapCountsWhenTheClientAllowsMore) {
  start();
  files_->cap = milliseconds(50);
  files_->get = [](Call& call, const v1::GetFileRequest&) -> base::Result<v1::File> {
    EXPECT_LE(call.time_left(), milliseconds(50));
    EXPECT_TRUE(wait_for_stop(call.stop()));
    return deadline_passed();
  };
  EXPECT_EQ(get().reason(), "DEADLINE");
}

TEST_F(UnaryTest, FullThreadsAndQueueRefuse) {
  Room::Options options;
  options.unary = {1, 1, "one"};
  start(options);
  Event running, go;
  std::atomic<int> calls{0};
  files_->get = [&](Call&, const v1::GetFileRequest&) -> base::Result<v1::File> {
    if (calls++ == 0) {
      running.set();
      EXPECT_TRUE(go.wait());
    }
    return file("");
  };
  std::jthread first([&] { EXPECT_TRUE(get().ok()); });
  ASSERT_TRUE(running.wait());
  // One of two more finds the queue's only place, the other none.
  auto second = std::async(std::launch::async, [&] { return get(); });
  auto third = std::async(std::launch::async, [&] { return get(); });
  const auto ready = [](auto& f) {
    return f.wait_for(milliseconds(1)) == std::future_status::ready;
  };
  while (!ready(second) && !ready(third)) {
  }
  auto& refused = ready(second) ? second : third;
  auto& served = &refused == &second ? third : second;
  EXPECT_EQ(refused.get().reason(), "RATE_LIMITED");
  go.set();
  EXPECT_TRUE(served.get().ok());
}

TEST_F(UnaryTest, DrainLetsARunningHandlerFinishAndRefusesNewCalls) {
  start();
  Event running, go;
  files_->get = [&](Call&, const v1::GetFileRequest&) -> base::Result<v1::File> {
    running.set();
    EXPECT_TRUE(go.wait());
    return file("whole");
  };
  v1::File reply;
  std::jthread client([&] { EXPECT_TRUE(get(&reply).ok()); });
  ASSERT_TRUE(running.wait());
  room_->drain();
  EXPECT_EQ(get().reason(), "SERVER_DRAINING");
  go.set();
  client.join();
  EXPECT_EQ(reply.id(), "whole");
}

class AsyncTest : public FileServer {
 protected:
  base::Status remove(milliseconds timeout = std::chrono::seconds(20)) {
    grpc::ClientContext context;
    set_timeout(context, timeout);
    v1::DeleteFileResponse reply;
    return from_grpc(stub_->DeleteFile(&context, v1::DeleteFileRequest(), &reply));
  }
};

TEST_F(AsyncTest, AnswersFromAnyThreadLater) {
  start();
  std::jthread other;
  // The answer waits until `other` is assigned: it ends the call, and with it this test.
  const auto assigned = std::make_shared<std::latch>(1);
  files_->remove = [&other, assigned](auto pending) {
    other = std::jthread([pending, assigned] {
      assigned->wait();
      v1::DeleteFileResponse reply;
      reply.set_id("x");
      pending->answer(reply);
      pending->answer(base::internal("too late, dropped"));
    });
    assigned->count_down();
  };
  EXPECT_TRUE(remove().ok());
}

TEST_F(AsyncTest, ADroppedAnswerEndsTheCall) {
  start();
  files_->remove = [](auto pending) { pending.reset(); };
  EXPECT_EQ(remove().code(), base::Code::kInternal);
}

TEST_F(AsyncTest, TheCapEndsAWaitThatNobodyServes) {
  start();
  files_->cap = milliseconds(50);
  std::shared_ptr<Pending<v1::DeleteFileResponse>> kept;
  files_->remove = [&](auto pending) { kept = pending; };
  EXPECT_EQ(remove().reason(), "DEADLINE");
  EXPECT_FALSE(kept->alive());
  kept->answer(v1::DeleteFileResponse());  // nobody hears it
}

TEST_F(AsyncTest, DrainEndsWaits) {
  start();
  Event waiting;
  std::shared_ptr<Pending<v1::DeleteFileResponse>> kept;
  files_->remove = [&](auto pending) {
    kept = pending;
    waiting.set();
  };
  auto call = std::async(std::launch::async, [&] { return remove(); });
  ASSERT_TRUE(waiting.wait());
  room_->drain();
  EXPECT_EQ(call.get().reason(), "SERVER_DRAINING");
}

TEST_F(AsyncTest, ThousandWaitsNeedNoThreads) {
  Room::Options options;
  options.unary = {1, 2000, "one"};
  start(options);
  std::mutex mutex;
  std::vector<std::shared_ptr<Pending<v1::DeleteFileResponse>>> all;
  Event full;
  files_->remove = [&](auto pending) {
    const std::lock_guard lock(mutex);
    all.push_back(pending);
    if (all.size() == 1000) full.set();
  };
  std::atomic<int> answered{0};
  Event done;
  struct One {
    grpc::ClientContext context;
    v1::DeleteFileRequest request;
    v1::DeleteFileResponse reply;
  };
  std::vector<std::unique_ptr<One>> calls;
  for (int i = 0; i < 1000; ++i) {
    auto& one = *calls.emplace_back(std::make_unique<One>());
    limit(one.context);
    stub_->async()->DeleteFile(&one.context, &one.request, &one.reply, [&](grpc::Status status) {
      EXPECT_TRUE(status.ok()) << status.error_message();
      if (++answered == 1000) done.set();
    });
  }
  ASSERT_TRUE(full.wait());
  for (const auto& pending : all) pending->answer(v1::DeleteFileResponse());
  EXPECT_TRUE(done.wait());
}

}  // namespace
}  // namespace dex::rpc
