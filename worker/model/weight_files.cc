#include <nlohmann/json.hpp>
#include <stdexcept>

#include "services/base/files.h"
#include "services/base/sha256.h"
#include "worker/model/json_fields.h"
#include "worker/model/safetensors.h"
#include "worker/model/safetensors_header.h"

namespace dex::model {

namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr int64_t kMaxIndexBytes = 16 << 20;

// tensor → file of an index; file names must be plain names, so that an index can't reach out of
// its directory.
std::map<std::string, std::string> read_index(const std::filesystem::path& path) {
  const std::string source = path.string();
  const auto text = base::read_file(path, kMaxIndexBytes);
  if (!text.ok()) fail_safetensors(source, text.status().message());
  const nlohmann::json json = parse_object(*text, "safetensors", source);
  const JsonFields fields(json, "safetensors", source);
  fields.object("weight_map");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : fields.raw("weight_map").items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    const bool plain =
        name.ends_with(".safetensors") && name.find('/') == std::string::npos && name[0] != '.';
    if (!plain)
      fields.fail("weight_map." + tensor, "a file name in this directory",
                  file.dump().substr(0, 80));
    files[tensor] = name;
  }
  return files;
}

}  // namespace

WeightFiles WeightFiles::open(const std::filesystem::path& dir) {
  WeightFiles weights;
  weights.dir_ = dir;
  const auto index = dir / kIndexFile;
  if (!std::filesystem::exists(index)) {
    const auto& file =
        weights.files_
            .emplace(kSingleFile, Safetensors::open(dir / kSingleFile, Safetensors::Access::kMap))
            .first->second;
    for (const auto& [name, info] : file.tensors()) weights.file_of_[name] = kSingleFile;
    return weights;
  }
  weights.file_of_ = read_index(index);
  for (const auto& [tensor, file] : weights.file_of_) {
    if (!weights.files_.contains(file)) {
      if (!std::filesystem::exists(dir / file)) {
        fail_safetensors(index.string(), "names the shard \"" + file + "\" (of \"" + tensor +
                                             "\"), which is not there: download all shards");
      }
      weights.files_.emplace(file, Safetensors::open(dir / file, Safetensors::Access::kMap));
    }
    if (!weights.files_.at(file).has(tensor)) {
      fail_safetensors((dir / file).string(),
                       "expected tensor \"" + tensor + "\" of the index, found none");
    }
  }
  for (const auto& [file, content] : weights.files_) {
    for (const auto& [tensor, info] : content.tensors()) {
      const auto named = weights.file_of_.find(tensor);
      if (named == weights.file_of_.end())
        fail_safetensors((dir / file).string(), "tensor \"" + tensor + "\" is not in the index");
      if (named->second != file) {
        fail_safetensors((dir / file).string(),
                         "tensor \"" + tensor + "\" is also in " + named->second +
                             ", where the index has it: which one is meant?");
      }
    }
  }
  return weights;
}

bool WeightFiles::has(const std::string& name) const {
  return file_of_.contains(name);
}

std::vector<std::string> WeightFiles::names() const {
  std::vector<std::string> names;
  for (const auto& [tensor, file] : file_of_) names.push_back(tensor);
  return names;
}

const TensorInfo& WeightFiles::info(const std::string& name) const {
  const auto file = file_of_.find(name);
  if (file == file_of_.end())
    fail_safetensors(dir_.string(), "expected tensor \"" + name + "\", found none");
  return files_.at(file->second).tensors().at(name);
}

at::Tensor WeightFiles::tensor(const std::string& name) const {
  const auto file = file_of_.find(name);
  if (file == file_of_.end())
    fail_safetensors(dir_.string(), "expected tensor \"" + name + "\", found none");
  return files_.at(file->second).tensor(name);
}

std::vector<std::span<const char>> WeightFiles::mappings() const {
  std::vector<std::span<const char>> all;
  for (const auto& [name, file] : files_) all.push_back(file.mapping());
  return all;
}

std::string WeightFiles::sha256() const {
  // Read in pieces: pages of a second mapping would count as this process' memory once more.
  const auto of = [this](const std::string& file) {
    auto hash = base::sha256_file(dir_ / file);
    if (!hash.ok()) fail_safetensors((dir_ / file).string(), hash.status().message());
    return std::move(hash).value();
  };
  if (files_.size() == 1 && files_.contains(kSingleFile)) return of(kSingleFile);
  std::string lines;
  for (const auto& [file, content] : files_) lines += of(file) + "  " + file + "\n";
  return base::sha256_hex(lines);
}

}  // namespace dex::model
