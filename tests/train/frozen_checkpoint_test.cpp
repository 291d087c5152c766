// Checkpoints of models with frozen parameters.
#include <filesystem>
#include <fstream>

#include "support/frozen_runs.h"
#include "support/message_of.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/train/checkpoint.h"

namespace nought::frozen_checkpoint_test {
namespace {

namespace fs = std::filesystem;
using namespace test::frozen;
using testing::AllOf;
using testing::HasSubstr;

fs::path save(const Layout& layout, ShardedModel& model, Engine&, const fs::path& folder, int64_t step) {
  return save_checkpoint(
      model, {.step = step, .world_size = layout.ranks, .zero_stage = layout.stage, .run = nlohmann::json::object()},
      folder);
}

TEST(FrozenCheckpoint, resumes_bit_for_bit_at_any_stage_and_number_of_ranks) {
  for (Layout layout : frozen_layouts()) {
    layout.dtype = DType::bf16, layout.ranks = 2, layout.stage = 2;
    test::TempFolder folder;
    fs::path path;
    std::vector<double> rest;
    Values last;
    with_model(layout, [&](ShardedModel& model, Engine& engine) {
      for (int step = 0; step < 3; ++step) take_step(layout, model, engine, step);
      const fs::path saved = save(layout, model, engine, folder.path(), 3);
      std::vector<double> losses;
      for (int step = 3; step < 6; ++step) losses.push_back(take_step(layout, model, engine, step).loss);
      const Values values = values_of(model);
      if (model.mesh().world().rank() == 0) path = saved, rest = losses, last = values;
    });
    const test::TempFolder drive;
    for (const int stage : {0, 3}) {
      Layout other = layout;
      other.stage = stage;
      if (stage == 3) other.parameters = {.home = Pool::file, .folder = drive.path().string()};
      SCOPED_TRACE(other.str());
      with_model(other, [&](ShardedModel& model, Engine& engine) {
        const Checkpoint checkpoint(path, model.model());
        checkpoint.require_same_frozen(model.model());
        model.load(checkpoint, 3);
        std::vector<double> losses;
        for (int step = 3; step < 6; ++step) losses.push_back(take_step(other, model, engine, step).loss);
        EXPECT_EQ(losses, rest);
        EXPECT_EQ(values_of(model), last);
      });
    }
    Layout three = layout;
    three.ranks = 3, three.stage = 3;
    with_model(three, [&](ShardedModel& model, Engine& engine) {
      model.load(Checkpoint(path, model.model()), 3);
      EXPECT_NEAR(take_step(three, model, engine, 3).loss, rest[0], 1e-2);
    });
  }
}

TEST(FrozenCheckpoint, holds_values_of_what_is_frozen_in_its_own_dtype_and_nothing_else_of_it) {
  const Layout layout{.freezing = kHeadOnly, .ranks = 2, .stage = 3, .dtype = DType::bf16};
  test::TempFolder folder;
  with_model(layout, [&](ShardedModel& model, Engine& engine) {
    take_step(layout, model, engine, 0);
    const fs::path path = save(layout, model, engine, folder.path(), 1);
    if (model.mesh().world().rank() != 0) return;
    const nlohmann::json manifest = nlohmann::json::parse(std::ifstream(path / "manifest.json"));
    std::map<std::string, int64_t> elements;
    for (const nlohmann::json& block : manifest.at("blocks")) {
      const std::string name = block.at("parameter"), state = block.at("state");
      const bool is_head = name == "lm_head.weight";
      EXPECT_EQ(block.value("frozen", false), !is_head) << name;
      EXPECT_TRUE(is_head || state == "master") << name << " has " << state;
      const SafetensorsFile file(path / block.at("file").get<std::string>());
      EXPECT_EQ(file.at(block.at("tensor").get<std::string>()).dtype, is_head ? DType::f32 : DType::bf16) << name;
      elements[name] += block.at("end").get<int64_t>() - block.at("begin").get<int64_t>();
    }
    for (const auto& unit : model.model().units())
      for (const Parameter& parameter : unit->parameters())
        EXPECT_EQ(elements[parameter.name], parameter.shape.numel() * (parameter.trainable ? 3 : 1));
  });
}

TEST(FrozenCheckpoint, refuses_to_resume_with_another_set_of_frozen_parameters) {
  const Layout layout{.freezing = kBottom};
  test::TempFolder folder;
  fs::path path;
  with_model(layout,
             [&](ShardedModel& model, Engine& engine) { path = save(layout, model, engine, folder.path(), 0); });
  const auto message = [&](const Freezing& freezing) {
    Decoder decoder(layout.config);
    apply(freezing, decoder);
    return test::message_of<ConfigError>([&] { Checkpoint(path, decoder).require_same_frozen(decoder); });
  };
  EXPECT_THAT(message({}), AllOf(HasSubstr("model.embed_tokens.weight was frozen and is trained now"),
                                 HasSubstr("training.freeze")));
  EXPECT_THAT(message({{"embed", "layers\\.0\\.", "lm_head"}, {}}),
              HasSubstr("lm_head.weight was trained and is frozen now"));
  Decoder same(layout.config);
  apply(kBottom, same);
  EXPECT_NO_THROW(Checkpoint(path, same).require_same_frozen(same));
}

}  // namespace
}  // namespace nought::frozen_checkpoint_test
