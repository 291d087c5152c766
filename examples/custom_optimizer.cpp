// An optimizer of your own in a run that RUN.json describes: its model, its data, its ZeRO stage, its offloading.
//
// This one is Adamax (arXiv 1412.6980, section 7.1). It knows nothing of ranks, shards, dtypes or files. Run it:
//
//   build/release/bin/custom_optimizer RUN.json [KEY=VALUE]...          (or under mpirun)
#include "nought/optim/custom_optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nought/checkpoint/output_folder.h"
#include "nought/comm/mpi.h"
#include "nought/config/run_config.h"
#include "nought/observe/metrics.h"
#include "nought/observe/progress.h"
#include "nought/train/trainer.h"
#include "nought/weights/model_source.h"

using namespace nought;

class Adamax final : public CustomOptimizer {
 public:
  std::string name() const override { return "Adamax"; }
  /// The moving average of gradients, and the decaying maximum of their magnitudes.
  std::vector<StateKind> states() const override { return {StateKind::exp_avg, StateKind::sum}; }

  void update(const UpdateNumbers& numbers, const UpdatedElements& elements) const override {
    const auto step = static_cast<float>(numbers.lr / (1 - std::pow(kBeta1, numbers.step)));
    const auto keep = static_cast<float>(1 - numbers.lr * numbers.weight_decay);
    for (size_t i = 0; i < elements.parameter.size(); ++i) {
      const float g = elements.gradient[i];
      float &m = elements.states[0][i], &u = elements.states[1][i], &p = elements.parameter[i];
      m = kBeta1 * m + (1 - kBeta1) * g;
      u = std::max(kBeta2 * u, std::abs(g));
      p = keep * p - step * m / (u + 1e-8F);
    }
  }

 private:
  static constexpr float kBeta1 = 0.9F, kBeta2 = 0.999F;
};

void train(const RunConfig& config, Communicator& world, const Context& context) {
  RunPlan plan = resolve_run(config, world.size(), StartMode::overwrite);
  plan = with_model_folder(std::move(plan), world, context);
  plan.layout.sharding.optimizer.method = CustomOptions{std::make_shared<Adamax>()};
  std::optional<OutputFolder> folder;  // no other run writes there
  if (world.rank() == 0) folder.emplace(plan.output_dir);
  world.barrier().wait();
  MetricsWriter metrics(plan.output_dir);
  ProgressPrinter progress(stdout, [] { return 0; }, plan.logging_steps, {});
  Trainer(plan, StartMode::overwrite, world, context, {&metrics, &progress}).run();
}

int main(int count, char** arguments) {
  try {
    if (count < 2) throw Error("usage: custom_optimizer RUN.json [KEY=VALUE]...");
    const RunConfig config = load_run_config(arguments[1], std::vector<std::string>(arguments + 2, arguments + count));
    const Context context = Context::cpu();
    if (launched_by_mpi()) {
      MpiWorld job(context);
      train(config, job.world(), context);
    } else {
      train(config, *make_self_communicator(), context);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "custom_optimizer: error: %s\n", error.what());
    MpiWorld::abort(1);  // without MPI it ends this process
  }
}
