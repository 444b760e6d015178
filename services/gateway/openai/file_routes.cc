#include <algorithm>
#include <utility>

#include "dex/v1/files.pb.h"
#include "services/gateway/openai/door.h"
#include "services/gateway/openai/file_objects.h"
#include "services/gateway/openai/lists.h"
#include "services/gateway/openai/upload.h"

namespace dex::gateway::openai {

namespace {

using http::ExchangePtr;

constexpr const char* kFiles = "/dex.v1.FileService/";

void get_file(const DoorPtr& door, const ExchangePtr& exchange) {
  v1::GetFileRequest request;
  request.set_id(exchange->request().parameter("id"));
  answer_with<v1::File>(*door, exchange, std::string(kFiles) + "GetFile", request, file_object);
}

void delete_file(const DoorPtr& door, const ExchangePtr& exchange) {
  v1::DeleteFileRequest request;
  request.set_id(exchange->request().parameter("id"));
  if (!identify(*door, exchange, "", request)) return;
  answer_with<v1::DeleteFileResponse>(
      *door, exchange, std::string(kFiles) + "DeleteFile", request,
      [](const v1::DeleteFileResponse& gone) { return deleted_object(gone.id(), "file"); });
}

// ---- list ----

struct FileList {
  ListQuery query;
  bool oldest_first = false;
  std::vector<v1::File> files;
  bool has_more = false;
};

json shown(const FileList& list) {
  json data = json::array();
  for (const auto& file : list.files) data.push_back(file_object(file));
  return list_object(std::move(data), list.has_more);
}

// The store goes from the newest to the oldest only: the other way round all are read (a tenant has
// a hundred) and the page is cut here.
base::Status cut_oldest_first(FileList& list) {
  std::reverse(list.files.begin(), list.files.end());
  auto begin = list.files.begin();
  if (!list.query.after.empty()) {
    begin = std::find_if(begin, list.files.end(),
                         [&](const auto& file) { return file.id() == list.query.after; });
    if (begin == list.files.end()) {
      return base::bad_field(
          "INVALID_CURSOR", "after",
          "names no file of this list: '" + list.query.after.substr(0, 60) + "'");
    }
    ++begin;
  }
  list.files.erase(list.files.begin(), begin);
  const auto limit = static_cast<size_t>(list.query.limit);
  list.has_more = list.files.size() > limit;
  if (list.has_more) list.files.resize(limit);
  return {};
}

void list_files(const DoorPtr& door, const ExchangePtr& exchange) {
  const auto& asked = exchange->request();
  const auto query = read_list_query(asked, {"order", "purpose"});
  if (!query.ok()) return http::refuse(*exchange, query.status());
  const auto list = std::make_shared<FileList>();
  list->query = query.value();
  v1::ListFilesRequest request;
  const std::string order = asked.query_value("order").value_or("desc");
  list->oldest_first = order == "asc";
  if (order != "asc" && order != "desc") {
    return http::refuse(*exchange, base::invalid_field("order", "order must be asc or desc"));
  }
  if (const auto word = asked.query_value("purpose")) {
    const auto purpose = *word == "fine-tune-results"
                             ? base::Result<v1::FilePurpose>(v1::FILE_PURPOSE_FINE_TUNE_RESULTS)
                             : read_purpose("purpose", *word);
    // Nothing here has another purpose, which is no fault of a list.
    if (!purpose.ok()) return exchange->reply(http::json_reply(list_object(json::array(), false)));
    request.set_purpose(purpose.value());
  }
  request.set_page_size(list->oldest_first ? 1000 : list->query.limit);
  if (!list->oldest_first) request.set_after(list->query.after);
  const auto take = [list](v1::ListFilesResponse& page) {
    for (auto& file : *page.mutable_files()) {
      const bool full =
          !list->oldest_first && list->files.size() >= static_cast<size_t>(list->query.limit);
      if (full) {
        list->has_more = true;
        return true;
      }
      list->files.push_back(std::move(file));
    }
    const bool full =
        !list->oldest_first && list->files.size() >= static_cast<size_t>(list->query.limit);
    if (full) list->has_more = !page.next_page_token().empty();
    return full;
  };
  each_page<v1::ListFilesRequest, v1::ListFilesResponse>(
      door, exchange, std::string(kFiles) + "ListFiles", request, take, [exchange, list] {
        if (list->oldest_first) {
          const auto cut = cut_oldest_first(*list);
          if (!cut.ok()) return http::refuse(*exchange, cut);
        }
        exchange->reply(http::json_reply(shown(*list)));
      });
}

// ---- content ----

// The file's bytes, each chunk asked for when the last has been written.
class Download : public std::enable_shared_from_this<Download> {
 public:
  explicit Download(ExchangePtr exchange) : exchange_(std::move(exchange)) {}

  void begin(Door& door, const std::string& id) {
    v1::DownloadFileRequest request;
    request.set_id(id);
    http::CallOptions options;
    options.timeout = std::chrono::milliseconds(0);
    door.upstream.watch<v1::DownloadFileResponse>(
        exchange_, std::string(kFiles) + "DownloadFile", request,
        [self = shared_from_this()](const http::Upstream::StreamPtr& call,
                                    v1::DownloadFileResponse piece) {
          self->start();
          self->exchange_->write(std::move(*piece.mutable_chunk()),
                                 [call](bool ok) { ok ? call->next() : call->cancel(); });
        },
        [self = shared_from_this()](const grpc::Status& status, const http::Headers& /*metadata*/) {
          self->end(status);
        },
        options);
  }

 private:
  void start() {
    if (std::exchange(started_, true)) return;
    http::Exchange::StreamStart start;
    start.content_type = "application/octet-stream";
    exchange_->stream(std::move(start));
  }
  void end(const grpc::Status& status) {
    if (status.ok()) {
      start();
      return exchange_->end();
    }
    // The client must not take half a file for a whole one.
    started_ ? exchange_->cut() : http::refuse(*exchange_, status);
  }

  const ExchangePtr exchange_;
  bool started_ = false;  // of the call's callbacks, which come one by one
};

}  // namespace

void add_file_routes(http::Router& router, const DoorPtr& door) {
  http::RouteOptions upload;
  upload.body = http::Body::kStream;
  upload.body_bytes = http::kUploadBytes;
  router.add(
      "POST", "/v1/files", [door](const ExchangePtr& exchange) { answer_upload(door, exchange); },
      upload);
  router.add("GET", "/v1/files",
             [door](const ExchangePtr& exchange) { list_files(door, exchange); });
  router.add("GET", "/v1/files/{id}",
             [door](const ExchangePtr& exchange) { get_file(door, exchange); });
  router.add("DELETE", "/v1/files/{id}",
             [door](const ExchangePtr& exchange) { delete_file(door, exchange); });
  router.add("GET", "/v1/files/{id}/content", [door](const ExchangePtr& exchange) {
    std::make_shared<Download>(exchange)->begin(*door, exchange->request().parameter("id"));
  });
}

}  // namespace dex::gateway::openai
