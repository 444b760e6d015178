#include "services/base/sha256.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_directory.h"

namespace dex::base {
namespace {

// FIPS 180-2, appendix B.
TEST(Sha256Test, KnowsTheStandardsExamples) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256Test, PiecesGiveTheSameAsTheWholeAndTheObjectStartsAnew) {
  Sha256 hash;
  hash.update("a");
  hash.update("bc");
  EXPECT_EQ(hash.hex(), sha256_hex("abc"));
  EXPECT_EQ(hash.hex(), sha256_hex(""));
}

TEST(Sha256Test, HashesAFileLargerThanItsBuffer) {
  const support::TemporaryDirectory directory;
  const std::string content(3'000'001, 'x');
  std::ofstream(directory / "f") << content;
  EXPECT_EQ(sha256_file(directory / "f").value(), sha256_hex(content));
  EXPECT_EQ(sha256_file(directory / "none").status().reason(), "FILE_MISSING");
}

}  // namespace
}  // namespace dex::base
