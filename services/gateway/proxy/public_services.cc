#include "services/gateway/proxy/public_services.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>

#include "dex/v1/adapters.pb.h"
#include "dex/v1/admin.pb.h"
#include "dex/v1/evaluation.pb.h"
#include "dex/v1/files.pb.h"
#include "dex/v1/finetuning.pb.h"
#include "dex/v1/inference.pb.h"
#include "dex/v1/models.pb.h"

namespace dex::gateway {

namespace {

// Naming a message of each file also makes the linker keep the file, for reflection.
std::vector<std::string> collect() {
  const google::protobuf::Descriptor* messages[] = {
      v1::FineTuningJob::descriptor(),   v1::File::descriptor(),       v1::Adapter::descriptor(),
      v1::GenerateRequest::descriptor(), v1::Evaluation::descriptor(), v1::Model::descriptor(),
      v1::Health::descriptor()};
  std::vector<std::string> names;
  for (const auto* message : messages) {
    const auto* file = message->file();
    for (int i = 0; i < file->service_count(); ++i) names.push_back(file->service(i)->full_name());
  }
  return names;
}

const google::protobuf::MethodDescriptor* method_at(std::string_view path) {
  std::string name(path.substr(std::min<size_t>(1, path.size())));
  std::replace(name.begin(), name.end(), '/', '.');
  return google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(name);
}

std::unique_ptr<google::protobuf::Message> new_message(const google::protobuf::Descriptor* type) {
  const auto* prototype = google::protobuf::MessageFactory::generated_factory()->GetPrototype(type);
  return std::unique_ptr<google::protobuf::Message>(prototype == nullptr ? nullptr
                                                                         : prototype->New());
}

}  // namespace

const std::vector<std::string>& public_services() {
  static const std::vector<std::string> kNames = collect();
  return kNames;
}

std::string_view service_of(std::string_view path) {
  if (!path.starts_with('/')) return {};
  const auto slash = path.find('/', 1);
  if (slash == std::string_view::npos) return {};
  return path.substr(1, slash - 1);
}

bool is_public(std::string_view service) {
  const auto& names = public_services();
  return std::find(names.begin(), names.end(), service) != names.end();
}

bool is_known(std::string_view path) {
  return method_at(path) != nullptr;
}

std::unique_ptr<google::protobuf::Message> new_request(std::string_view path) {
  const auto* method = method_at(path);
  return method == nullptr ? nullptr : new_message(method->input_type());
}

std::unique_ptr<google::protobuf::Message> new_reply(std::string_view path) {
  const auto* method = method_at(path);
  return method == nullptr ? nullptr : new_message(method->output_type());
}

bool changes_state(std::string_view path) {
  const auto* method = method_at(path);
  if (method == nullptr) return false;
  const auto* request = method->input_type();
  if (const auto* header = request->FindFieldByName("header");
      header != nullptr && header->message_type() != nullptr) {
    request = header->message_type();
  }
  return request->FindFieldByName("request_id") != nullptr;
}

bool is_unary(std::string_view path) {
  const auto* method = method_at(path);
  return method != nullptr && !method->client_streaming() && !method->server_streaming();
}

}  // namespace dex::gateway
