#include "worker/model/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "services/base/sha256.h"
#include "tests/support/figures.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/kernels/tensors.h"

namespace dex::model {
namespace {

namespace fs = std::filesystem;

std::string length_field(uint64_t length) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i) & 0xff);
  return bytes;
}

std::string file_of(const std::string& header, size_t data_bytes) {
  return length_field(header.size()) + header + std::string(data_bytes, '\0');
}

std::string one(const std::string& entry, size_t data_bytes) {
  return file_of("{\"a\":" + entry + "}", data_bytes);
}

class SafetensorsTest : public ::testing::Test {
 protected:
  support::TemporaryDirectory dir;
  fs::path path = dir / "file.safetensors";

  void put(const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }
  // The refusal's text, the same for both ways of reading.
  std::string refusal() {
    std::string texts[2];
    for (const auto access : {Safetensors::Access::kMap, Safetensors::Access::kRead}) {
      auto& text = texts[access == Safetensors::Access::kRead];
      try {
        Safetensors::open(path, access);
        text = "accepted";
      } catch (const std::runtime_error& error) {
        text = error.what();
      }
    }
    EXPECT_EQ(texts[0], texts[1]);
    return texts[0];
  }
};

TEST_F(SafetensorsTest, ReadsWhatItWrites) {
  const NamedTensors tensors{{"b", testing::random_tensor({3, 5}, 1)},
                             {"a", testing::random_tensor({7}, 2, at::kBFloat16)},
                             {"c", testing::random_tensor({2, 2}, 3, at::kDouble)},
                             {"half", testing::random_tensor({3}, 4, at::kHalf)},
                             {"ids", at::arange(5, at::kLong)},
                             {"flags", at::tensor({1, 0, 1}, at::kInt).to(at::kBool)},
                             {"scalar", at::tensor(2.5)},
                             {"none", at::empty({0, 4})}};
  write_safetensors(path, tensors, {{"format", "pt"}});
  for (const auto access : {Safetensors::Access::kMap, Safetensors::Access::kRead}) {
    const Safetensors file = Safetensors::open(path, access);
    EXPECT_EQ(file.tensors().size(), tensors.size());
    EXPECT_EQ(file.metadata().at("format"), "pt");
    for (const auto& [name, tensor] : tensors) {
      EXPECT_EQ(file.tensor(name).scalar_type(), tensor.scalar_type()) << name;
      EXPECT_TRUE(file.tensor(name).equal(tensor)) << name;
    }
    EXPECT_EQ(file.sha256(), *base::sha256_file(path));
    EXPECT_THROW(file.tensor("missing"), std::runtime_error);
  }
  EXPECT_FALSE(fs::exists(path.string() + ".tmp"));
}

TEST_F(SafetensorsTest, BytesDependOnlyOnTheTensors) {
  const NamedTensors one_order{{"x", testing::random_tensor({3}, 1)},
                               {"y", testing::random_tensor({4}, 2)}};
  const NamedTensors other_order{one_order[1], one_order[0]};
  write_safetensors(path, one_order);
  write_safetensors(dir / "second", other_order);
  EXPECT_EQ(*base::sha256_file(path), *base::sha256_file(dir / "second"));
}

TEST_F(SafetensorsTest, TensorsOutliveTheFileObjectAndItsName) {
  at::Tensor tensor;
  {
    write_safetensors(path, {{"x", at::full({1000}, 7.0)}});
    tensor = Safetensors::open(path, Safetensors::Access::kMap).tensor("x");
    fs::remove(path);
  }
  EXPECT_EQ(tensor.sum().item<double>(), 7000);
}

TEST_F(SafetensorsTest, AnUnalignedTensorIsRead) {
  std::string header = R"({"byte":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                       R"("x":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})";
  std::string bytes = file_of(header, 5);
  const float value = 1.5F;
  bytes.replace(bytes.size() - 4, 4, reinterpret_cast<const char*>(&value), 4);
  put(bytes);
  EXPECT_EQ(Safetensors::open(path, Safetensors::Access::kMap).tensor("x").item<float>(), 1.5F);
}

TEST_F(SafetensorsTest, AcceptsPaddingMetadataAndNoTensors) {
  put(file_of("{}      ", 0));
  EXPECT_EQ(refusal(), "accepted");
  put(file_of(R"({"__metadata__":{"a":"b"}})", 0));
  EXPECT_EQ(refusal(), "accepted");
}

// The hostile list of jobs.md §10 as far as it concerns this format.
TEST_F(SafetensorsTest, RefusesHostileFiles) {
  const std::string good = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  std::string many = "{";
  for (int i = 0; i <= 100'000; ++i) {
    many += (i > 0 ? "," : "") + std::string("\"") + std::to_string(i) +
            R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  many += "}";
  const std::vector<std::pair<std::string, std::string>> files{
      {"at least 8 bytes", ""},
      {"at least 8 bytes", "1234567"},
      {"must start with {", length_field(0)},
      {"at most 16 MiB", length_field(uint64_t{1} << 63) + "{}"},
      {"at most 16 MiB", length_field(UINT64_MAX) + "{}"},
      {"in a file of", length_field(100) + "{}"},
      {"must start with {", file_of("[]", 0)},
      {"must start with {", file_of(" {}", 0)},
      {"not valid JSON", file_of("{", 0)},
      {"not valid JSON", file_of("{}x", 0)},
      {"not valid JSON", file_of("{\"\xff\xfe\":" + good + "}", 4)},
      {"not valid JSON", file_of("{\"\xed\xa0\x80\":" + good + "}", 4)},  // a surrogate in UTF-8
      {"duplicate key \"a\"", file_of("{\"a\":" + good + ",\"a\":" + good + "}", 4)},
      {"duplicate key \"dtype\"",
       one(R"({"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]})", 4)},
      {"duplicate key \"k\"", file_of(R"({"__metadata__":{"k":"1","k":"2"}})", 0)},
      {"unknown dtype \"F7\"", one(R"({"dtype":"F7","shape":[1],"data_offsets":[0,4]})", 4)},
      {"unknown dtype", one(R"({"dtype":"f32","shape":[1],"data_offsets":[0,4]})", 4)},
      {"unknown field \"extra\"",
       one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"extra":1})", 4)},
      {"dtype, shape and data_offsets are needed", one(R"({"dtype":"F32","shape":[1]})", 4)},
      {"end before they begin", one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})", 4)},
      {"data_offsets must be two", one(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})", 4)},
      {"data_offsets must be two", one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,8]})", 4)},
      {"negative number -1", one(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})", 4)},
      {"negative number -4", one(R"({"dtype":"F32","shape":[1],"data_offsets":[-4,0]})", 4)},
      {"not an integer", one(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})", 4)},
      {"too large",
       one(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]})", 4)},
      {"does not fit 64 bits",
       one(R"({"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]})", 4)},
      {"does not fit 64 bits",
       one(R"({"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]})", 0)},
      {"does not fit 64 bits",
       one(R"({"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]})", 0)},
      {"need 8 bytes, data_offsets span 4",
       one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})", 4)},
      {"rank above 8",
       one(R"({"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]})", 1)},
      {"hole", one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})", 8)},
      {"hole",
       file_of("{\"a\":" + good + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
               12)},
      {"overlap",
       file_of("{\"a\":" + good + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})", 6)},
      {"overlap",
       file_of("{\"a\":" + good + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4)},
      {"the file holds 5", one(good, 5)},  // trailing bytes
      {"the file holds 3", one(good, 3)},  // truncated
      {"the file holds 8", file_of("{}", 8)},
      {"more than 100000 tensors", file_of(many, 0)},
      {"an object where there must be none", one(R"({"dtype":{"x":{}}})", 4)},
      {"an array where there must be none", one(R"({"dtype":[[[[1]]]]})", 4)},
      {"an array where there must be none",
       one(R"({"dtype":"F32","shape":[[1]],"data_offsets":[0,4]})", 4)},
      {"a string where there must be none", one("\"x\"", 4)},
      {"a number where there must be none", file_of(R"({"__metadata__":{"k":1}})", 0)},
      {"null", one("null", 4)},
      {"an object where there must be none", file_of(R"({"__metadata__":{"k":{}}})", 0)},
      {"array where there must be none", file_of("{\"a\":" + std::string(100'000, '[') + "}", 0)},
  };
  EXPECT_GE(files.size(), 30U);
  for (const auto& [expected, bytes] : files) {
    put(bytes);
    const std::string text = refusal();
    EXPECT_NE(text.find(expected), std::string::npos)
        << "expected: " << expected << "\nfound: " << text;
    EXPECT_EQ(text.rfind("[safetensors] " + path.string(), 0), 0U) << text;
  }
  support::figure("P15", "hostile_safetensors_refused", static_cast<double>(files.size()));
}

TEST_F(SafetensorsTest, RefusesWhatIsNoPlainFile) {
  EXPECT_NE(refusal().find("No such file"), std::string::npos);
  fs::create_directory(path);
  EXPECT_NE(refusal().find("regular file"), std::string::npos);
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);  // must not wait for a writer
  EXPECT_NE(refusal().find("regular file"), std::string::npos);
  fs::remove(path);
  write_safetensors(path, {{"x", at::ones({1})}});
  fs::permissions(path, fs::perms::others_write, fs::perm_options::add);
  EXPECT_NE(refusal().find("everybody may write"), std::string::npos);
  fs::permissions(path, fs::perms::others_write, fs::perm_options::remove);
  fs::create_symlink(path, dir / "link");
  EXPECT_THROW(Safetensors::open(dir / "link", Safetensors::Access::kRead), std::runtime_error);
  EXPECT_THROW(Safetensors::open(path, Safetensors::Access::kRead, 20), std::runtime_error);
}

TEST_F(SafetensorsTest, FindsTheFirstValueThatIsNotFinite) {
  at::Tensor bad = at::zeros({3, 700'000}, at::kBFloat16);
  require_finite(bad, "t");
  bad[1][650'000] = std::numeric_limits<float>::infinity();
  try {
    require_finite(bad, "t");
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(std::string(error.what()),
              "[safetensors] t: expected finite values, found inf at index 1350000");
  }
  require_finite(at::arange(4, at::kLong), "ids");
}

// The largest finite number of a type has all bits of its exponent but one.
TEST_F(SafetensorsTest, TellsTheLargestNumberFromInfinityInEveryType) {
  const auto refused = [](const at::Tensor& tensor) {
    try {
      require_finite(tensor, "t");
    } catch (const std::runtime_error&) {
      return true;
    }
    return false;
  };
  const double infinity = std::numeric_limits<double>::infinity();
  const std::pair<at::ScalarType, double> largest[] = {
      {at::kHalf, 65504},
      {at::kBFloat16, std::numeric_limits<float>::max() / 2},
      {at::kFloat, std::numeric_limits<float>::max()},
      {at::kDouble, std::numeric_limits<double>::max()}};
  for (const auto& [type, value] : largest) {
    EXPECT_FALSE(refused(at::full({7}, value, type))) << type;
    EXPECT_FALSE(refused(at::full({7}, -value, type))) << type;
    for (const double bad : {infinity, -infinity, std::numeric_limits<double>::quiet_NaN()}) {
      at::Tensor tensor = at::zeros({3, 2}, type);
      tensor[2][1] = bad;
      EXPECT_TRUE(refused(tensor)) << type << " " << bad;
      EXPECT_TRUE(refused(tensor.t())) << type << " " << bad;
      EXPECT_FALSE(refused(tensor.select(1, 0))) << type;  // a column beside it
    }
  }
}

TEST_F(SafetensorsTest, AFailedWriteLeavesNothing) {
  EXPECT_THROW(write_safetensors(dir / "no" / "such" / "file", {{"x", at::ones({1})}}),
               std::runtime_error);
  EXPECT_THROW(write_safetensors(path, {{"x", at::ones({1}, at::kComplexFloat)}}),
               std::runtime_error);
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

class WeightFilesTest : public ::testing::Test {
 protected:
  support::TemporaryDirectory dir;

  void put_index(const std::string& json) {
    std::ofstream(dir / "model.safetensors.index.json") << json;
  }
  std::string refusal() {
    try {
      WeightFiles::open(dir.path());
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "accepted";
  }
};

TEST_F(WeightFilesTest, ReadsShardsAndHashesThemInNameOrder) {
  write_safetensors(dir / "one.safetensors", {{"a", at::ones({2})}});
  write_safetensors(dir / "two.safetensors", {{"b", at::zeros({3})}});
  put_index(
      R"({"metadata":{"total_size":20},"weight_map":{"b":"two.safetensors","a":"one.safetensors"}})");
  const WeightFiles files = WeightFiles::open(dir.path());
  EXPECT_EQ(files.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(files.tensor("a").sum().item<double>(), 2);
  const std::string lines = *base::sha256_file(dir / "one.safetensors") + "  one.safetensors\n" +
                            *base::sha256_file(dir / "two.safetensors") + "  two.safetensors\n";
  EXPECT_EQ(files.sha256(), base::sha256_hex(lines));
}

TEST_F(WeightFilesTest, AnIndexThatLiesIsRefused) {
  write_safetensors(dir / "one.safetensors", {{"a", at::ones({2})}, {"hidden", at::ones({2})}});
  put_index(R"({"weight_map":{"a":"one.safetensors"}})");
  EXPECT_NE(refusal().find("\"hidden\" is not in the index"), std::string::npos) << refusal();
  put_index(
      R"({"weight_map":{"a":"one.safetensors","hidden":"one.safetensors","b":"one.safetensors"}})");
  EXPECT_NE(refusal().find("expected tensor \"b\""), std::string::npos) << refusal();
  // A shard that is missing, a key in two shards.
  put_index(R"({"weight_map":{"a":"one.safetensors","hidden":"two.safetensors"}})");
  EXPECT_EQ(refusal(), "[safetensors] " + (dir / "model.safetensors.index.json").string() +
                           ": names the shard \"two.safetensors\" (of \"hidden\"), which is not "
                           "there: download all shards");
  write_safetensors(dir / "two.safetensors", {{"hidden", at::ones({2})}});
  EXPECT_NE(refusal().find("one.safetensors: tensor \"hidden\" is also in two.safetensors"),
            std::string::npos)
      << refusal();
  for (const char* name :
       {"../one.safetensors", "/etc/passwd", "", ".one.safetensors", "one.bin"}) {
    put_index(R"({"weight_map":{"a":")" + std::string(name) + "\"}}");
    EXPECT_NE(refusal().find("weight_map.a"), std::string::npos) << refusal();
  }
  put_index("{");
  EXPECT_NE(refusal().find("not JSON"), std::string::npos) << refusal();
}

}  // namespace
}  // namespace dex::model
