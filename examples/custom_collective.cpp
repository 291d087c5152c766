// A collective of your own: gradients are summed by one exchange. Run it: build/release/bin/custom_collective
//
// Where links are slow to answer, messages that follow each other cost more than bytes. In one all-to-all each rank
// gets the parts of all others that it sums, and adds them itself. A Communicator that stands before another one takes
// the calls that it knows better, and passes the others on: all of Nought that is given it uses it, here a model that
// is trained.
#include <cstdio>
#include <utility>

#include "nought/comm/thread.h"
#include "nought/engine/engine.h"
#include "nought/nn/layers.h"

using namespace nought;

class SmallSums final : public Communicator {
 public:
  SmallSums(Communicator& inner, const Context& context, int64_t most)
      : inner_(inner), context_(context), most_(most) {}

  int64_t taken() const { return taken_; }

  Event submit(Collective call) override {
    const Tensor &full = call.in, &shard = call.out;
    if (call.kind != Collective::reduce_scatter || call.op != ReduceOp::sum || full.dtype() != DType::f32 ||
        full.numel() > most_)
      return inner_.submit(std::move(call));
    const Tensor parts = context_.empty({full.numel()}, DType::f32);
    inner_.all_to_all(full, parts).wait();
    const float* from = parts.data<float>();
    float* sum = shard.data<float>();
    for (int64_t i = 0; i < shard.numel(); ++i) {  // in the order of the ranks, as every backend of Nought adds
      sum[i] = 0;
      for (int rank = 0; rank < size(); ++rank) sum[i] += from[rank * shard.numel() + i];
    }
    ++taken_;
    return {};  // is done
  }

  // Everything else is the other's.
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string_view backend() const override { return inner_.backend(); }
  void follow(const Event& event) override { inner_.follow(event); }
  std::unique_ptr<Communicator> split(int color, int key) override { return inner_.split(color, key); }
  Traffic traffic() override { return inner_.traffic(); }
  void record(std::shared_ptr<Timeline> timeline) override { inner_.record(std::move(timeline)); }
  Timeline* timeline() const override { return inner_.timeline(); }
  void set_timeout(std::chrono::milliseconds timeout) override { inner_.set_timeout(timeout); }
  void check_calls(bool check) override { inner_.check_calls(check); }
  FlightRecorder* recorder() const override { return inner_.recorder(); }

 private:
  Communicator& inner_;
  const Context& context_;
  int64_t most_;
  int64_t taken_ = 0;
};

/// Tells bytes by the byte before them.
class Bigrams final : public Model {
 public:
  Bigrams()
      : table_(add_unit("table").add("table", {256, 32}, Init::normal(0.1), ParameterRole::embedding)),
        head_(add_unit("head").add("head", {256, 32}, Init::normal(0.1), ParameterRole::head)) {}
  Var loss(Tape& tape, const Batch& batch, double gradient_scale) override {
    const Var x =
        tape.run_unit(table_.unit(), Var{}, [&](Tape& t, const Var&) { return embedding(t, batch.input_ids, table_); });
    return tape.run_unit(head_.unit(), x, [&](Tape& t, const Var& in) {
      return cross_entropy_head(t, in, head_, batch.targets, gradient_scale);
    });
  }

 private:
  ParameterView table_, head_;
};

/// The loss after some steps, over `ranks`.
double train(Communicator& ranks, const Context& context) {
  Bigrams network;
  ShardedModel model(context, ranks, network, {.policy = Policy::stage(0)});
  model.load(InitialState(/*seed=*/1));
  const std::string text = "she sells sea shells by the sea shore";
  Batch batch{context.empty({1, 16}, DType::i32), context.empty({1, 16}, DType::i32)};
  for (int64_t i = 0; i < 16; ++i) {
    batch.input_ids.data<int32_t>()[i] = text[static_cast<size_t>(5 * ranks.rank() + i)];
    batch.targets.data<int32_t>()[i] = text[static_cast<size_t>(5 * ranks.rank() + i + 1)];
  }
  Engine engine(model);
  double loss = 0;
  for (int step = 0; step < 20; ++step) loss = engine.step(std::span(&batch, 1), 16.0 * ranks.size(), 1e-2, 1.0).loss;
  return loss;
}

int main() {
  double plain = 0, own = 0;
  int64_t taken = 0;
  run_ranks(4, [&](Communicator& ranks, const Context& context) {
    SmallSums sums(ranks, context, /*most=*/int64_t{1} << 20);
    const double losses[] = {train(ranks, context), train(sums, context)};
    if (ranks.rank() == 0) plain = losses[0], own = losses[1], taken = sums.taken();
  });
  std::printf("loss %.9g; with %ld sums by one exchange %.9g\n", plain, static_cast<long>(taken), own);
  return taken > 0 && plain == own ? 0 : 1;  // the same bits
}
