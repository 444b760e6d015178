#include "worker/model/provenance.h"

#include "services/base/sha256.h"

namespace dex::model {

namespace {

using Json = nlohmann::ordered_json;
constexpr int64_t kFormatVersion = 1;

std::string read_hash(const JsonFields& fields, const std::string& key, bool may_be_empty) {
  const std::string hash = fields.text(key);
  if ((may_be_empty && hash.empty()) || base::is_sha256_hex(hash)) return hash;
  fields.fail(key, "64 lower-case hex digits", "\"" + hash.substr(0, 70) + "\"");
}

}  // namespace

void add_provenance(const Adapter& adapter, Json& json) {
  json["base_weights_sha256"] = adapter.base_weights_sha256;
  json["tokenizer_sha256"] = adapter.tokenizer_sha256;
  json["chat_template_sha256"] = adapter.chat_template_sha256;
  json["job_id"] = adapter.job_id;
  json["metrics"] = Json::parse(adapter.metrics);
  json["branch_effect"] = Json::parse(adapter.branch_effect);
}

void read_provenance(const JsonFields& fields, Adapter& adapter) {
  adapter.base_weights_sha256 = read_hash(fields, "base_weights_sha256", false);
  adapter.tokenizer_sha256 = read_hash(fields, "tokenizer_sha256", true);
  adapter.chat_template_sha256 = read_hash(fields, "chat_template_sha256", true);
  adapter.job_id = fields.text("job_id");
  fields.object("metrics");
  fields.object("branch_effect");
  adapter.metrics = fields.raw("metrics").dump();
  adapter.branch_effect = fields.raw("branch_effect").dump();
}

std::string provenance_json(const Adapter& adapter) {
  Json json = {{"dex_format_version", kFormatVersion},
               {"base_model_name_or_path", adapter.base_model_name_or_path},
               {"train", name(adapter.adaptation.options.train)}};
  add_provenance(adapter, json);
  return json.dump(2) + "\n";
}

void read_provenance(std::string_view text, const std::string& source, Adapter& adapter) {
  const nlohmann::json json = parse_object(text, "adapter", source);
  const JsonFields fields(json, "adapter", source);
  fields.allow_only({"dex_format_version", "base_model_name_or_path", "train",
                     "base_weights_sha256", "tokenizer_sha256", "chat_template_sha256", "job_id",
                     "metrics", "branch_effect"});
  fields.integer("dex_format_version", kFormatVersion, kFormatVersion);
  const std::string_view train = name(adapter.adaptation.options.train);
  if (fields.text("train") != train)
    fields.fail("train", "\"" + std::string(train) + "\"", "\"" + fields.text("train") + "\"");
  read_provenance(fields, adapter);
}

}  // namespace dex::model
