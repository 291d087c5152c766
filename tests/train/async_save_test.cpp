// Checkpoints that are written beside the training: the same bytes as while it waits, wherever states are, and the same
// run; a run that goes on where one cannot be written; and memory as the plan has it.
#include <fstream>

#include "support/guarded_context.h"
#include "support/message_of.h"
#include "support/sweep.h"
#include "support/tiny_llama.h"
#include "support/trainer_runs.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/checkpoint/checkpoint.h"
#include "nought/checkpoint/checkpoint_writer.h"
#include "nought/checkpoint/owned_pieces.h"
#include "nought/comm/thread.h"
#include "nought/models/decoder.h"

namespace nought::async_save_test {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;
using test::ToldRun;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kSteps = 3;

/// A run that saves behind each step.
RunPlan saving(const TempFolder& folder, int stage, DType dtype) {
  RunPlan plan = test::plan_on_lines(folder, kSteps, 3e-3);
  plan.layout.zero_stage = stage, plan.layout.sharding.dtype = plan.layout.sharding.gradient_dtype = dtype;
  plan.save_steps = 1;
  return plan;
}

struct Saved {
  ToldRun told;
  std::map<std::string, std::string> files = {};  // of all checkpoints, but for when they were written
};

/// The files of all checkpoints in a folder, by their paths in it.
std::map<std::string, std::string> files_in(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const fs::path& checkpoint : list_checkpoints(folder)) {
    for (const std::string& name : test::names_in(checkpoint))
      if (name != kManifest) files[checkpoint.filename() / name] = test::read_bytes(checkpoint / name);
    Json manifest = read_manifest(checkpoint);
    manifest.erase("written_at");
    files[checkpoint.filename() / kManifest] = manifest.dump();
  }
  return files;
}

/// How a run is laid out, and what it does in its own way.
struct Way {
  std::string name;
  int ranks = 1, stage = 0;
  DType dtype = DType::f32;
  std::function<void(RunPlan&, const TempFolder&)> change = [](RunPlan&, const TempFolder&) {};
  bool guarded = false;
};

Saved run(const Way& way, const TempFolder& folder, bool beside_training) {
  RunPlan plan = saving(folder, way.stage, way.dtype);
  way.change(plan, folder);
  plan.layout.async_save = beside_training;
  plan.output_dir = (folder / (beside_training ? "beside" : "waiting")).string();
  const test::RunStart start{.ranks = way.ranks,
                             .contexts = way.guarded ? test::contexts_of(way.ranks, true) : std::vector<Context>()};
  Saved saved{.told = test::run_plan(plan, start)};
  saved.files = files_in(plan.output_dir);
  return saved;
}

void expect_same(const Way& way) {
  SCOPED_TRACE(way.name);
  const TempFolder folder;
  const Saved waiting = run(way, folder, false), beside = run(way, folder, true);
  EXPECT_EQ(beside.told.losses(), waiting.told.losses());
  ASSERT_GE(waiting.files.size(), kSteps * 3u);
  ASSERT_EQ(beside.files.size(), waiting.files.size());
  for (const auto& [name, bytes] : waiting.files) EXPECT_TRUE(beside.files.at(name) == bytes) << name;
}

void in_files(RunPlan& plan, const TempFolder& folder) {
  OffloadOptions& options = plan.layout.sharding.offload_optimizer;
  options.tier = {Pool::file, folder.path().string(), {.backend = AioBackend::threads}};
  options.sub_group = 3000, options.reads_ahead = true, options.buffers = 8;
}

TEST(AsyncSave, checkpoints_have_the_same_bytes_at_every_stage) {
  for (const int ranks : {1, 2})
    for (const int stage : {0, 1, 2, 3})
      if (test::samples(stage + 2 * ranks, 4))
        expect_same({fmt::format("{} ranks, stage {}", ranks, stage), ranks, stage,
                     stage % 2 == ranks % 2 ? DType::f32 : DType::bf16});
}

TEST(AsyncSave, and_wherever_states_are) {
  const auto on_host = [](RunPlan& plan, const TempFolder&) {
    plan.layout.sharding.offload_optimizer.tier.pool = Pool::host;
    plan.layout.sharding.offload_optimizer.sub_group = 3000;
  };
  const auto all_in_files = [](RunPlan& plan, const TempFolder& folder) {
    in_files(plan, folder);
    plan.layout.sharding.offload_param = {.tier = plan.layout.sharding.offload_optimizer.tier, .buffers = 2};
  };
  int turn = 0;
  for (const Way& way :
       {Way{"on a device", 2, 2, DType::bf16, [](RunPlan&, const TempFolder&) {}, true},
        Way{"on the host beside it", 2, 2, DType::bf16, on_host, true},
        Way{"in files beside it", 1, 0, DType::bf16, in_files, true}, Way{"in files", 2, 2, DType::f32, in_files},
        Way{"in files, stage 3", 2, 3, DType::bf16, in_files},
        Way{"with parameters in files", 2, 3, DType::f32, all_in_files}})
    if (test::samples(turn++, 3)) expect_same(way);
}

TEST(AsyncSave, and_whenever_updates_are_made) {
  const auto early = [](RunPlan& plan, const TempFolder& folder) {
    in_files(plan, folder);
    plan.layout.sharding.offload_optimizer.early = plan.layout.sharding.offload_optimizer.undo = true;
  };
  const auto late = [](RunPlan& plan, const TempFolder&) { plan.layout.sharding.offload_optimizer.delay_after = 1; };
  const auto of_8_bits = [](RunPlan& plan, const TempFolder&) { plan.layout.sharding.optimizer.state_block = 64; };
  const auto by_workers = [](RunPlan& plan, const TempFolder&) {
    plan.layout.replicas = 2;
    plan.layout.local_steps = LocalStepsOptions{.sync_every = 2};
  };
  const auto one_bit = [](RunPlan& plan, const TempFolder&) {
    plan.layout.sharding.optimizer.method = OneBitAdamOptions{.freeze_step = 2};
    plan.gradient_clipping = 0;
  };
  int turn = 0;
  for (const Way& way : {Way{"overlapped with the backward pass", 1, 2, DType::f32, early},
                         Way{"one step late", 2, 1, DType::bf16, late},
                         Way{"one step late beside a device", 1, 0, DType::bf16, late, true},
                         Way{"states of 8 bits", 2, 3, DType::bf16, of_8_bits},
                         Way{"by workers", 2, 1, DType::f32, by_workers}, Way{"of one bit", 2, 0, DType::f32, one_bit}})
    if (test::samples(turn++, 3)) expect_same(way);
}

/// Puts a file where the output folder is when a checkpoint is there, and the folder back behind so many failures.
class FullDisk final : public TrainObserver {
 public:
  FullDisk(fs::path folder, int failures) : folder_(std::move(folder)), left_(failures) {}
  void on_checkpoint(const SaveOutcome& saved) override {
    told.push_back(fmt::format("saved {}", saved.step));
    if (saved.step > 2) return;
    fs::rename(folder_, away());
    std::ofstream(folder_) << "no folder";
  }
  void on_failed_save(const SaveOutcome& failed) override {
    told.push_back(fmt::format("failed {}", failed.step));
    EXPECT_THAT(failed.failure, HasSubstr(folder_.string()));
    if (--left_ > 0) return;
    fs::remove(folder_);
    fs::rename(away(), folder_);
  }
  std::vector<std::string> told;

 private:
  fs::path away() const { return folder_.string() + ".away"; }
  fs::path folder_;
  int left_;
};

TEST(AsyncSave, a_checkpoint_that_fails_is_told_and_the_third_in_a_row_ends_the_run) {
  for (const bool beside : {false, true})
    for (const int failures : {2, 3}) {
      const TempFolder folder;
      RunPlan plan = test::plan_on_lines(folder, failures == 2 ? 8 : 10);
      plan.save_steps = 2, plan.layout.ranks = 2, plan.layout.async_save = beside;
      FullDisk disk(plan.output_dir, failures);
      const auto run = [&] {
        run_ranks(2, [&](Communicator& world, const Context& context) {
          Trainer(plan, StartMode::fresh, world, context, {&disk}).make_steps();
        });
      };
      if (failures == 2) {
        run();
        EXPECT_THAT(disk.told, ElementsAre("saved 2", "failed 4", "failed 6", "saved 8"));
        EXPECT_THAT(list_checkpoints(plan.output_dir),
                    ElementsAre(folder / "out/checkpoint-2", folder / "out/checkpoint-8"));
        continue;
      }
      const std::string error = test::message_of<IoError>(run);
      EXPECT_THAT(error, HasSubstr("3 checkpoints in a row could not be saved"));
      EXPECT_THAT(error, HasSubstr(plan.output_dir));
      EXPECT_THAT(disk.told, ElementsAre("saved 2", "failed 4", "failed 6"));
    }
}

TEST(CheckpointWriter, says_on_all_ranks_what_failed_on_one_and_saves_again) {
  const TempFolder folder;
  const fs::path file = folder.write("file", "no folder");
  run_ranks(2, [&](Communicator& world, const Context& context) {
    Decoder decoder(ModelConfig::from_json(test::tiny_llama_json()));
    ShardedModel model(context, world, decoder, {.policy = Policy::stage(1)});
    model.load(InitialState(1));
    CheckpointWriter writer(model, {}, /*with_frozen=*/true, /*beside_training=*/true);
    writer.begin({.info = {.step = 1, .world_size = 2}, .folder = file});
    EXPECT_THAT(writer.finish().failure, HasSubstr(file.string()));
    EXPECT_FALSE(writer.under_way());
    writer.begin({.info = {.step = 2, .world_size = 2}, .folder = folder.path()});
    EXPECT_TRUE(writer.under_way());
    const SaveOutcome saved = writer.finish();
    EXPECT_EQ(saved.failure, "");
    EXPECT_TRUE(is_checkpoint(saved.path));
    EXPECT_EQ(saved.path, checkpoint_path(folder.path(), 2));
  });
}

TEST(SaveRoom, has_a_place_for_what_lies_on_the_device) {
  const auto self = make_self_communicator();
  const Context context = Context::cpu();
  Decoder decoder(ModelConfig::from_json(test::tiny_llama_json()));
  ShardedModel model(context, *self, decoder, {});
  model.load(InitialState(1));
  const std::vector<OwnedPiece> pieces = owned_pieces(model, nullptr, /*with_frozen=*/true);
  const SaveRoom room(model);
  EXPECT_EQ(context.memory->ledger().current(Category::checkpoint), 12 * decoder.parameter_count());
  int64_t bytes = 0;
  for (const Tensor& place : room.places_of(pieces)) bytes += place.bytes();
  EXPECT_EQ(bytes, 12 * decoder.parameter_count());
  for (const Tensor& place : SaveRoom().places_of(pieces)) EXPECT_FALSE(place.defined());
}

}  // namespace
}  // namespace nought::async_save_test
