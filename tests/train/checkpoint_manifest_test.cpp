#include "nought/checkpoint/checkpoint_manifest.h"

#include "support/in_folder.h"
#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/checkpoint/checkpoint_folders.h"
#include "nought/io/file_format.h"

namespace nought::checkpoint_manifest_test {
namespace {

NOUGHT_FILE_SIZE(small);

namespace fs = std::filesystem;
using test::message_of;
using test::TempFolder;
using testing::AllOf;
using testing::HasSubstr;

/// The manifest of a checkpoint without blocks.
Json written(const TempFolder& folder, int64_t step = 30) {
  const fs::path path = checkpoint_path(folder.path(), step);
  fs::create_directories(path);
  write_manifest({.step = step, .run = {{"seed", 7}}, .skipped = 2}, Json::array(), path);
  return Json::parse(test::read_bytes(path / "manifest.json"));
}

std::string refusal(const TempFolder& folder, const Json& manifest, int64_t step = 30) {
  folder.write(fmt::format("checkpoint-{}/manifest.json", step), manifest.dump(1));
  return message_of<IoError>([&] { read_checkpoint_info(checkpoint_path(folder.path(), step)); });
}

class CheckpointManifest : public test::InFolder {};

TEST_F(CheckpointManifest, a_number_that_changed_is_found) {
  const Json whole = written(folder);
  EXPECT_EQ(read_checkpoint_info(folder / "checkpoint-30").skipped, 2);
  for (const auto& [key, value] : whole.items()) {
    Json changed = whole;
    changed[key] = value == "x" ? "y" : "x";
    EXPECT_NE(refusal(folder, changed), "") << key;
    changed.erase(key);
    EXPECT_NE(refusal(folder, changed), "") << "without " << key;
  }
  Json changed = whole;
  changed["skipped"] = 3;
  EXPECT_EQ(refusal(folder, changed),
            fmt::format("{} is damaged (its checksum differs): resume from an earlier checkpoint",
                        (folder / "checkpoint-30/manifest.json").string()));
  EXPECT_EQ(refusal(folder, whole), "") << "white space and order do not matter";
}

TEST_F(CheckpointManifest, the_name_of_the_folder_is_that_of_its_step_or_no_steps) {
  written(folder, 20);
  fs::rename(folder / "checkpoint-20", folder / "checkpoint-30");
  for (const char* path : {"checkpoint-30", "checkpoint-30/"})
    EXPECT_THAT(message_of<IoError>([&] { read_checkpoint_info(folder / path); }),
                AllOf(HasSubstr("checkpoint-30"), HasSubstr("is that of step 20"), HasSubstr("(checkpoint-20)")))
        << path;
  fs::rename(folder / "checkpoint-30", folder / "kept");
  EXPECT_EQ(read_checkpoint_info(folder / "kept").step, 20);
}

TEST_F(CheckpointManifest, of_earlier_formats_is_read_without_a_checksum) {
  Json manifest = written(folder);
  EXPECT_EQ(manifest.at("format"), "nought-checkpoint-3");
  manifest["format"] = "nought-checkpoint-2";
  EXPECT_THAT(refusal(folder, manifest), HasSubstr("its checksum differs")) << "the format too may be damaged";
  manifest.erase("xxh3");
  manifest.erase("beside");
  EXPECT_EQ(refusal(folder, manifest), "");
  EXPECT_EQ(read_checkpoint_info(folder / "checkpoint-30").step, 30);
  check_other_files(folder / "checkpoint-30");
  manifest["format"] = "nought-checkpoint-3";
  EXPECT_THAT(refusal(folder, manifest), HasSubstr("it lacks its checksum"));
}

/// A program that knows formats up to 3 refuses 4 by its name, and would lose the update without it.
TEST_F(CheckpointManifest, has_a_format_of_its_own_where_an_update_is_pending_alone) {
  Json manifest = written(folder);
  EXPECT_EQ(manifest.at("format"), "nought-checkpoint-3") << "older programs go on from it";
  const fs::path path = folder / "checkpoint-30";
  CheckpointInfo info = read_checkpoint_info(path);
  EXPECT_FALSE(info.pending);
  info.pending = {.lr = 0.25, .gradient_scale = 0.5};
  write_manifest(info, Json::array(), path);
  manifest = read_manifest(path);
  EXPECT_EQ(manifest.at("format"), "nought-checkpoint-4");
  EXPECT_EQ(read_checkpoint_info(path).pending->lr, 0.25);
  EXPECT_THAT(message_of<IoError>([&] {
                require_readable(path / kManifest, manifest.at("format"), FileFormat{"nought-checkpoint", 3});
              }),
              AllOf(HasSubstr("nought-checkpoint-4"), HasSubstr("reads up to nought-checkpoint-3")));
  EXPECT_THAT(refusal(folder, manifest), HasSubstr("it lacks its checksum"));
}

TEST_F(CheckpointManifest, what_cannot_be_is_one_line) {
  Json manifest = written(folder);
  manifest["format"] = "nought-checkpoint-2";
  manifest.erase("xxh3");
  Json changed = manifest;
  changed["run"] = nullptr;
  EXPECT_THAT(refusal(folder, changed),
              HasSubstr("manifest.json is damaged (\"run\" is null): resume from an earlier"));
  changed = manifest, changed["skipped"] = 31;
  EXPECT_THAT(refusal(folder, changed), HasSubstr("step 30, of which 31 were skipped"));
  changed = manifest, changed["step"] = "30";
  EXPECT_THAT(refusal(folder, changed), HasSubstr("manifest.json is damaged ("));
  EXPECT_THAT(refusal(folder, Json::array()), HasSubstr("it is no object"));
  folder.write("checkpoint-30/manifest.json", "{");
  EXPECT_THAT(message_of<IoError>([&] { read_checkpoint_info(folder / "checkpoint-30"); }),
              HasSubstr("it is not JSON"));
  fs::remove(folder / "checkpoint-30/manifest.json");
  EXPECT_THAT(message_of<IoError>([&] { read_checkpoint_info(folder / "checkpoint-30"); }), HasSubstr("manifest.json"));
}

TEST_F(CheckpointManifest, names_files_of_its_own_folder_alone) {
  const fs::path path = checkpoint_path(folder.path(), 30);
  fs::create_directories(path);
  const auto refused = [&](const Json& file) {
    write_manifest({.step = 30, .run = Json::object()}, Json::array({{{"file", file}}}), path);
    return message_of<IoError>([&] { read_manifest(path); });
  };
  EXPECT_EQ(refused("rank-0.safetensors"), "");
  for (const Json& file : {Json("../other"), Json("/etc/passwd"), Json(".."), Json(""), Json(7)})
    EXPECT_THAT(refused(file), HasSubstr(fmt::format("a block names the file {}, which is none", file.dump())));
}

TEST_F(CheckpointManifest, a_strangers_own_checksum_leads_to_no_other_file_and_to_no_endless_depth) {
  const auto refused = [&](Json manifest) {
    manifest.erase("xxh3");
    const std::string members = manifest.dump();
    manifest["xxh3"] = xxh3_of(std::as_bytes(std::span(members)));
    return refusal(folder, manifest);
  };
  const Json whole = written(folder);
  EXPECT_EQ(refused(whole), "");
  Json changed = whole;
  for (const char* name : {"../checkpoint-20/config.json", "/etc/passwd", ".."}) {
    changed["beside"] = {{name, "0000000000000000"}};
    EXPECT_THAT(refused(changed), HasSubstr(fmt::format("\"beside\" names the file \"{}\", which is none", name)));
  }
  changed["beside"] = {"config.json"};
  EXPECT_THAT(refused(changed), HasSubstr("\"beside\" is the list"));
  for (const char* key : {"run", "format", "beside", "new"}) {
    const std::string text = fmt::format("{{\"{}\": {}{}}}", key, std::string(200'000, '['), std::string(200'000, ']'));
    folder.write("checkpoint-30/manifest.json", text);
    EXPECT_THAT(message_of<IoError>([&] { read_manifest(folder / "checkpoint-30"); }),
                HasSubstr("it nests deeper than 64 levels"));
  }
}

TEST_F(CheckpointManifest, files_beside_the_states_are_those_that_the_run_wrote) {
  folder.write("checkpoint-30/config.json", "{}");
  folder.write("checkpoint-30/rank-00000.safetensors", "has checksums of its own");
  written(folder);
  const auto refused = [&] { return message_of<IoError>([&] { check_other_files(folder / "checkpoint-30"); }); };
  folder.write("checkpoint-30/notes.txt", "what somebody added");
  folder.write("checkpoint-30/rank-00000.safetensors", "");
  EXPECT_EQ(refused(), "");
  folder.write("checkpoint-30/config.json", "{ }");
  EXPECT_THAT(refused(), AllOf(HasSubstr("checkpoint-30/config.json is not what the run wrote"), HasSubstr("convert")));
  fs::remove(folder / "checkpoint-30/config.json");
  EXPECT_THAT(refused(), HasSubstr("config.json"));
}

}  // namespace
}  // namespace nought::checkpoint_manifest_test
