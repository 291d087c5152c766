// Models are found in the hub's cache by name, in the places and the order of Hugging Face's own library.
#include "nought/io/hub_cache.h"

#include "support/environment.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

namespace nought::hub_cache_test {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;

TEST(HubCache, lies_where_the_environment_says_and_else_in_the_home_folder) {
  const test::Environment named{{"HF_HUB_CACHE", "/a"}, {"HF_HOME", "/b"}, {"XDG_CACHE_HOME", "/c"}, {"HOME", "/d"}};
  EXPECT_EQ(hub_cache(), "/a");
  const test::Environment home{{"HF_HUB_CACHE", ""}};
  EXPECT_EQ(hub_cache(), "/b/hub");
  const test::Environment xdg{{"HF_HOME", ""}};
  EXPECT_EQ(hub_cache(), "/c/huggingface/hub");
  const test::Environment plain{{"XDG_CACHE_HOME", ""}};
  EXPECT_EQ(hub_cache(), "/d/.cache/huggingface/hub");
}

TEST(HubCache, a_model_is_the_snapshot_that_main_points_to) {
  const TempFolder folder;
  const test::Environment hub{{"HF_HUB_CACHE", folder.path().string()}};
  folder.write("models--Org--A-1.5_b/snapshots/old/config.json", "{}");
  const fs::path config = folder.write("models--Org--A-1.5_b/snapshots/c0ffee/config.json", "{}");
  EXPECT_FALSE(hub_snapshot("Org/A-1.5_b")) << "nothing says which snapshot is meant";
  folder.write("models--Org--A-1.5_b/refs/main", "c0ffee\n");
  EXPECT_EQ(hub_snapshot("Org/A-1.5_b"), config.parent_path());
  folder.write("models--gpt2/refs/main", "1");
  EXPECT_FALSE(hub_snapshot("gpt2")) << "its snapshot is not there";
  folder.write("models--gpt2/snapshots/1/config.json", "{}");
  EXPECT_EQ(hub_snapshot("gpt2"), folder / "models--gpt2/snapshots/1");
  EXPECT_FALSE(hub_snapshot("Org/Other"));
}

TEST(HubCache, a_name_never_leaves_the_cache) {
  const TempFolder folder;
  const test::Environment hub{{"HF_HUB_CACHE", (folder / "hub").string()}};
  folder.write("hub/models--Org--A/refs/main", "../../../x");
  folder.write("x/config.json", "{}");
  EXPECT_FALSE(hub_snapshot("Org/A"));
  for (const char* path : {"/Org/Name", "./Name", "../Name", "Org/Name/", "Org/../Name", "a/b/c", "Org/", "a b/c", ""})
    EXPECT_FALSE(is_hub_name(path)) << path;
  EXPECT_TRUE(is_hub_name("Qwen/Qwen2.5-0.5B"));
}

}  // namespace
}  // namespace nought::hub_cache_test
