#include "tests/integration/scheduler_model/command.h"

#include <ostream>

namespace dex::model {

std::ostream& operator<<(std::ostream& out, const Command& command) {
  static const char* const kNames[] = {
      "submit", "claim",     "beat",       "finish",  "cancel",  "pause", "resume", "redrive",
      "update", "purge",     "checkpoint", "tenant",  "worker",  "file",  "time",   "sweep",
      "zombie", "reconnect", "restart",    "archive", "adapter", "damage"};
  return out << kNames[static_cast<size_t>(command.kind)] << ":" << command.dice;
}

uint64_t Dice::next() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

int Dice::pick(int n) {
  return n <= 0 ? 0 : static_cast<int>(next() % static_cast<uint64_t>(n));
}

}  // namespace dex::model
