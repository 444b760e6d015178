// API keys of a tenant that has as many as it may (key.lua).
#include "scheduler/store/key_repository.h"

#include "tests/integration/scheduler_store/store_fixture.h"

namespace dex::store {
namespace {

class KeyTest : public StoreTest {
 protected:
  static KeyRecord key(int number) {
    KeyRecord key;
    key.id = "key-" + std::to_string(number);
    key.tenant = "default";
    key.name = "robot";
    key.sha256 = std::string(60, 'a') + std::to_string(1000 + number);
    key.prefix = "dex_a";
    key.scopes = "infer";
    return key;
  }
  base::Status create(const KeyRecord& key) { return keys_.create(key, "default", {}).status(); }

  KeyRepository keys_{*store_};
};

TEST_F(KeyTest, TheOldestThatOpensNothingMakesRoomAndIsNeverMadeAnew) {
  for (int i = 0; i < KeyRepository::kMostKeys; ++i) {
    clock_.advance_ms(1);
    ASSERT_TRUE(create(key(i)).ok()) << i;
  }
  const int more = KeyRepository::kMostKeys;
  EXPECT_EQ(create(key(more)).reason(), "QUOTA_EXCEEDED") << "all of them open something";
  ASSERT_TRUE(keys_.revoke("key-7", "default", false, {}).ok());
  EXPECT_TRUE(create(key(more)).ok());
  EXPECT_EQ(keys_.get("key-7").status().reason(), "RESOURCE_NOT_FOUND");
  EXPECT_TRUE(keys_.get("key-0").ok());
  EXPECT_EQ(create(key(more + 1)).reason(), "QUOTA_EXCEEDED");
  EXPECT_EQ(keys_.ensure(key(7)).status().reason(), "API_KEY_INVALID") << "it was revoked";
}

}  // namespace
}  // namespace dex::store
