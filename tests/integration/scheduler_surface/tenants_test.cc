// P16: each method of each public service, with the ids of another tenant's objects, through a
// gateway's gRPC door (there is no other one for these calls yet). A method that has no row here
// fails the test.
//
// Every caller of this build is tenant `default`, so its objects are given to another tenant in the
// store, and back for the second half: what was refused is answered then, so that the tenant was
// the reason.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>
#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "dex/v1/admin.grpc.pb.h"
#include "services/gateway/gateway.h"
#include "services/gateway/proxy/public_services.h"
#include "tests/integration/scheduler/evaluation_fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/figures.h"
#include "tests/support/http_client.h"

namespace dex::server {
namespace {

using base::Code;

// How a method could meet another tenant's object.
enum class Meets {
  kById,     // its request names one: as if it were missing
  kInAList,  // it shows all that are the caller's
  kNothing,  // it neither names nor shows objects of a tenant
};

struct TenantRow {
  std::string method;   // of dex.v1
  std::string request;  // in protobuf's text form; $name is an id of the world below
  Meets meets = Meets::kById;
  // How the owner's call ends; nothing: as it likes, if only the object is there.
  std::optional<Code> owner = Code::kOk;
  std::string shows = {};  // kInAList: an id that the owner sees
};

// Methods of work that is under way: their rows count as soon as they are there.
constexpr std::string_view kExpectedMethods[] = {"EvaluationService.CompareEvaluations",
                                                 "EvaluationService.DeleteEvaluation"};

bool is_expected(const std::string& method) {
  return std::count(std::begin(kExpectedMethods), std::end(kExpectedMethods), method) > 0;
}

// In the order in which the owner calls them at the end: what deletes comes last.
std::vector<TenantRow> tenant_rows() {
  const auto any = std::nullopt;
  const std::string mine = R"(validate_only: true spec { model: "small-model")"
                           R"( training_file: "$mine" )";
  return {
      {"AdapterService.ListAdapters", "", Meets::kInAList, Code::kOk, "$adapter"},
      {"AdapterService.GetAdapter", R"(id: "$adapter")"},
      // Its worker says nothing of it, so it is never loaded.
      {"AdapterService.LoadAdapter", R"(id: "$adapter" wait_seconds: 0)", Meets::kById,
       Code::kUnavailable},
      {"AdapterService.GetAdapter", R"(id: "live")"},
      {"AdapterService.ListAdapterAliases", "", Meets::kInAList, Code::kOk, "$adapter"},
      {"AdapterService.SetAdapterAlias", R"(alias: "hers" adapter: "$adapter" wait_seconds: 0)",
       Meets::kById, Code::kUnavailable},
      {"AdapterService.SetAdapterAlias", R"(alias: "hers" adapter: "live" wait_seconds: 0)",
       Meets::kById, Code::kUnavailable},
      {"AdapterService.PinAdapter", R"(id: "$adapter" pinned: true)"},
      {"AdapterService.PinAdapter", R"(id: "$adapter")"},
      {"AdapterService.UnloadAdapter", R"(id: "$adapter")"},
      {"AdapterService.DownloadAdapter", R"(id: "$adapter")"},
      {"AdapterService.DownloadAdapter", R"(export: "$export")"},
      {"AdapterService.ImportAdapter", R"(header { base_model: "small-model" })", Meets::kNothing},
      // The request that has made $export: it waits for nothing.
      {"AdapterService.ExportAdapter",
       R"(adapter: "$adapter" kind: KIND_FOLDED_SAFETENSORS request_id: "once")"},
      {"AdapterService.GetExport", R"(id: "$export")"},

      {"AdminService.GetHealth", "", Meets::kNothing},
      {"AdminService.RedriveFineTuningJob", R"(id: "$failed")"},
      // Numbers of a tenant by its name, which only the operator may say (operations_test.cc).
      {"AdminService.GetQuota", R"(tenant: "default")", Meets::kNothing},
      {"AdminService.SetQuota", R"(tenant: "default" max_queued: 20)", Meets::kNothing},
      {"AdminService.ListWorkers", "", Meets::kInAList, Code::kOk, "$running"},
      {"AdminService.UpdateWorker", R"(id: "w1" draining: false)", Meets::kNothing},
      // What was redriven waits.
      {"AdminService.GetQueue", "", Meets::kInAList, Code::kOk, "$failed"},
      {"AdminService.WhoAmI", "", Meets::kNothing},
      {"AdminService.GetUsage", "", Meets::kNothing},
      {"AdminService.CreateApiKey", R"(name: "x" scopes: "infer" validate_only: true)",
       Meets::kNothing},
      {"AdminService.ListApiKeys", "", Meets::kInAList, Code::kOk, "$key"},
      // The operator, who this caller is, may revoke everybody's; others: api_keys_test.cc.
      {"AdminService.RevokeApiKey", "", Meets::kNothing},

      {"EvaluationService.CreateEvaluation",
       R"(spec { subjects { model: "small-model" } tasks { perplexity { file: "$evals" } } })"},
      {"EvaluationService.CreateEvaluation",
       R"(validate_only: true spec { subjects { adapter: "$adapter" }
          tasks { perplexity { file: "$mine" } } })",
       Meets::kById, any},
      {"EvaluationService.ListEvaluations", "", Meets::kInAList, Code::kOk, "$evaluation"},
      {"EvaluationService.GetEvaluation", R"(id: "$evaluation")"},
      {"EvaluationService.ListEvaluationSamples", R"(id: "$evaluation")"},
      {"EvaluationService.WatchEvaluation", R"(id: "$evaluation")"},
      {"EvaluationService.DownloadEvaluation", R"(id: "$evaluation")"},
      {"EvaluationService.CompareEvaluations", R"(a: "$evaluation" b: "$evaluation")", Meets::kById,
       any},
      {"EvaluationService.CancelEvaluation", R"(id: "$evaluation")", Meets::kById,
       Code::kFailedPrecondition},

      {"FileService.UploadFile", R"(header { filename: "x.jsonl" })", Meets::kNothing},
      {"FileService.ListFiles", "", Meets::kInAList, Code::kOk, "$file"},
      {"FileService.GetFile", R"(id: "$file")"},
      {"FileService.ListFindings", R"(id: "$file")"},
      {"FileService.DownloadFile", R"(id: "$file")"},
      {"FileService.ValidateFile", R"(file: "$file")"},
      // This model's folder has no tokenizer: its owner is told so.
      {"FileService.PreviewFile", R"(file: "$file" model: "small-model")", Meets::kById,
       Code::kUnimplemented},

      {"FineTuningService.CreateFineTuningJob",
       R"(spec { model: "small-model" training_file: "$file" })"},
      {"FineTuningService.CreateFineTuningJob",
       R"(validate_only: true spec { model: "$adapter" training_file: "$mine" })", Meets::kById,
       any},
      {"FineTuningService.BatchCreateFineTuningJobs",
       R"(validate_only: true specs { model: "small-model" training_file: "$file" })"},
      {"FineTuningService.CreateFineTuningJob", mine + R"(validation_file: "$file" })",
       Meets::kById, any},
      {"FineTuningService.CreateFineTuningJob",
       mine + R"(watchdog { base_guard { kl_max: 1 probe_file: "$file" } } })", Meets::kById, any},
      {"FineTuningService.CreateFineTuningJob",
       mine + R"(dex { head_selection { calibration { file: "$file" } } } })", Meets::kById, any},
      {"FineTuningService.EstimateFineTuningJob",
       R"(spec { model: "small-model" training_file: "$file" })"},
      // No worker comes to these two.
      {"FineTuningService.EstimateFineTuningJob",
       R"(spec { model: "small-model" training_file: "$file" } mode: METHOD_PROBE)", Meets::kById,
       Code::kDeadlineExceeded},
      {"FineTuningService.PreviewHeadSelection", R"(model: "small-model" file: "$file")",
       Meets::kById, Code::kDeadlineExceeded},
      {"FineTuningService.ListFineTuningJobs", "", Meets::kInAList, Code::kOk, "$ended"},
      {"FineTuningService.GetFineTuningJob", R"(id: "$ended")"},
      {"FineTuningService.ListFineTuningEvents", R"(id: "$ended")"},
      {"FineTuningService.ListFineTuningCheckpoints", R"(job: "$ended")"},
      {"FineTuningService.WatchFineTuningJob", R"(id: "$ended")"},
      {"FineTuningService.UpdateFineTuningJob", R"(id: "$running" display_name: "hers")"},
      {"FineTuningService.PauseFineTuningJob", R"(id: "$running")"},
      {"FineTuningService.ResumeFineTuningJob", R"(id: "$running")"},
      {"FineTuningService.CancelFineTuningJob", R"(id: "$running")"},
      {"FineTuningService.CreateCheckpoint", R"(job: "$running")", Meets::kById,
       Code::kFailedPrecondition},

      // No worker serves anything: NO_WORKER.
      {"InferenceService.Generate", R"(model: "$adapter" prompt: "x")", Meets::kById,
       Code::kUnavailable},
      {"InferenceService.Generate", R"(model: "small-model" adapter: "$adapter" prompt: "x")",
       Meets::kById, Code::kUnavailable},
      {"InferenceService.Generate", R"(model: "live" prompt: "x")", Meets::kById,
       Code::kUnavailable},
      {"InferenceService.GenerateStream", R"(model: "$adapter" prompt: "x")", Meets::kById,
       Code::kUnavailable},

      {"InferenceService.Tokenize", R"(model: "$adapter" text: "x")", Meets::kById,
       Code::kUnavailable},
      {"InferenceService.Detokenize", R"(model: "$adapter" ids: 1)", Meets::kById,
       Code::kUnavailable},
      {"InferenceService.GetTokenizerInfo", R"(model: "$adapter")", Meets::kById,
       Code::kUnavailable},

      // The operator's models and the presets are everybody's.
      {"ModelService.ListModels", "", Meets::kNothing},
      {"ModelService.GetModel", R"(name: "small-model")", Meets::kNothing},
      {"ModelService.ListPresets", "", Meets::kNothing},
      {"ModelService.GetPreset", R"(name: "small" model: "small-model")", Meets::kNothing},
      {"ModelService.GetServerCapabilities", "", Meets::kNothing},
      {"ModelService.GetModelLimits", R"(model: "small-model")", Meets::kNothing},

      {"FineTuningService.DeleteFineTuningJob", R"(id: "$ended")"},
      {"EvaluationService.DeleteEvaluation", R"(id: "$evaluation")"},
      {"AdapterService.DeleteAdapterAlias", R"(alias: "live")"},
      {"AdapterService.DeleteAdapter", R"(id: "$adapter")"},
      {"FileService.DeleteFile", R"(id: "$spare")"},
  };
}

const google::protobuf::MethodDescriptor* public_method(const std::string& name) {
  return google::protobuf::DescriptorPool::generated_pool()->FindMethodByName("dex.v1." + name);
}

// One call in bytes, of any streaming kind: one message, then all replies until it ends.
class RawCall : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
          const std::string& message, std::chrono::milliseconds limit)
      : slice_(message), request_(&slice_, 1) {
    rpc::set_timeout(context_, limit);
    grpc::GenericStub(channel).PrepareBidiStreamingCall(&context_, method, {}, this);
    StartWriteLast(&request_, {});
    StartRead(&reply_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    std::vector<grpc::Slice> slices;
    if (reply_.Dump(&slices).ok()) {
      for (const auto& part : slices)
        replies_.append(reinterpret_cast<const char*>(part.begin()), part.size());
    }
    StartRead(&reply_);
  }
  void OnDone(const grpc::Status& status) override {
    const auto done = done_;  // whoever waits may destroy this object at once
    done->set_value(status);
  }

  base::Status wait() { return rpc::from_grpc(done_->get_future().get()); }
  [[nodiscard]] const std::string& replies() const { return replies_; }  // after wait()

 private:
  grpc::ClientContext context_;
  const grpc::Slice slice_;
  const grpc::ByteBuffer request_;
  grpc::ByteBuffer reply_;
  std::string replies_;
  std::shared_ptr<std::promise<grpc::Status>> done_ =
      std::make_shared<std::promise<grpc::Status>>();
};

class TenantsTest : public EvaluationTest {
 protected:
  using Ids = std::map<std::string, std::string>;  // name in the rows → id
  struct Answered {
    base::Status status;
    std::string bytes;
  };

  TenantsTest() {
    lease_ms_ = archive_after_ms_ = 600'000;  // nothing of the world changes by time
    restart();
    reconnect();
  }

  // One object of each kind and state that the rows need.
  void build_world() {
    enlist();
    ids_["file"] = upload_good();
    ids_["spare"] = upload_good();
    ids_["evals"] = upload_evals("some text\n", "wiki.raw").id();
    ids_["ended"] = queue_job();
    ASSERT_EQ(finish_well(claim().job()), "SUCCEEDED");
    ids_["adapter"] = get(ids_["ended"]).fine_tuned_model();
    ASSERT_NO_FATAL_FAILURE(point_live_to_it());
    ids_["failed"] = queue_job();
    ASSERT_EQ(finish(claim().job(), iv1::OUTCOME_FAIL_FINAL, "loss_diverged"), "FAILED");
    const auto evaluation = create_evaluation(perplexity_of(ids_["evals"]));
    ASSERT_TRUE(evaluation.ok()) << evaluation.status().to_string();
    ids_["evaluation"] = evaluation->id();
    const std::string sample = R"({"task": "perplexity", "subject": "base", "output": "secret"})";
    ASSERT_EQ(publish(claim().job(), "w1", {{"samples-1.jsonl", sample + "\n"}}), "SUCCEEDED");
    export_adapter();
    const auto admin = v1::AdminService::NewStub(rpc::channel(scheduler_->grpc_address()));
    v1::CreateApiKeyRequest key;
    key.set_name("hers");
    key.add_scopes("infer");
    const auto made = call(*admin, &v1::AdminService::Stub::CreateApiKey, key);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    ids_["key"] = made->id();
    ids_["running"] = queue_job();
    ASSERT_EQ(claim().job().job_id(), ids_["running"]);
  }

  std::string queue_job() {
    v1::CreateFineTuningJobRequest request;
    *request.mutable_spec() = spec(ids_["file"]);
    const auto job = create(request);
    EXPECT_TRUE(job.ok()) << job.status().to_string();
    return job.ok() ? job->id() : "";
  }

  // The alias `live`, while a worker says that it has the adapter; afterwards none does.
  void point_live_to_it() {
    v1::GetAdapterRequest of;
    of.set_id(ids_["adapter"]);
    const auto adapter = call(*adapters_, &AdapterStub::GetAdapter, of);
    ASSERT_TRUE(adapter.ok()) << adapter.status().to_string();
    iv1::AdapterStatus held;
    held.set_id(adapter->id());
    held.set_content_sha256(adapter->content_sha256());
    held.set_state(v1::Replica::STATE_LOADED);
    report_engine("w1", {held});
    v1::SetAdapterAliasRequest request;
    request.set_alias("live");
    request.set_adapter(adapter->id());
    const auto set = call(*adapters_, &AdapterStub::SetAdapterAlias, request);
    ASSERT_TRUE(set.ok()) << set.status().to_string();
    iv1::HeartbeatRequest nothing;
    nothing.set_worker_id("w1");
    ASSERT_TRUE(call(*workers_, &iv1::WorkerService::Stub::Heartbeat, nothing).ok());
    v1::UnloadAdapterRequest unload;
    unload.set_id(adapter->id());
    ASSERT_TRUE(call(*adapters_, &AdapterStub::UnloadAdapter, unload).ok());
  }

  void export_adapter() {
    v1::ExportAdapterRequest request;
    request.set_adapter(ids_["adapter"]);
    request.set_kind(v1::ExportAdapterRequest::KIND_FOLDED_SAFETENSORS);
    request.set_request_id("once");
    auto asked = std::async(std::launch::async, [this, request] {
      return call(*adapters_, &AdapterStub::ExportAdapter, request, 30'000);
    });
    const auto work = claim("w1", 15'000);
    ASSERT_TRUE(work.has_job());
    ids_["export"] = work.job().job_id();
    ASSERT_EQ(publish(work.job()), "SUCCEEDED");
    const auto made = asked.get();
    ASSERT_TRUE(made.ok()) << made.status().to_string();
  }

  static std::string key(const std::string& name) { return "dex:{s0}:" + name; }

  // All objects of the world, with the sets that list them.
  void give(const std::string& from, const std::string& to) {
    for (const auto& [name, id] : ids_) {
      const std::string family = id.starts_with("file-")  ? "file:"
                                 : id.starts_with("ft:")  ? "adapter:"
                                 : id.starts_with("key-") ? "key:"
                                                          : "job:";
      ASSERT_EQ(redis_.call({"HGET", key(family + id), "tenant"}).text, from) << id;
      redis_.call({"HSET", key(family + id), "tenant", to});
    }
    ASSERT_EQ(
        redis_.call({"RENAME", key("alias:" + from + ":live"), key("alias:" + to + ":live")}).text,
        "OK");
    redis_.call({"HSET", key("alias:" + to + ":live"), "tenant", to});
    for (const std::string set :
         {"tjobs:", "twait:", "trun:", "tfiles:", "tadapters:", "taliases:", "tkeys:"}) {
      redis_.call(
          {"ZUNIONSTORE", key(set + to), "2", key(set + from), key(set + to), "AGGREGATE", "MAX"});
      redis_.call({"DEL", key(set + from)});
    }
    redis_.call({"SADD", key("tenants"), to});
  }

  // Everything that the store keeps under the name of an object of the world.
  std::map<std::string, std::string> records() {
    std::map<std::string, std::string> found;
    for (const auto& row : redis_.call({"KEYS", key("*")}).elements) {
      const bool own = std::any_of(ids_.begin(), ids_.end(), [&row](const auto& entry) {
        return row.text.find(entry.second) != std::string::npos;
      });
      if (own) found[row.text] = redis_.call({"DUMP", row.text}).text;
    }
    return found;
  }

  // A gateway that has what the store holds now.
  void open_door() {
    gateway::Gateway::Options options;
    options.scheduler = scheduler_->grpc_address();
    options.listen = options.http_listen = options.metrics_listen = "127.0.0.1:0";
    options.route_patience = std::chrono::milliseconds(0);
    door_.reset();
    gateway_.reset();
    auto started = gateway::Gateway::start(options);
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    gateway_ = std::move(started).value();
    door_ = rpc::channel(gateway_->grpc_address());
    const int port = support::port_of(gateway_->http_address());
    ASSERT_TRUE(support::eventually([port] {
      return support::http_get(port, "/readyz").starts_with("HTTP/1.1 200");
    })) << "the gateway has no routes";
  }

  static std::string filled(std::string text, const Ids& ids) {
    for (const auto& [name, id] : ids) {
      const std::string hole = "$" + name;
      for (size_t at = 0; (at = text.find(hole, at)) != std::string::npos; at += id.size())
        text.replace(at, hole.size(), id);
    }
    return text;
  }

  Answered ask(const TenantRow& row, const Ids& ids, std::chrono::milliseconds limit) {
    const auto* method = public_method(row.method);
    const std::unique_ptr<google::protobuf::Message> request(
        google::protobuf::MessageFactory::generated_factory()
            ->GetPrototype(method->input_type())
            ->New());
    const std::string text = filled(row.request, ids);
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, request.get())) << text;
    RawCall exchange(door_, "/" + method->service()->full_name() + "/" + method->name(),
                     request->SerializeAsString(), limit);
    const base::Status status = exchange.wait();
    return {status, exchange.replies()};
  }

  // Ids like those of the world that nobody has.
  [[nodiscard]] Ids nobodys() const {
    Ids ids = ids_;
    for (auto& [name, id] : ids) {
      if (name != "mine") id.replace(id.size() - 26, 26, 26, '0');  // the ULID
    }
    return ids;
  }

  // The words about another's object with the ids of objects that are not there.
  [[nodiscard]] std::string as_missing(std::string text) const {
    const Ids missing = nobodys();
    for (const auto& [name, id] : ids_) {
      for (size_t at = 0; (at = text.find(id, at)) != std::string::npos; at += id.size())
        text.replace(at, id.size(), missing.at(name));
    }
    return text;
  }

  void expect_hidden(const TenantRow& row) {
    const Answered answer = ask(row, ids_, std::chrono::seconds(20));
    for (const auto& [name, id] : ids_) {
      const bool told = name != "mine" && answer.bytes.find(id) != std::string::npos;
      EXPECT_FALSE(told) << "shows another's " << name;
    }
    if (row.meets != Meets::kById) {
      EXPECT_NE(answer.status.code(), Code::kNotFound) << answer.status.to_string();
      return;
    }
    EXPECT_EQ(answer.status.code(), Code::kNotFound) << answer.status.to_string();
    EXPECT_EQ(answer.bytes, "");
    const base::Status missing = ask(row, nobodys(), std::chrono::seconds(20)).status;
    EXPECT_EQ(missing.reason(), answer.status.reason());
    EXPECT_EQ(missing.message(), as_missing(answer.status.message()));
  }

  void expect_shown(const TenantRow& row) {
    const bool waits = row.owner == Code::kDeadlineExceeded;
    const Answered answer = ask(row, ids_, std::chrono::seconds(waits ? 1 : 20));
    EXPECT_NE(answer.status.code(), Code::kNotFound) << answer.status.to_string();
    if (row.meets == Meets::kNothing) return;
    EXPECT_EQ(answer.status.code(), row.owner.value_or(answer.status.code()))
        << answer.status.to_string();
    const std::string shown = filled(row.shows, ids_);  // empty: nothing in particular
    EXPECT_NE(answer.bytes.find(shown), std::string::npos) << row.shows;
  }

  Ids ids_;
  std::unique_ptr<gateway::Gateway> gateway_;
  std::shared_ptr<grpc::Channel> door_;
};

TEST(TenantRowsTest, EveryPublicMethodHasOne) {
  std::set<std::string> methods, with_row;
  for (const std::string& name : gateway::public_services()) {
    const auto* service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
    ASSERT_NE(service, nullptr) << name;
    for (int i = 0; i < service->method_count(); ++i)
      methods.insert(service->name() + "." + service->method(i)->name());
  }
  ASSERT_GT(methods.size(), 40U);
  for (const TenantRow& row : tenant_rows()) with_row.insert(row.method);
  for (const std::string& method : methods) {
    EXPECT_TRUE(with_row.contains(method))
        << method << " has no row in tenants_test.cc: what does it do with another's id?";
  }
  for (const std::string& method : with_row) {
    EXPECT_TRUE(methods.contains(method) || is_expected(method)) << "there is no method " << method;
  }
}

TEST_F(TenantsTest, NoMethodShowsOrChangesWhatIsAnothers) {
  build_world();
  ASSERT_FALSE(HasFatalFailure());
  give("default", "other");
  ids_["mine"] = upload_good();
  open_door();
  ASSERT_FALSE(HasFatalFailure());
  const auto before = records();
  int calls = 0;
  for (const TenantRow& row : tenant_rows()) {
    if (public_method(row.method) == nullptr) continue;
    SCOPED_TRACE(row.method + " " + row.request);
    expect_hidden(row);
    ++calls;
  }
  EXPECT_EQ(records(), before) << "something of another's has changed";

  const std::string mine = ids_["mine"];
  ids_.erase("mine");
  give("other", "default");
  ids_["mine"] = mine;
  open_door();
  ASSERT_FALSE(HasFatalFailure());
  for (const TenantRow& row : tenant_rows()) {
    if (public_method(row.method) == nullptr) continue;
    SCOPED_TRACE("of the owner: " + row.method + " " + row.request);
    expect_shown(row);
  }
  support::figure("P16", "foreign_calls_refused", calls);
}

}  // namespace
}  // namespace dex::server
