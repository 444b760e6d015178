#include "dex/v1/finetuning.pb.h"
#include "services/gateway/openai/door.h"
#include "services/gateway/openai/job_objects.h"
#include "services/gateway/openai/job_request.h"
#include "services/gateway/openai/lists.h"

namespace dex::gateway::openai {

namespace {

using http::ExchangePtr;

const std::string kJobs = "/dex.v1.FineTuningService/";

std::function<json(const v1::FineTuningJob&)> as_job(const Door& door,
                                                     const ExchangePtr& exchange) {
  return [tenant = door.tenant_of(*exchange)](const v1::FineTuningJob& job) {
    return job_object(job, tenant);
  };
}

void create_job(const DoorPtr& door, const ExchangePtr& exchange) {
  with_object(exchange, [&](const json& body) {
    auto request = read_create_job(body);
    if (!request.ok()) return http::refuse(*exchange, request.status());
    if (!identify(*door, exchange, exchange->request().body, request.value())) return;
    answer_with<v1::FineTuningJob>(*door, exchange, kJobs + "CreateFineTuningJob", request.value(),
                                   as_job(*door, exchange));
  });
}

void get_job(const DoorPtr& door, const ExchangePtr& exchange) {
  v1::GetFineTuningJobRequest request;
  request.set_id(exchange->request().parameter("id"));
  answer_with<v1::FineTuningJob>(*door, exchange, kJobs + "GetFineTuningJob", request,
                                 as_job(*door, exchange));
}

// Cancel, pause, resume: an id in, the job out. OpenAI's clients post nothing or an empty object.
template <typename Request>
http::Handler change(const DoorPtr& door, const char* rpc) {
  return [door, path = kJobs + rpc](const ExchangePtr& exchange) {
    const std::string& text = exchange->request().body;
    if (!text.empty()) {
      const auto body = parse_object(text);
      base::Status refused = body.status();
      if (body.ok()) {
        Faults faults;
        ObjectReader(body.value(), "", faults).end();
        refused = faults.status();
      }
      if (!refused.ok()) return http::refuse(*exchange, refused);
    }
    Request request;
    request.set_id(exchange->request().parameter("id"));
    if (!identify(*door, exchange, text, request)) return;
    answer_with<v1::FineTuningJob>(*door, exchange, path, request, as_job(*door, exchange));
  };
}

struct JobList {
  size_t limit = 0;
  std::vector<v1::FineTuningJob> jobs;
  bool has_more = false;
};

// "metadata[key]" → key
std::string metadata_key(const std::string& name) {
  constexpr std::string_view kBegin = "metadata[";
  return name.substr(kBegin.size(), name.size() - kBegin.size() - 1);
}

void list_jobs(const DoorPtr& door, const ExchangePtr& exchange) {
  const auto query = read_list_query(exchange->request(), {"metadata"});
  if (!query.ok()) return http::refuse(*exchange, query.status());
  v1::ListFineTuningJobsRequest request;
  request.set_page_size(query.value().limit);
  request.set_after(query.value().after);
  for (const auto& [name, value] : exchange->request().query) {
    if (!name.starts_with("metadata[")) continue;
    (*request.mutable_filter()->mutable_metadata())[metadata_key(name)] = value;
  }
  const auto list = std::make_shared<JobList>();
  list->limit = static_cast<size_t>(query.value().limit);
  // A page that is filtered, or of large jobs, may be short, and a client can only go on from a
  // last item.
  const auto take = [list](v1::ListFineTuningJobsResponse& page) {
    for (auto& job : *page.mutable_jobs()) {
      if (list->jobs.size() == list->limit) {
        list->has_more = true;
        return true;
      }
      list->jobs.push_back(std::move(job));
    }
    if (list->jobs.size() < list->limit) return false;
    list->has_more = !page.next_page_token().empty();
    return true;
  };
  each_page<v1::ListFineTuningJobsRequest, v1::ListFineTuningJobsResponse>(
      door, exchange, kJobs + "ListFineTuningJobs", request, take, [door, exchange, list] {
        json data = json::array();
        for (const auto& job : list->jobs)
          data.push_back(job_object(job, door->tenant_of(*exchange)));
        exchange->reply(http::json_reply(list_object(std::move(data), list->has_more)));
      });
}

// Two calls: what a checkpoint's model is called follows from its job.
void list_checkpoints(const DoorPtr& door, const ExchangePtr& exchange) {
  const auto query = read_list_query(exchange->request(), {});
  if (!query.ok()) return http::refuse(*exchange, query.status());
  v1::GetFineTuningJobRequest get;
  get.set_id(exchange->request().parameter("id"));
  v1::ListFineTuningCheckpointsRequest request;
  request.set_job(get.id());
  request.set_page_size(query.value().limit);
  request.set_after(query.value().after);
  door->upstream.call<v1::FineTuningJob>(
      exchange, kJobs + "GetFineTuningJob", get,
      [door, exchange, request](const http::Answer<v1::FineTuningJob>& job) {
        if (!job.status.ok()) return http::refuse(*exchange, job.status);
        answer_with<v1::ListFineTuningCheckpointsResponse>(
            *door, exchange, kJobs + "ListFineTuningCheckpoints", request,
            [tenant = door->tenant_of(*exchange),
             job = job.message](const v1::ListFineTuningCheckpointsResponse& page) {
              json data = json::array();
              for (const auto& checkpoint : page.checkpoints())
                data.push_back(checkpoint_object(checkpoint, job, tenant));
              return list_object(std::move(data), page.has_more());
            });
      });
}

}  // namespace

void add_job_routes(http::Router& router, const DoorPtr& door) {
  const std::string jobs = "/v1/fine_tuning/jobs";
  const std::string job = jobs + "/{id}";
  router.add("POST", jobs, [door](const ExchangePtr& exchange) { create_job(door, exchange); });
  router.add("GET", jobs, [door](const ExchangePtr& exchange) { list_jobs(door, exchange); });
  router.add("GET", job, [door](const ExchangePtr& exchange) { get_job(door, exchange); });
  router.add("POST", job + "/cancel",
             change<v1::CancelFineTuningJobRequest>(door, "CancelFineTuningJob"));
  router.add("POST", job + "/pause",
             change<v1::PauseFineTuningJobRequest>(door, "PauseFineTuningJob"));
  router.add("POST", job + "/resume",
             change<v1::ResumeFineTuningJobRequest>(door, "ResumeFineTuningJob"));
  router.add("GET", job + "/checkpoints",
             [door](const ExchangePtr& exchange) { list_checkpoints(door, exchange); });
}

}  // namespace dex::gateway::openai
