// A training loop of your own on a known decoder: training_loop CONFIG.json TEXT_FILE OUTPUT_DIR [STEPS]
//
// Trains the decoder of a Hugging Face config.json from random weights on the bytes of a text. Batches, rates and the
// time to stop are decided here; `nought generate OUTPUT_DIR` reads what is saved. Under mpirun every rank takes part.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>

#include "nought/checkpoint/checkpoint.h"
#include "nought/comm/mpi.h"
#include "nought/engine/engine.h"
#include "nought/models/decoder.h"

using namespace nought;

constexpr int64_t kRows = 4, kLength = 32;

/// Sequences that begin `stride` bytes behind each other, over and over the text.
Batch next_batch(const Context& context, const std::string& text, int64_t number) {
  Batch batch{context.empty({kRows, kLength}, DType::i32), context.empty({kRows, kLength}, DType::i32)};
  const int64_t places = std::ssize(text) - kLength, stride = 37;
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t i = 0; i < kLength; ++i) {
      const auto at = static_cast<size_t>((number * kRows + row) * stride % places + i);
      batch.input_ids.data<int32_t>()[row * kLength + i] = static_cast<unsigned char>(text[at]);
      batch.targets.data<int32_t>()[row * kLength + i] = static_cast<unsigned char>(text[at + 1]);
    }
  return batch;
}

/// Whether the loss became less.
bool train(const std::string& config, const std::string& text, const std::string& output, int64_t steps,
           Communicator& world, const Context& context) {
  if (std::ssize(text) < 2 * kLength) throw Error("the text is too short");
  Decoder decoder(ModelConfig::from_json(read_json_file(config), config));
  ShardedModel model(context, world, decoder, {.policy = Policy::stage(2), .optimizer = {.weight_decay = 0.1}});
  model.load(InitialState(/*seed=*/1));
  Engine engine(model);
  double first = 0, last = 0;
  for (int64_t step = 0; step < steps; ++step) {
    const double rate = 3e-3 * std::min(1.0, static_cast<double>(step + 1) / 10);  // a warmup, then constant
    const Batch batch = next_batch(context, text, step * world.size() + world.rank());
    const StepResult result =
        engine.step(std::span(&batch, 1), static_cast<double>(kRows * kLength * world.size()), rate, /*max_norm=*/1.0);
    if (step == 0) first = result.loss;
    last = result.loss;
    if (world.rank() == 0 && (step == 0 || (step + 1) % 20 == 0))
      std::printf("step %ld  loss %.4f  norm %.3f\n", static_cast<long>(step + 1), result.loss, result.grad_norm);
  }
  save_checkpoint(model, {.step = steps, .world_size = world.size(), .zero_stage = 2}, output,
                  [&](const std::filesystem::path& folder) { std::filesystem::copy(config, folder / "config.json"); });
  return last < first;
}

int main(int count, char** arguments) {
  try {
    if (count < 4) throw Error("usage: training_loop CONFIG.json TEXT_FILE OUTPUT_DIR [STEPS]");
    std::ifstream file(arguments[2]);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const int64_t steps = count > 4 ? std::stol(arguments[4]) : 100;
    const Context context = Context::cpu();
    const auto run = [&](Communicator& world) {
      return train(arguments[1], text, arguments[3], steps, world, context);
    };
    if (!launched_by_mpi()) return run(*make_self_communicator()) ? 0 : 1;
    MpiWorld job(context);
    return run(job.world()) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "training_loop: error: %s\n", error.what());
    MpiWorld::abort(1);  // without MPI it ends this process
  }
}
