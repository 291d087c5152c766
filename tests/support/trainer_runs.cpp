#include "support/trainer_runs.h"

#include "support/tiny_llama.h"
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "nought/checkpoint/checkpoint_folders.h"
#include "nought/comm/thread.h"

namespace nought::test {

RunPlan plan_on_lines(const TempFolder& folder, int64_t steps, double peak_lr) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += fmt::format("line {} of a text.\n", i % 13);
  RunPlan plan;
  plan.model_config = tiny_llama_json();
  plan.data.sources = {{{folder.write("text.txt", text).string()}}};
  plan.layout.seq_length = 16;
  plan.layout.micro_batch = 2;
  plan.layout.evaluation_rows = 1;
  plan.output_dir = (folder / "out").string();
  plan.max_steps = steps, plan.save_steps = 0;
  plan.schedule = {.type = ScheduleType::linear, .peak_lr = peak_lr, .warmup_steps = 0, .total_steps = steps};
  return plan;
}

void ToldRun::on_start(const RunSummary& start) {
  events.push_back(fmt::format("start after {}", start.first_step));
  summary = start;
}
void ToldRun::on_step(const StepReport& report) {
  events.push_back(fmt::format("step {}", report.step));
  steps.push_back(report);
}
void ToldRun::on_checkpoint(const SaveOutcome& saved) { events.push_back("saved " + saved.path.filename().string()); }
void ToldRun::on_failed_save(const SaveOutcome& failed) {
  events.push_back("could not save " + failed.path.filename().string());
}
void ToldRun::on_validation(int64_t step, const Evaluation& evaluation) {
  events.push_back(fmt::format("validated {}", step));
  validations.emplace_back(step, evaluation);
}
void ToldRun::on_sample(int64_t step, const std::string& prompt, const std::string& text) {
  events.push_back(fmt::format("sample {} of {}", step, prompt));
  samples.push_back(text);
}
void ToldRun::on_interrupt(int64_t step, const std::filesystem::path& path) {
  events.push_back(fmt::format("interrupted {} with {}", step, path.filename().string()));
}
void ToldRun::on_best(const BestModel& model, const std::filesystem::path&) {
  events.push_back(fmt::format("best {}", model.step));
}
void ToldRun::on_finish(const std::vector<RankMemory>& ranks, const std::filesystem::path& path) {
  events.push_back("finish");
  memory = ranks, exported = path;
}

std::vector<double> ToldRun::losses() const { return losses_after(0); }

std::vector<double> ToldRun::losses_after(int64_t count) const {
  std::vector<double> rest;
  for (const StepReport& each : steps)
    if (count-- <= 0) rest.push_back(each.loss);
  return rest;
}

ToldRun run_plan(RunPlan plan, const RunStart& start) {
  plan.layout.ranks = start.ranks;
  std::vector<Context> contexts = start.contexts;
  while (static_cast<int>(contexts.size()) < start.ranks) contexts.push_back(Context::cpu());
  ToldRun told;
  run_ranks(contexts, [&](Communicator& world, const Context& context) {
    if (start.recorded) world.record(std::make_shared<Timeline>());
    Trainer trainer(plan, start.mode, world, context, {&told});
    const bool asked = start.stopped_in_step > 0 && start.stopped_rank == world.rank();
    trainer.stop_on(
        [&, asked] { return asked && trainer.steps_made() + 1 >= start.stopped_in_step ? kStopSignal : 0; });
    EXPECT_EQ(trainer.run(), start.stopped_in_step > 0 ? kStopSignal : 0) << "rank " << world.rank();
  });
  return told;
}

void expect_resumes(const RunPlan& plan, const ToldRun& whole, int64_t from, int ranks) {
  for (const std::filesystem::path& each : list_checkpoints(plan.output_dir))
    if (*checkpoint_step(each) > from) std::filesystem::remove_all(each);
  const std::vector<double> expected = whole.losses_after(from);
  EXPECT_FALSE(expected.empty());
  EXPECT_EQ(run_plan(plan, {.ranks = ranks, .mode = StartMode::resume}).losses(), expected)
      << "from step " << from << ", stage " << plan.layout.zero_stage;
}

}  // namespace nought::test
