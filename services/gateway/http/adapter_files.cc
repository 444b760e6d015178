#include "services/gateway/http/adapter_files.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "dex/v1/adapters.pb.h"
#include "services/gateway/http/form_upload.h"
#include "services/gateway/http/http_error.h"

namespace dex::gateway::http {

namespace {

// "ft:smol:acme:code:01…" → "ft-smol-acme-code-01….tar": a name for every file system.
std::string file_name_of(std::string id) {
  std::replace_if(
      id.begin(), id.end(),
      [](unsigned char c) { return std::isalnum(c) == 0 && c != '.' && c != '_' && c != '-'; },
      '-');
  return id.substr(0, 200) + ".tar";
}

// A download's answer: begun with its first bytes, so that until then it can be refused properly.
struct Download {
  ExchangePtr exchange;
  std::string name;
  bool begun = false;

  void begin() {
    if (std::exchange(begun, true)) return;
    Exchange::StreamStart start;
    start.content_type = "application/x-tar";
    start.headers = {{"Content-Disposition", "attachment; filename=\"" + name + "\""}};
    exchange->stream(std::move(start));
  }
};

void download(const ExchangePtr& exchange, Upstream& upstream) {
  const Request& request = exchange->request();
  v1::DownloadAdapterRequest message;
  message.set_id(request.parameter("id"));
  if (const auto made = request.query_value("export")) message.set_export_(*made);
  const std::string& named = message.export_().empty() ? message.id() : message.export_();
  const auto state = std::make_shared<Download>(Download{exchange, file_name_of(named)});
  CallOptions options;
  options.timeout = std::chrono::milliseconds(0);
  upstream.watch<v1::DownloadAdapterResponse>(
      exchange, "/dex.v1.AdapterService/DownloadAdapter", message,
      [state](const Upstream::StreamPtr& stream, v1::DownloadAdapterResponse piece) {
        state->begin();
        state->exchange->write(std::move(*piece.mutable_chunk()), [stream](bool written) {
          written ? stream->next() : stream->cancel();
        });
      },
      [state](const grpc::Status& status, const Headers&) {
        if (!status.ok() && !state->begun) return refuse(*state->exchange, status);
        state->begin();
        // Half a file must not look like a whole one.
        status.ok() ? state->exchange->end() : state->exchange->cut();
      },
      options);
}

}  // namespace

void add_adapter_files(Router& router, Upstream& upstream) {
  router.add("GET", "/adapters/{id}/download",
             [&upstream](const ExchangePtr& exchange) { download(exchange, upstream); });
  const auto* import = v1::ImportAdapterRequest::descriptor()
                           ->file()
                           ->FindServiceByName("AdapterService")
                           ->FindMethodByName("ImportAdapter");
  add_form_upload(router, "/adapters/import", upstream, *import);
}

}  // namespace dex::gateway::http
