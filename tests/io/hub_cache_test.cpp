// Models are found in the hub's cache by name, in the places and the order of Hugging Face's own library.
#include "nought/io/hub_cache.h"

#include <cstdlib>
#include <map>

#include "support/temp_folder.h"
#include <gtest/gtest.h>

namespace nought {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;

using Variables = std::map<std::string, std::string>;

/// Sets variables of the environment, and puts back what they were. "" unsets one.
class Environment {
 public:
  explicit Environment(const Variables& values) {
    for (const auto& [name, value] : values) {
      const char* before = std::getenv(name.c_str());
      if (before) before_[name] = before;
      names_.push_back(name);
      value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~Environment() {
    for (const std::string& name : names_)
      before_.contains(name) ? ::setenv(name.c_str(), before_[name].c_str(), 1) : ::unsetenv(name.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  Variables before_;
  std::vector<std::string> names_;
};

TEST(HubCache, lies_where_the_environment_says_and_else_in_the_home_folder) {
  const Environment named(
      Variables{{"HF_HUB_CACHE", "/a"}, {"HF_HOME", "/b"}, {"XDG_CACHE_HOME", "/c"}, {"HOME", "/d"}});
  EXPECT_EQ(hub_cache(), "/a");
  const Environment home(Variables{{"HF_HUB_CACHE", ""}});
  EXPECT_EQ(hub_cache(), "/b/hub");
  const Environment xdg(Variables{{"HF_HOME", ""}});
  EXPECT_EQ(hub_cache(), "/c/huggingface/hub");
  const Environment plain(Variables{{"XDG_CACHE_HOME", ""}});
  EXPECT_EQ(hub_cache(), "/d/.cache/huggingface/hub");
}

TEST(HubCache, a_model_is_the_snapshot_that_main_points_to) {
  const TempFolder folder;
  const Environment hub(Variables{{"HF_HUB_CACHE", folder.path().string()}});
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
  const Environment hub(Variables{{"HF_HUB_CACHE", (folder / "hub").string()}});
  folder.write("hub/models--Org--A/refs/main", "../../../x");
  folder.write("x/config.json", "{}");
  EXPECT_FALSE(hub_snapshot("Org/A"));
  for (const char* path : {"/Org/Name", "./Name", "../Name", "Org/Name/", "Org/../Name", "a/b/c", "Org/", "a b/c", ""})
    EXPECT_FALSE(is_hub_name(path)) << path;
  EXPECT_TRUE(is_hub_name("Qwen/Qwen2.5-0.5B"));
}

}  // namespace
}  // namespace nought
