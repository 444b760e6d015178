#include "client/cpp/adapter_archive.h"

#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "services/base/sha256.h"
#include "tests/support/written_tar.h"

namespace dex::client {
namespace {

namespace fs = std::filesystem;
using support::written_tar;
using testing::HasSubstr;

class AdapterArchiveTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "dex-archive-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    folder_ = root_ / "adapter";
  }
  void TearDown() override { fs::remove_all(root_); }

  static support::TarEntries artefact() {
    const nlohmann::json sums = {{"adapter_config.json", base::sha256_hex("{}")},
                                 {"adapter_model.safetensors", base::sha256_hex("weights")}};
    return {{"checksums.json", sums.dump()},
            {"adapter_config.json", "{}"},
            {"adapter_model.safetensors", "weights"}};
  }

  // Feeds the bytes in pieces of `step`.
  base::Status unpack(const std::string& bytes, size_t step = 1000) {
    size_t at = 0;
    return unpack_adapter(
        [&]() -> std::optional<std::string_view> {
          if (at >= bytes.size()) return std::nullopt;
          const std::string_view piece = std::string_view(bytes).substr(at, step);
          at += piece.size();
          return piece;
        },
        folder_);
  }

  fs::path root_, folder_;
};

TEST_F(AdapterArchiveTest, UnpacksAndChecksEveryFile) {
  ASSERT_TRUE(unpack(written_tar(artefact()), 7).ok());
  std::ifstream in(folder_ / "adapter_model.safetensors");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "weights");
}

TEST_F(AdapterArchiveTest, RefusesWhatIsNotWhole) {
  auto changed = artefact();
  changed[2].second = "WEIGHTS";
  auto missing = artefact();
  missing.pop_back();
  auto extra = artefact();
  extra.push_back({"notes.txt", "x"});
  std::string cut = written_tar(artefact());
  cut.resize(1100);
  for (const std::string& bytes : {written_tar(changed), written_tar(missing), written_tar(extra),
                                   cut, std::string("not a tar at all")}) {
    const auto status = unpack(bytes);
    EXPECT_EQ(status.reason(), "ARTIFACT_CORRUPT") << status.to_string();
    EXPECT_FALSE(fs::exists(folder_));
  }
}

TEST_F(AdapterArchiveTest, TakesPlainFilesWithPlainNamesOnly) {
  for (const char* name : {"../evil", "/etc/evil", "a/b", ".hidden"}) {
    auto entries = artefact();
    entries.push_back({name, "x"});
    const auto status = unpack(written_tar(entries));
    EXPECT_EQ(status.reason(), "ARTIFACT_CORRUPT") << name;
    EXPECT_THAT(status.message(), HasSubstr("not a plain file"));
  }
  EXPECT_THAT(unpack(written_tar({{"link", "/etc/passwd"}}, AE_IFLNK)).message(),
              HasSubstr("not a plain file"));
  EXPECT_FALSE(fs::exists(root_ / "evil"));
}

TEST_F(AdapterArchiveTest, LeavesAFolderWithContentAlone) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "mine") << "keep";
  EXPECT_THAT(unpack(written_tar(artefact())).message(), HasSubstr("not empty"));
  EXPECT_TRUE(fs::exists(folder_ / "mine"));
}

// A folder with these files.
void write_folder(const fs::path& folder,
                  const std::vector<std::pair<std::string, std::string>>& files) {
  fs::create_directories(folder);
  for (const auto& [name, content] : files) std::ofstream(folder / name) << content;
}

std::string packed(const fs::path& folder) {
  std::string bytes;
  const auto status = pack_adapter(folder, [&bytes](std::string_view piece) {
    bytes += piece;
    return true;
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
  return bytes;
}

TEST_F(AdapterArchiveTest, WhatIsPackedUnpacksAsItWas) {
  auto files = artefact();
  files[2].second = std::string(700'000, 'w');  // more than a piece
  files[0].second = nlohmann::json{{"adapter_config.json", base::sha256_hex("{}")},
                                   {"adapter_model.safetensors", base::sha256_hex(files[2].second)}}
                        .dump();
  write_folder(root_ / "mine", files);
  write_folder(root_ / "mine", {{"optimizer.pt", "stays here"}, {"README.md", "too"}});
  const std::string bytes = packed(root_ / "mine");
  EXPECT_EQ(bytes.size() % 512, 0U);
  EXPECT_EQ(bytes, packed(root_ / "mine")) << "a repeat has the same bytes";
  ASSERT_TRUE(unpack(bytes).ok());
  std::ifstream in(folder_ / "adapter_model.safetensors");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), files[2].second);
  EXPECT_FALSE(fs::exists(folder_ / "optimizer.pt"));
}

TEST_F(AdapterArchiveTest, OnlyAnAdaptersFolderIsPacked) {
  const auto refusal = [this] {
    bool asked = false;
    const auto status = pack_adapter(root_ / "mine", [&asked](std::string_view) {
      asked = true;
      return true;
    });
    EXPECT_FALSE(asked);
    return status;
  };
  EXPECT_EQ(refusal().reason(), "RESOURCE_NOT_FOUND");
  write_folder(root_ / "mine", {{"adapter_config.json", "{}"}, {"adapter_model.bin", "pickle"}});
  EXPECT_THAT(refusal().message(), HasSubstr("safe_serialization"));
}

TEST_F(AdapterArchiveTest, NobodyWhoTakesItEndsThePacking) {
  write_folder(root_ / "mine", artefact());
  int pieces = 0;
  const auto status = pack_adapter(root_ / "mine", [&pieces](std::string_view) {
    ++pieces;
    return false;
  });
  EXPECT_EQ(status.code(), base::Code::kCancelled);
  EXPECT_GE(pieces, 1);
}

}  // namespace
}  // namespace dex::client
