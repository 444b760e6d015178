#include "scheduler/server/adapter_rpc.h"

#include "scheduler/server/rpc_parts.h"
#include "services/rpc/stream.h"
#include "services/rpc/unary.h"
#include "services/rpc/upload.h"

namespace dex::server {

using rpc::Call;
using std::chrono::milliseconds;

namespace {

// api.md §1, deadlines: ExportAdapter. An import's upload comes before.
constexpr milliseconds kLongestExport{610'000};
constexpr milliseconds kLongestImport{1'800'000};

}  // namespace

grpc::ServerUnaryReactor* AdapterRpc::ListAdapters(Context* ctx, const v1::ListAdaptersRequest* in,
                                                   v1::ListAdaptersResponse* out) {
  return rpc::run(room_, ctx, in, out,
                  [=, this](Call& call) { return adapters_.list(call.principal(), *in); });
}

grpc::ServerUnaryReactor* AdapterRpc::GetAdapter(Context* ctx, const v1::GetAdapterRequest* in,
                                                 v1::Adapter* out) {
  return rpc::run(room_, ctx, in, out,
                  [=, this](Call& call) { return adapters_.get(call.principal(), *in); });
}

grpc::ServerUnaryReactor* AdapterRpc::PinAdapter(Context* ctx, const v1::PinAdapterRequest* in,
                                                 v1::Adapter* out) {
  return rpc::run(room_, ctx, in, out, [=, this](Call& call) {
    return marked(call, adapters_.pin(call.principal(), *in));
  });
}

grpc::ServerUnaryReactor* AdapterRpc::UnloadAdapter(Context* ctx,
                                                    const v1::UnloadAdapterRequest* in,
                                                    v1::Adapter* out) {
  return rpc::run(room_, ctx, in, out, [=, this](Call& call) {
    return marked(call, adapters_.unload(call.principal(), *in));
  });
}

grpc::ServerUnaryReactor* AdapterRpc::LoadAdapter(Context* ctx, const v1::LoadAdapterRequest* in,
                                                  v1::LoadAdapterResponse* out) {
  using Pending = rpc::Pending<v1::LoadAdapterResponse>;
  const auto starter = [this](std::shared_ptr<Pending> pending,
                              const v1::LoadAdapterRequest& request) {
    const double wait = request.has_wait_seconds() ? request.wait_seconds() : kLoadSeconds;
    if (!(wait >= 0 && wait <= kMostLoadSeconds)) {
      return pending->answer(
          base::bad_field("VALUE_OUT_OF_RANGE", "wait_seconds", "must be between 0 and 600"));
    }
    const auto who = pending->call().principal();
    const auto replayed = adapters_.load(who, request);
    if (!replayed.ok()) return pending->answer(replayed.status());
    if (*replayed) pending->call().add_trailer("dex-replayed", "true");
    const auto until =
        std::chrono::steady_clock::now() + milliseconds(static_cast<int64_t>(wait * 1000));
    waiters_.add([this, pending, who, until, id = request.id(), replayed = *replayed,
                  allow_no_effect = request.allow_no_effect()] {
      if (!pending->alive()) return true;
      auto loading = adapters_.loading(who, id, allow_no_effect);
      if (!loading.ok() && loading.status().code() != base::Code::kUnavailable) {
        pending->answer(loading.status());
        return true;
      }
      // A repeat of a load that somebody has taken back since waits for nothing.
      const bool over =
          replayed && loading.ok() && loading->adapter.desired() == v1::Adapter::DESIRED_ABSENT;
      if (over || (loading.ok() && loading->done && loading->failed.ok())) {
        v1::LoadAdapterResponse response;
        *response.mutable_adapter() = std::move(loading->adapter);
        pending->answer(std::move(response));
        return true;
      }
      if (loading.ok() && !loading->failed.ok()) {
        pending->answer(loading->failed);
        return true;
      }
      if (std::chrono::steady_clock::now() < until) return false;
      pending->answer(loading.ok()
                          ? base::unavailable("ADAPTER_LOADING", id + ": " + loading->missing)
                          : loading.status());
      return true;
    });
  };
  return rpc::run_async<v1::LoadAdapterRequest, v1::LoadAdapterResponse>(room_, ctx, in, out,
                                                                         starter, kLongestLoad);
}

grpc::ServerWriteReactor<v1::DownloadAdapterResponse>* AdapterRpc::DownloadAdapter(
    Context* ctx, const v1::DownloadAdapterRequest* in) {
  using Message = v1::DownloadAdapterResponse;
  return rpc::stream<Message>(
      room_, ctx, in,
      [this](std::shared_ptr<rpc::ServerStream<Message>> stream,
             const v1::DownloadAdapterRequest& request) {
        const auto who = stream->call().principal();
        if (!request.id().empty() && !request.export_().empty()) {
          return stream->finish(
              base::bad_field("CONFLICTING_FIELDS", "export", "can't be given together with id"));
        }
        stream->finish(request.export_().empty()
                           ? adapters_.download(who, request, chunk_sink(*stream))
                           : jobs_.download_export(who, request.export_(), chunk_sink(*stream)));
      },
      download_options<Message>());
}

grpc::ServerUnaryReactor* AdapterRpc::DeleteAdapter(Context* ctx,
                                                    const v1::DeleteAdapterRequest* in,
                                                    v1::DeleteAdapterResponse* out) {
  return rpc::run(room_, ctx, in, out, [=, this](Call& call) {
    return marked(call, adapters_.remove(call.principal(), *in));
  });
}

grpc::ServerReadReactor<v1::ImportAdapterRequest>* AdapterRpc::ImportAdapter(Context* ctx,
                                                                             v1::Adapter* out) {
  using Pending = rpc::PendingUpload<v1::ImportAdapterRequest, v1::Adapter>;
  const auto starter = [this](std::shared_ptr<Pending> pending) {
    const auto who = pending->call().principal();
    const auto first = pending->next();
    if (!first.ok()) return pending->answer(first.status());
    if (!*first || !(*first)->has_header())
      return pending->answer(base::invalid_field("header", "must be the first message"));
    const auto begun =
        jobs_.begin_import(who, (*first)->header(), [&pending] { return next_chunk(*pending); });
    if (!begun.ok()) return pending->answer(begun.status());
    if (begun->replayed) pending->call().add_trailer("dex-replayed", "true");
    answer_when_ended(waiters_, pending,
                      [this, who, id = begun->id] { return jobs_.look_import(who, id); });
  };
  return rpc::upload_async<v1::ImportAdapterRequest, v1::Adapter>(room_, ctx, out, starter,
                                                                  kLongestImport);
}

grpc::ServerUnaryReactor* AdapterRpc::ExportAdapter(Context* ctx,
                                                    const v1::ExportAdapterRequest* in,
                                                    v1::Export* out) {
  using Pending = rpc::Pending<v1::Export>;
  const auto starter = [this](std::shared_ptr<Pending> pending,
                              const v1::ExportAdapterRequest& request) {
    const auto who = pending->call().principal();
    const auto begun = jobs_.begin_export(who, request);
    if (!begun.ok()) return pending->answer(begun.status());
    if (begun->replayed) pending->call().add_trailer("dex-replayed", "true");
    answer_when_ended(waiters_, pending,
                      [this, who, id = begun->id] { return jobs_.look_export(who, id); });
  };
  return rpc::run_async<v1::ExportAdapterRequest, v1::Export>(room_, ctx, in, out, starter,
                                                              kLongestExport);
}

grpc::ServerUnaryReactor* AdapterRpc::GetExport(Context* ctx, const v1::GetExportRequest* in,
                                                v1::Export* out) {
  return rpc::run(room_, ctx, in, out,
                  [=, this](Call& call) { return jobs_.get_export(call.principal(), in->id()); });
}

}  // namespace dex::server
