// A model of your own: declare Units and parameters, write the forward pass, and train it at any ZeRO stage.
//
// This one predicts the next byte of a text from the byte before it. Nothing below the class knows that; nothing in the
// class knows of ranks, stages, gradients or optimizers. Run it: build/release/bin/custom_model
#include <cmath>
#include <cstdio>
#include <string>

#include "nought/comm/thread.h"
#include "nought/engine/engine.h"
#include "nought/nn/layers.h"

using namespace nought;

class NextByte final : public Model {
 public:
  NextByte() {
    Unit& embedding = add_unit("embedding");
    table_ = embedding.add("embedding.weight", {256, kHidden}, Init::normal(0.1), ParameterRole::embedding);
    for (int i = 0; i < 2; ++i) {
      Unit& unit = add_unit("block." + std::to_string(i));
      const std::string name = unit.name();
      blocks_.push_back({&unit, Norm(unit, name + ".norm", NormKind::rms, kHidden, 1e-6),
                         Mlp(unit, {.gated = true,
                                    .activation = Activation::silu,
                                    .up = {.in = kHidden, .out = {128, 128}, .names = {name + ".gate", name + ".up"}},
                                    .down = {.in = 128, .out = {kHidden}, .names = {name + ".down"}}})});
    }
    Unit& head = add_unit("head");
    head_ = head.add("head.weight", {256, kHidden}, Init::normal(0.1), ParameterRole::head);
  }

  Var loss(Tape& tape, const Batch& batch, double gradient_scale) override {
    Var x =
        tape.run_unit(table_.unit(), Var{}, [&](Tape& t, const Var&) { return embedding(t, batch.input_ids, table_); });
    for (const Block& block : blocks_)
      x = tape.run_unit(*block.unit, x,
                        [&](Tape& t, const Var& in) { return add(t, in, block.mlp(t, block.norm(t, in))); });
    return tape.run_unit(head_.unit(), x, [&](Tape& t, const Var& in) {
      return cross_entropy_head(t, in, head_, batch.targets, gradient_scale);
    });
  }

 private:
  static constexpr int64_t kHidden = 64;
  struct Block {
    Unit* unit;
    Norm norm;
    Mlp mlp;
  };
  ParameterView table_, head_;
  std::vector<Block> blocks_;
};

int main() {
  const std::string text = "she sells sea shells by the sea shore; the shells she sells are sea shells, i am sure. ";
  constexpr int kRanks = 2;
  double first = 0, last = 0;
  run_ranks(kRanks, [&](Communicator& ranks, const Context& context) {  // one thread each; under mpirun: MpiWorld
    NextByte network;
    ShardedModel model(context, ranks, network, {.policy = Policy::stage(3), .optimizer = {.weight_decay = 0.01}});
    model.load(InitialState(/*seed=*/1));

    // Every rank trains on its half of the text.
    const auto half = static_cast<int64_t>(text.size() / kRanks) - 1;
    Batch batch{context.empty({1, half}, DType::i32), context.empty({1, half}, DType::i32)};
    for (int64_t i = 0; i < half; ++i) {
      const auto at = static_cast<size_t>(ranks.rank() * half + i);
      batch.input_ids.data<int32_t>()[i] = static_cast<unsigned char>(text[at]);
      batch.targets.data<int32_t>()[i] = static_cast<unsigned char>(text[at + 1]);
    }

    Engine engine(model);
    for (int step = 1; step <= 60; ++step) {
      const StepResult result = engine.step(std::span(&batch, 1), kRanks * half, /*lr=*/3e-3, /*max_norm=*/1.0);
      if (ranks.rank() != 0) continue;
      if (step == 1) first = result.loss;
      last = result.loss;
      if (step == 1 || step % 20 == 0) std::printf("step %2d  loss %.4f\n", step, result.loss);
    }
    if (ranks.rank() == 0) std::printf("memory of rank 0\n%s", context.memory->ledger().table().c_str());
  });
  return last < first / 2 ? 0 : 1;
}
