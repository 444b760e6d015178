#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>

#include "dex/v1/files.grpc.pb.h"
#include "services/rpc/channel.h"
#include "services/rpc/server.h"
#include "services/rpc/status.h"
#include "services/rpc/stream.h"
#include "services/rpc/unary.h"
#include "services/rpc/upload.h"

namespace dex::rpc {

// A FileService whose answers a test writes as functions.
class Files final : public v1::FileService::CallbackService {
 public:
  using Chunks = std::shared_ptr<ServerStream<v1::DownloadFileResponse>>;

  explicit Files(Room& room) : room_(room) {}

  std::function<base::Result<v1::File>(Call&, const v1::GetFileRequest&)> get;
  std::function<void(std::shared_ptr<Pending<v1::DeleteFileResponse>>)> remove;
  std::function<void(Chunks)> download;
  std::function<base::Result<v1::File>(Call&, Upload<v1::UploadFileRequest>&)> upload;
  // In its place, when set.
  std::function<void(std::shared_ptr<PendingUpload<v1::UploadFileRequest, v1::File>>)> upload_later;
  std::optional<std::chrono::milliseconds> cap;
  StreamOptions<v1::DownloadFileResponse> stream_options;

  grpc::ServerUnaryReactor* GetFile(grpc::CallbackServerContext* context,
                                    const v1::GetFileRequest* in, v1::File* out) override {
    return run(
        room_, context, in, out, [=, this](Call& call) { return get(call, *in); }, cap);
  }
  grpc::ServerUnaryReactor* DeleteFile(grpc::CallbackServerContext* context,
                                       const v1::DeleteFileRequest* in,
                                       v1::DeleteFileResponse* out) override {
    return run_async(
        room_, context, in, out,
        [this](std::shared_ptr<Pending<v1::DeleteFileResponse>> pending,
               const v1::DeleteFileRequest&) { remove(std::move(pending)); },
        cap);
  }
  grpc::ServerWriteReactor<v1::DownloadFileResponse>* DownloadFile(
      grpc::CallbackServerContext* context, const v1::DownloadFileRequest* in) override {
    return stream<v1::DownloadFileResponse>(
        room_, context, in,
        [this](Chunks chunks, const v1::DownloadFileRequest&) { download(std::move(chunks)); },
        stream_options);
  }
  grpc::ServerReadReactor<v1::UploadFileRequest>* UploadFile(grpc::CallbackServerContext* context,
                                                             v1::File* out) override {
    if (upload_later) {
      return upload_async<v1::UploadFileRequest, v1::File>(room_, context, out, upload_later);
    }
    return rpc::upload<v1::UploadFileRequest>(
        room_, context, out,
        [this](Call& call, Upload<v1::UploadFileRequest>& reader) { return upload(call, reader); });
  }

 private:
  Room& room_;
};

// A real server on a port of its own, and a client's channel to it.
class FileServer : public ::testing::Test {
 protected:
  void start(const Room::Options& options = {}, bool is_public = false) {
    room_ = std::make_unique<Room>(options);
    files_ = std::make_unique<Files>(*room_);
    Server::Options server;
    server.is_public = is_public;
    server.services = {{std::string(v1::FileService::service_full_name()), files_.get()}};
    auto started = Server::start(server, *room_, metrics_);
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    server_ = std::move(started).value();
    channel_ = channel(server_->address());
    stub_ = v1::FileService::NewStub(channel_);
  }

  // Every call of a test is over within 20 s.
  static void limit(grpc::ClientContext& context) {
    set_timeout(context, std::chrono::seconds(20));
  }

  base::Status get(grpc::ClientContext& context, v1::File* out = nullptr) {
    v1::File file;
    return from_grpc(stub_->GetFile(&context, v1::GetFileRequest(), out ? out : &file));
  }
  base::Status get(v1::File* out = nullptr) {
    grpc::ClientContext context;
    limit(context);
    return get(context, out);
  }

  monitor::Registry metrics_{"test", "0", "0"};
  std::unique_ptr<Room> room_;
  std::unique_ptr<Files> files_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::FileService::Stub> stub_;
};

// Something that one thread says once and another waits for.
class Event {
 public:
  void set() { promise_.set_value(); }
  [[nodiscard]] bool wait() {
    return future_.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  }

 private:
  std::promise<void> promise_;
  std::future<void> future_ = promise_.get_future();
};

// Blocks until the call's stop is requested, at most 20 s; true when it was.
inline bool wait_for_stop(const std::stop_token& stop) {
  Event stopped;
  const std::stop_callback callback(stop, [&] { stopped.set(); });
  return stopped.wait();
}

}  // namespace dex::rpc
