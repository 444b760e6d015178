#pragma once

#include <chrono>

#include "dex/v1/adapters.grpc.pb.h"
#include "scheduler/server/adapter_jobs.h"
#include "scheduler/server/adapters.h"
#include "scheduler/server/aliases.h"
#include "scheduler/server/routes.h"
#include "scheduler/server/waiters.h"
#include "services/rpc/room.h"

namespace dex::server {

// How long a load waits for the workers (api.md §2) unless told otherwise, at most, and as a call.
inline constexpr double kLoadSeconds = 60, kMostLoadSeconds = 600;
inline constexpr std::chrono::milliseconds kLongestLoad{610'000};

// AdapterService over gRPC. What the constructor takes outlives it.
class AdapterRpc final : public v1::AdapterService::CallbackService {
 public:
  using Context = grpc::CallbackServerContext;
  using Unary = grpc::ServerUnaryReactor;
  AdapterRpc(rpc::Room& room, Adapters& adapters, Aliases& aliases, AdapterJobs& jobs,
             const Routes& routes, Waiters& waiters)
      : room_(room),
        adapters_(adapters),
        aliases_(aliases),
        jobs_(jobs),
        routes_(routes),
        waiters_(waiters) {}

  Unary* ListAdapters(Context* ctx, const v1::ListAdaptersRequest* in,
                      v1::ListAdaptersResponse* out) override;
  Unary* GetAdapter(Context* ctx, const v1::GetAdapterRequest* in, v1::Adapter* out) override;
  Unary* LoadAdapter(Context* ctx, const v1::LoadAdapterRequest* in,
                     v1::LoadAdapterResponse* out) override;
  Unary* PinAdapter(Context* ctx, const v1::PinAdapterRequest* in, v1::Adapter* out) override;
  Unary* UnloadAdapter(Context* ctx, const v1::UnloadAdapterRequest* in, v1::Adapter* out) override;
  grpc::ServerWriteReactor<v1::DownloadAdapterResponse>* DownloadAdapter(
      Context* ctx, const v1::DownloadAdapterRequest* in) override;
  Unary* DeleteAdapter(Context* ctx, const v1::DeleteAdapterRequest* in,
                       v1::DeleteAdapterResponse* out) override;
  grpc::ServerReadReactor<v1::ImportAdapterRequest>* ImportAdapter(Context* ctx,
                                                                   v1::Adapter* out) override;
  // Those of aliases are in alias_rpc.cc.
  Unary* SetAdapterAlias(Context* ctx, const v1::SetAdapterAliasRequest* in,
                         v1::AdapterAlias* out) override;
  Unary* DeleteAdapterAlias(Context* ctx, const v1::DeleteAdapterAliasRequest* in,
                            v1::AdapterAlias* out) override;
  Unary* ListAdapterAliases(Context* ctx, const v1::ListAdapterAliasesRequest* in,
                            v1::ListAdapterAliasesResponse* out) override;
  Unary* ExportAdapter(Context* ctx, const v1::ExportAdapterRequest* in, v1::Export* out) override;
  Unary* GetExport(Context* ctx, const v1::GetExportRequest* in, v1::Export* out) override;

 private:
  rpc::Room& room_;
  Adapters& adapters_;
  Aliases& aliases_;
  AdapterJobs& jobs_;
  const Routes& routes_;
  Waiters& waiters_;
};

}  // namespace dex::server
