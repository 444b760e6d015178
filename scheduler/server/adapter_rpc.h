#pragma once

#include "dex/v1/adapters.grpc.pb.h"
#include "scheduler/server/adapter_jobs.h"
#include "scheduler/server/adapters.h"
#include "scheduler/server/waiters.h"
#include "services/rpc/room.h"

namespace dex::server {

// AdapterService over gRPC. What the constructor takes outlives it.
class AdapterRpc final : public v1::AdapterService::CallbackService {
 public:
  using Context = grpc::CallbackServerContext;
  using Unary = grpc::ServerUnaryReactor;
  AdapterRpc(rpc::Room& room, Adapters& adapters, AdapterJobs& jobs, Waiters& waiters)
      : room_(room), adapters_(adapters), jobs_(jobs), waiters_(waiters) {}

  Unary* ListAdapters(Context* ctx, const v1::ListAdaptersRequest* in,
                      v1::ListAdaptersResponse* out) override;
  Unary* GetAdapter(Context* ctx, const v1::GetAdapterRequest* in, v1::Adapter* out) override;
  Unary* LoadAdapter(Context* ctx, const v1::LoadAdapterRequest* in,
                     v1::LoadAdapterResponse* out) override;
  Unary* UnloadAdapter(Context* ctx, const v1::UnloadAdapterRequest* in, v1::Adapter* out) override;
  grpc::ServerWriteReactor<v1::DownloadAdapterResponse>* DownloadAdapter(
      Context* ctx, const v1::DownloadAdapterRequest* in) override;
  Unary* DeleteAdapter(Context* ctx, const v1::DeleteAdapterRequest* in,
                       v1::DeleteAdapterResponse* out) override;
  grpc::ServerReadReactor<v1::ImportAdapterRequest>* ImportAdapter(Context* ctx,
                                                                   v1::Adapter* out) override;
  Unary* ExportAdapter(Context* ctx, const v1::ExportAdapterRequest* in, v1::Export* out) override;
  Unary* GetExport(Context* ctx, const v1::GetExportRequest* in, v1::Export* out) override;

 private:
  rpc::Room& room_;
  Adapters& adapters_;
  AdapterJobs& jobs_;
  Waiters& waiters_;
};

}  // namespace dex::server
