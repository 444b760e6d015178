#pragma once

#include <fstream>
#include <stdexcept>
#include <string>

#include "tests/unit/proto/listing.h"

namespace dex::contract {

// tests/data/proto/contract.txt: the listing that was promised so far.
inline std::string contract_path() {
  return DEX_SOURCE_DIR "/tests/data/proto/contract.txt";
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
  std::ifstream file(DEX_PROTO_DESCRIPTORS, std::ios::binary);
  google::protobuf::FileDescriptorSet set;
  if (!set.ParseFromIstream(&file))
    throw std::runtime_error(DEX_PROTO_DESCRIPTORS " is no descriptor set");
  return list_contract(set, "dex.");
}

}  // namespace dex::contract
