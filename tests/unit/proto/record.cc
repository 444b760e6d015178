// dex-proto-record: writes what proto/ promises now to tests/data/proto/contract.txt. Refuses while
// something that was promised is broken: who means to break it edits that line by hand.

#include <cstdio>
#include <exception>

#include "tests/unit/proto/compare.h"
#include "tests/unit/proto/contract_file.h"

int main() {
  using namespace dex::contract;
  try {
    const Listing now = current_contract();
    const Comparison found = compare(promised_contract(), now);
    for (const auto& fault : found.breaks) std::fprintf(stderr, "broken: %s\n", fault.c_str());
    if (!found.breaks.empty()) return 1;
    std::ofstream file(contract_path());
    for (const auto& line : now) file << line << "\n";
    file.close();
    if (!file) throw std::runtime_error(contract_path() + " can't be written");
    std::printf("%zu lines, %zu of them new, in %s\n", now.size(), found.additions.size(),
                contract_path().c_str());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "dex-proto-record: %s\n", error.what());
    return 1;
  }
}
