#pragma once

#include <fstream>
#include <stdexcept>
#include <string>

#include "tests/support/paths.h"
#include "tests/unit/proto/listing.h"

namespace dex::contract {

// tests/data/proto/contract.txt: the listing that was promised so far.
inline std::string contract_path() {
  return support::source_dir() / "tests/data/proto/contract.txt";
}

inline Listing promised_contract() {
  std::ifstream file(contract_path());
  if (!file) throw std::runtime_error(contract_path() + " can't be read");
  Listing lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

// The listing of the .proto files as they are, by the descriptors that protoc made in this build.
inline Listing current_contract() {
  const auto path = support::build_dir() / "tests/unit/proto/contract.binpb";
  std::ifstream file(path, std::ios::binary);
  google::protobuf::FileDescriptorSet set;
  if (!set.ParseFromIstream(&file))
    throw std::runtime_error(path.string() + " is no descriptor set");
  return list_contract(set, "dex.");
}

}  // namespace dex::contract
