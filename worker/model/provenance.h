#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

#include "worker/model/adapter.h"
#include "worker/model/json_fields.h"

namespace dex::model {

// Where an artefact comes from: hashes of base, tokenizer and template, job, metrics. Our own
// adapter_config.json has these keys itself; artefacts whose config is somebody else's format
// (PEFT's LoRA, a checkpoint) have them in provenance.json.
void add_provenance(const Adapter& adapter, nlohmann::ordered_json& json);
void read_provenance(const JsonFields& fields, Adapter& adapter);

// provenance.json ⇄ the same. The reader throws "[adapter] <source>: key …, expected …, found …".
std::string provenance_json(const Adapter& adapter);
void read_provenance(std::string_view json, const std::string& source, Adapter& adapter);

}  // namespace dex::model
