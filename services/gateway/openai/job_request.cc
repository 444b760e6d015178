#include "services/gateway/openai/job_request.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <vector>

#include "services/gateway/openai/proto_json.h"

namespace dex::gateway::openai {

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr const char* kMethods[] = {"dex", "kvo_only", "lora", "adapter", "full", "diff"};
constexpr const char* kNoMethod = "must be supervised, dex, kvo_only, lora, adapter, full or diff";

// Takes over what OpenAI's hyperparameters object says. "auto" is no value: unset means auto.
void read_hyperparameters(const json& value, const std::string& path, v1::FineTuningJobSpec& spec,
                          Faults& faults) {
  if (!value.is_object()) return faults.add("INVALID_FIELD", path, "must be a JSON object");
  json given = value;
  for (auto it = given.begin(); it != given.end();) {
    const bool none = it->is_null() || (it->is_string() && *it == "auto");
    // A name that is not known stays, "auto" or not, so that it is refused.
    const bool known = v1::Hyperparameters::descriptor()->FindFieldByName(it.key()) != nullptr;
    it = none && known ? given.erase(it) : std::next(it);
  }
  if (given.empty()) return;
  read_message(given, path, *spec.mutable_hyperparameters(), faults);
}

Message* method_message(const std::string& type, v1::FineTuningJobSpec& spec) {
  const auto* field = v1::FineTuningJobSpec::descriptor()->FindFieldByName(type);
  return spec.GetReflection()->MutableMessage(&spec, field);
}

// Our method's block: its message, and beside its fields `hyperparameters`.
void read_own_method(const json& block, const std::string& type, v1::FineTuningJobSpec& spec,
                     bool& has_hyperparameters, Faults& faults) {
  const std::string path = "method." + type;
  Message& message = *method_message(type, spec);
  if (!block.is_object()) return faults.add("INVALID_FIELD", path, "must be a JSON object");
  json fields = block;
  const auto inner = fields.find("hyperparameters");
  if (inner != fields.end()) {
    has_hyperparameters = !inner->is_null();
    if (has_hyperparameters) read_hyperparameters(*inner, path + ".hyperparameters", spec, faults);
    fields.erase(inner);
  }
  read_message(fields, path, message, faults);
}

void read_supervised(const json& block, v1::FineTuningJobSpec& spec, bool& has_hyperparameters,
                     Faults& faults) {
  spec.mutable_dex();
  if (!block.is_object())
    return faults.add("INVALID_FIELD", "method.supervised", "must be a JSON object");
  ObjectReader reader(block, "method.supervised", faults);
  if (const json* inner = reader.take("hyperparameters")) {
    has_hyperparameters = true;
    read_hyperparameters(*inner, "method.supervised.hyperparameters", spec, faults);
  }
  reader.end();
}

void read_method(const json& method, v1::FineTuningJobSpec& spec, bool& has_hyperparameters,
                 Faults& faults) {
  if (!method.is_object()) return faults.add("INVALID_FIELD", "method", "must be a JSON object");
  ObjectReader reader(method, "method", faults);
  const std::string type = reader.required_text("type");
  const bool own = std::find(std::begin(kMethods), std::end(kMethods), type) != std::end(kMethods);
  if (type == "dpo" || type == "reinforcement") {
    reader.unsupported("type", std::string(kNoMethod) + ", got " + type);
  } else if (!type.empty() && type != "supervised" && !own) {
    faults.add("INVALID_FIELD", "method.type",
               std::string(kNoMethod) + ", got '" + type.substr(0, 40) + "'");
  }
  if (!own && type != "supervised") return;
  // The other methods' blocks are no part of this one: end() refuses them.
  const json* block = reader.take(type);
  const json none = json::object();
  if (own) {
    read_own_method(block == nullptr ? none : *block, type, spec, has_hyperparameters, faults);
  } else {
    read_supervised(block == nullptr ? none : *block, spec, has_hyperparameters, faults);
  }
  reader.end();
}

void read_metadata(const json& value, v1::FineTuningJobSpec& spec, Faults& faults) {
  if (!value.is_object()) return faults.add("INVALID_FIELD", "metadata", "must be a JSON object");
  for (const auto& [key, item] : value.items()) {
    if (item.is_string()) {
      (*spec.mutable_metadata())[key] = item.get<std::string>();
    } else {
      faults.add("INVALID_FIELD", "metadata." + key, "must be a string");
    }
  }
}

// The path of the first field that both set; empty: none. Maps and lists count whole, messages are
// looked into.
std::string overlap(const Message& a, const Message& b, const std::string& path) {
  std::vector<const FieldDescriptor*> fields;
  a.GetReflection()->ListFields(a, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string here = path.empty() ? field->name() : path + "." + field->name();
    if (const auto* choice = field->real_containing_oneof()) {
      const auto* other = b.GetReflection()->GetOneofFieldDescriptor(b, choice);
      if (other != nullptr && other != field) return here;
    }
    const bool both = field->is_repeated() ? b.GetReflection()->FieldSize(b, field) > 0
                                           : b.GetReflection()->HasField(b, field);
    if (!both) continue;
    const bool message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (field->is_repeated() || !message) return here;
    const auto deeper = overlap(a.GetReflection()->GetMessage(a, field),
                                b.GetReflection()->GetMessage(b, field), here);
    if (!deeper.empty()) return deeper;
  }
  return {};
}

void read_dex(const json& value, v1::FineTuningJobSpec& spec, Faults& faults) {
  v1::FineTuningJobSpec own;
  read_message(value, "dex", own, faults);
  const std::string both = overlap(spec, own, "");
  if (!both.empty()) {
    return faults.add("CONFLICTING_FIELDS", "dex." + both,
                      "is also given by OpenAI's own fields; give it once");
  }
  spec.MergeFrom(own);
}

}  // namespace

base::Result<v1::CreateFineTuningJobRequest> read_create_job(const json& body) {
  Faults faults;
  v1::CreateFineTuningJobRequest request;
  v1::FineTuningJobSpec& spec = *request.mutable_spec();
  ObjectReader reader(body, "", faults);
  spec.set_model(reader.required_text("model"));
  spec.set_training_file(reader.required_text("training_file"));
  if (const auto file = reader.text("validation_file")) spec.set_validation_file(*file);
  if (const auto suffix = reader.text("suffix")) spec.set_suffix(*suffix);
  if (const auto seed = reader.integer("seed", 0, INT64_MAX)) spec.set_seed(*seed);
  if (const json* metadata = reader.take("metadata")) read_metadata(*metadata, spec, faults);
  bool in_method = false;
  if (const json* method = reader.take("method")) read_method(*method, spec, in_method, faults);
  if (const json* top = reader.take("hyperparameters")) {
    if (in_method) {
      faults.add("CONFLICTING_FIELDS", "hyperparameters",
                 "are also given in method; give them once");
    } else {
      read_hyperparameters(*top, "hyperparameters", spec, faults);
    }
  }
  if (const json* integrations = reader.take("integrations")) {
    if (!integrations->is_array() || !integrations->empty()) {
      reader.unsupported("integrations",
                         "are not supported; follow the job's events, or mirror them with "
                         "client/python");
    }
  }
  if (const json* dex = reader.take("dex")) read_dex(*dex, spec, faults);
  reader.end();
  DEX_RETURN_IF_ERROR(faults.status());
  return request;
}

}  // namespace dex::gateway::openai
