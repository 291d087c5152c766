// How a run ends: by a signal, after which it goes on as if there had been none; with its best weights; and what it
// does on the way.
#include <fstream>
#include <map>

#include "support/in_folder.h"
#include "support/loaded_states.h"
#include "support/recorded_calls.h"
#include "support/sweep.h"
#include "support/trainer_runs.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/checkpoint/export_record.h"
#include "nought/checkpoint/resume.h"
#include "nought/comm/thread.h"
#include "nought/train/trainer.h"
#include "nought/train/validate_run.h"
#include "nought/weights/model_source.h"

namespace nought::trainer_run_test {
namespace {

namespace fs = std::filesystem;
using test::read_bytes;
using test::TempFolder;
using test::ToldRun;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

RunPlan plan_in(const TempFolder& folder, int stage = 2) {
  RunPlan plan = test::plan_on_lines(folder, 6);
  plan.layout.accumulation = 2;
  plan.layout.ranks = 2;
  plan.layout.zero_stage = stage;
  plan.layout.sharding.overlap = true;
  return plan;
}

/// Which rank is asked to stop, and during which step.
struct Stop {
  int rank = 0;
  int64_t step = 0;
};

/// Two ranks.
ToldRun run(const RunPlan& plan, StartMode mode = StartMode::fresh, const Stop& stop = {}) {
  return test::run_plan(plan, {.ranks = 2, .mode = mode, .stopped_rank = stop.rank, .stopped_in_step = stop.step});
}

/// A run in a folder.
class TrainerRun : public test::InFolder {
 protected:
  RunPlan plan = plan_in(folder);
};

TEST_F(TrainerRun, a_signal_to_any_rank_stops_all_after_the_step_and_the_run_goes_on_bit_for_bit) {
  for (const int stage : {0, 1, 2, 3}) {
    const TempFolder whole_folder;
    const std::vector<double> whole = run(plan_in(whole_folder, stage)).losses();
    for (const int rank : {0, 1}) {
      if (!test::samples(stage + rank, 2)) continue;
      SCOPED_TRACE(fmt::format("stage {}, rank {}", stage, rank));
      const TempFolder folder;
      const RunPlan plan = plan_in(folder, stage);
      const ToldRun first = run(plan, StartMode::fresh, Stop{rank, 3});
      EXPECT_THAT(first.events, ElementsAre("start after 0", "step 1", "step 2", "step 3", "saved checkpoint-3",
                                            "interrupted 3 with checkpoint-3"))
          << "it is saved though save_steps is 0, and nothing is exported";
      EXPECT_FALSE(holds_weights(folder / "out"));
      const ToldRun rest = run(plan, StartMode::resume);
      EXPECT_EQ(rest.events.front(), "start after 3");
      EXPECT_EQ(first.losses(), std::vector<double>(whole.begin(), whole.begin() + 3));
      EXPECT_EQ(rest.losses(), std::vector<double>(whole.begin() + 3, whole.end()));
      EXPECT_EQ(read_bytes(folder / "out/model.safetensors"), read_bytes(whole_folder / "out/model.safetensors"));
    }
  }
}

TEST_F(TrainerRun, a_strategy_of_epochs_saves_behind_each_of_them) {
  plan.save_epochs = true;
  plan.max_steps = 0, plan.num_epochs = 2;
  const ToldRun events = run(plan);
  std::vector<std::string> saved;
  for (const std::string& each : events.events)
    if (each.starts_with("saved")) saved.push_back(each);
  const int64_t samples = open_data(plan, *tokenizer_of(plan.data)).training.num_samples();
  std::vector<std::string> expected;  // behind the first steps that have seen all samples once and twice, and the last
  for (const int64_t seen : {samples, 2 * samples})
    expected.push_back(
        fmt::format("saved checkpoint-{}", (seen + plan.layout.train_batch() - 1) / plan.layout.train_batch()));
  expected.push_back(fmt::format("saved checkpoint-{}", events.steps.size()));
  EXPECT_EQ(saved, expected) << "choose data of which epochs end within a step";
}

TEST_F(TrainerRun, updates_that_are_put_off_go_on_bit_for_bit_behind_saves_and_are_all_applied_at_the_end) {
  for (const bool in_files : {false, true}) {
    const auto plan_of = [&](const TempFolder& folder) {
      RunPlan plan = plan_in(folder);
      plan.layout.sharding.offload_optimizer.delay_after = 1;
      if (in_files)
        plan.layout.sharding.offload_optimizer.tier.pool = Pool::file,
        plan.layout.sharding.offload_optimizer.tier.folder = folder.path().string();
      return plan;
    };
    const TempFolder whole_folder, folder;
    RunPlan saving = plan_of(whole_folder);
    saving.save_steps = 2;
    const std::vector<double> whole = run(saving).losses();
    const auto pending_at = [&](const TempFolder& of, int64_t step) {
      return read_checkpoint_info(checkpoint_path(of / "out", step)).pending.has_value();
    };
    EXPECT_TRUE(pending_at(whole_folder, 4));
    EXPECT_FALSE(pending_at(whole_folder, 6)) << "no step follows the last one";
    const RunPlan plan = plan_of(folder);
    const ToldRun first = run(plan, StartMode::fresh, Stop{1, 3});
    EXPECT_TRUE(pending_at(folder, 3));
    EXPECT_EQ(first.losses(), std::vector<double>(whole.begin(), whole.begin() + 3)) << "a save changes nothing";
    EXPECT_EQ(run(plan, StartMode::resume).losses(), std::vector<double>(whole.begin() + 3, whole.end()));
    EXPECT_EQ(read_bytes(folder / "out/model.safetensors"), read_bytes(whole_folder / "out/model.safetensors"));
  }
}

TEST_F(TrainerRun, an_old_checkpoint_goes_when_the_name_of_the_new_one_is_on_disk) {
  plan.save_steps = 2, plan.save_total_limit = 1;
  const test::RecordedCalls recorded;
  run(plan);
  const fs::path out = plan.output_dir;
  fs::path newest;       // by its name
  bool durable = false;  // its name is on disk
  std::vector<std::string> removed;
  for (const test::RecordedCall& call : recorded.calls()) {
    if (call.name == "rename" && checkpoint_step(call.path)) newest = call.path, durable = false;
    if (call.name == "fsync" && call.path == out) durable = true;
    if (call.name != "remove" || call.path.filename() != "manifest.json") continue;
    removed.push_back(call.path.parent_path().filename().string());
    EXPECT_TRUE(durable) << removed.back() << " went before " << newest;
    EXPECT_NE(call.path.parent_path(), newest);
  }
  EXPECT_THAT(removed, ElementsAre("checkpoint-2", "checkpoint-4"));
}

TEST_F(TrainerRun, what_a_run_could_not_remove_behind_its_last_save_goes_when_it_is_resumed) {
  plan.save_steps = 2;
  run(plan);
  EXPECT_EQ(list_checkpoints(plan.output_dir).size(), 3u);
  plan.save_total_limit = 1;  // as if it had been killed when the last one had its name
  run(plan, StartMode::resume);
  EXPECT_THAT(list_checkpoints(plan.output_dir), ElementsAre(fs::path(plan.output_dir) / "checkpoint-6"));
}

TEST_F(TrainerRun, a_validation_that_was_due_waits_for_the_run_that_resumes) {
  plan.data.validation_fraction = 0.2;
  plan.eval_strategy = EvalStrategy::steps;
  plan.eval_steps = 2;
  const ToldRun first = run(plan, StartMode::fresh, Stop{1, 2});
  EXPECT_THAT(first.events, Not(Contains("validated 2")));
  const ToldRun rest = run(plan, StartMode::resume);
  EXPECT_EQ(rest.events[1], "validated 2");
  EXPECT_EQ(rest.events[2], "step 3");
  // One that was not put off is not repeated.
  plan.max_steps = 8, plan.save_steps = 4;
  const TempFolder second;
  plan.output_dir = (second / "out").string();
  run(plan);
  fs::remove_all(second / "out/checkpoint-8");
  EXPECT_EQ(run(plan, StartMode::resume).events[1], "step 5");
}

TEST_F(TrainerRun, a_signal_between_steps_is_heeded_before_the_next_and_one_at_the_end_before_the_last_validation) {
  plan.data.validation_fraction = 0.2;
  plan.save_steps = 2;
  ToldRun events;
  plan.layout.ranks = 2;
  run_ranks(2, [&](Communicator& world, const Context& context) {
    Trainer trainer(plan, StartMode::fresh, world, context, {&events});
    // As if the signal came while step 2 is saved: its reduction was before.
    trainer.stop_on([&] {
      const bool saved = fs::exists(folder / "out/checkpoint-2/manifest.json");
      return world.rank() == 1 && saved && trainer.steps_made() == 2 ? test::kStopSignal : 0;
    });
    EXPECT_EQ(trainer.run(), test::kStopSignal);
  });
  EXPECT_EQ(events.events.back(), "interrupted 2 with checkpoint-2");
  EXPECT_THAT(events.events, Not(Contains("step 3")));

  const ToldRun last = run(plan, StartMode::resume, Stop{0, 7});  // there is no step 7
  EXPECT_EQ(last.events.back(), "interrupted 6 with checkpoint-6");
  EXPECT_THAT(last.events, Not(Contains("validated 6")));
  EXPECT_FALSE(holds_weights(folder / "out"));
  EXPECT_THAT(run(plan, StartMode::resume).events, ElementsAre("start after 6", "validated 6", "finish"));
  EXPECT_TRUE(holds_weights(folder / "out"));
}

test::WholeTensors weights_of(const ModelSource& source) { return test::values_of(source.weights(), source.model()); }

TEST_F(TrainerRun, the_best_checkpoint_is_kept_and_exported_also_when_the_run_was_interrupted) {
  for (const bool interrupted : {false, true}) {
    const TempFolder folder;
    RunPlan plan = plan_in(folder);
    plan.data.validation_fraction = 0.2;
    plan.save_steps = 2;
    plan.save_total_limit = 1;
    plan.best = BestModelPlan{.greater_is_better = true};  // the loss falls, so this is the first
    if (interrupted) run(plan, StartMode::fresh, Stop{0, 3});
    const ToldRun events = run(plan, interrupted ? StartMode::resume : StartMode::fresh);
    EXPECT_THAT(events.events, Contains("validated 4")) << "every checkpoint is validated";
    EXPECT_THAT(events.events, Contains("best 2"));
    EXPECT_THAT(list_checkpoints(plan.output_dir),
                ElementsAre(folder / "out/checkpoint-2", folder / "out/checkpoint-6"))
        << "the best one, and the last to go on from";
    const ModelSource exported(FoundModel{folder / "out"});
    EXPECT_EQ(weights_of(exported), weights_of(ModelSource(folder / "out/checkpoint-2")));
    EXPECT_NE(weights_of(exported), weights_of(ModelSource(folder / "out/checkpoint-6")));
    const auto record = read_export_record(folder / "out");
    ASSERT_TRUE(record.has_value());
    EXPECT_EQ(record->step, 6);
    EXPECT_EQ(record->best->step, 2);
    const FoundModel found = find_model(folder / "out");
    EXPECT_EQ(found.folder, folder / "out") << "what was chosen on purpose is not older than the last checkpoint";
    EXPECT_THAT(found.choice, HasSubstr("after step 6: those of its best checkpoint, of step 2"));
  }
}

TEST_F(TrainerRun, the_last_checkpoint_may_be_the_best) {
  plan.data.validation_fraction = 0.2;
  plan.save_steps = 2;
  plan.save_total_limit = 1;
  plan.best = BestModelPlan{};
  EXPECT_THAT(run(plan).events, Contains("best 6"));
  EXPECT_THAT(list_checkpoints(plan.output_dir), ElementsAre(folder / "out/checkpoint-6"));
  EXPECT_FALSE(read_export_record(folder / "out")->best.has_value());
}

TEST_F(TrainerRun, samples_come_when_they_are_due_and_leave_training_alone) {
  for (const bool fp8 : {false, true}) {
    std::map<int, std::vector<std::string>> texts;  // by stage
    for (const int stage : {0, 1, 2, 3}) {
      if (!test::samples(stage / 2 + fp8, 2)) continue;
      SCOPED_TRACE(fmt::format("stage {}, fp8 {}", stage, fp8));
      RunPlan plan = plan_in(folder, stage);
      if (fp8) plan.layout.fp8 = {.scaling = Fp8Scaling::delayed, .history = 3};
      const ToldRun without = run(plan, StartMode::overwrite);
      const std::string weights = read_bytes(folder / "out/model.safetensors");
      plan.sample = SamplePlan{.prompt = "line", .steps = 4, .max_new_tokens = 20};
      const ToldRun with = run(plan, StartMode::overwrite);
      EXPECT_EQ(with.losses(), without.losses());
      EXPECT_EQ(read_bytes(folder / "out/model.safetensors"), weights);
      EXPECT_THAT(with.events, Contains("sample 4 of line"));
      EXPECT_THAT(with.events, Contains("sample 6 of line")) << "the end has one, too";
      EXPECT_EQ(with.samples.size(), 2u);
      texts[stage] = with.samples;
    }
    EXPECT_EQ(texts[0], texts[1]);
    EXPECT_EQ(texts[2], texts[3]);
  }
}

TEST_F(TrainerRun, goes_back_to_an_earlier_checkpoint_only_if_later_ones_may_go) {
  plan.save_steps = 2;
  const std::vector<double> whole = run(plan).losses();
  plan.resume_from = "2";
  EXPECT_THAT(test::message_of<ConfigError>([&] { validate_run(plan, StartMode::resume); }),
              HasSubstr("--overwrite removes it and 1 more"));
  validate_run(plan, StartMode::resume_overwrite);
  const ToldRun again = run(plan, StartMode::resume_overwrite, Stop{0, 3});
  EXPECT_EQ(again.losses(), (std::vector<double>{whole[2]}));
  EXPECT_THAT(list_checkpoints(plan.output_dir), ElementsAre(folder / "out/checkpoint-2", folder / "out/checkpoint-3"));
  plan.resume_from = "";
  const ToldRun rest = run(plan, StartMode::resume);
  EXPECT_EQ(rest.losses(), std::vector<double>(whole.begin() + 3, whole.end()));
}

TEST_F(TrainerRun, rewinds_to_an_earlier_checkpoint_and_sets_later_ones_aside) {
  plan.save_steps = 2;
  const std::vector<double> whole = run(plan).losses();
  const std::string weights = read_bytes(folder / "out/model.safetensors");
  plan.resume_from = "2";
  validate_run(plan, StartMode::rewind);
  for (const std::string aside : {"rewound-1", "rewound-2"}) {
    EXPECT_EQ(run(plan, StartMode::rewind).losses(), std::vector<double>(whole.begin() + 2, whole.end()));
    EXPECT_THAT(list_checkpoints(folder / "out" / aside),
                ElementsAre(folder / "out" / aside / "checkpoint-4", folder / "out" / aside / "checkpoint-6"));
  }
  EXPECT_THAT(list_checkpoints(plan.output_dir),
              ElementsAre(folder / "out/checkpoint-2", folder / "out/checkpoint-4", folder / "out/checkpoint-6"));
  EXPECT_EQ(read_bytes(folder / "out/model.safetensors"), weights);
  EXPECT_EQ(leave_others(folder / "out/checkpoint-6", plan.output_dir, /*keep=*/true), "");
  EXPECT_EQ(leave_others(folder / "out/checkpoint-4", plan.output_dir, /*keep=*/true),
            fmt::format("checkpoint-6 behind step 4 lies in {} now: remove that folder if you do not need it",
                        (folder / "out/rewound-3").string()));
  plan.resume_from = "3";
  EXPECT_THAT(test::message_of<IoError>([&] { validate_run(plan, StartMode::rewind); }),
              HasSubstr("holds checkpoints of steps 2, 4, not of step 3"));
}

TEST_F(TrainerRun, continues_a_checkpoint_of_another_folder_in_its_own) {
  plan.save_steps = 2;
  const std::vector<double> whole = run(plan).losses();
  plan.resume_from = (folder / "out/checkpoint-4").string();
  plan.output_dir = (folder / "other").string();
  validate_run(plan, StartMode::resume);
  EXPECT_EQ(run(plan, StartMode::resume).losses(), std::vector<double>(whole.begin() + 4, whole.end()));
  EXPECT_THAT(list_checkpoints(plan.output_dir), ElementsAre(folder / "other/checkpoint-6"));
  EXPECT_EQ(read_bytes(folder / "other/model.safetensors"), read_bytes(folder / "out/model.safetensors"));
}

}  // namespace
}  // namespace nought::trainer_run_test
