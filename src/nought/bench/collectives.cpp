#include <algorithm>

#include "nought/bench/bench.h"
#include "nought/comm/mpi.h"

namespace nought {

namespace {

/// The tensors of one size, and what they are measured beside.
struct Operands {
  Tensor full, part;
};

Operands make_operands(const Context& context, int64_t shard, int64_t ranks, DType dtype) {
  const Operands operands{context.empty({shard * ranks}, dtype, Category::communication),
                          context.empty({shard}, dtype, Category::communication)};
  context.run(Fill{.x = operands.full, .value = 0});
  context.run(Fill{.x = operands.part, .value = 0});
  return operands;
}

/// One collective: as this program does it, and as MPI does.
struct Rivals {
  std::string name;
  std::function<Event(Communicator&, const Operands&)> own;
  std::function<Event(const Operands&)> mpi;
};

std::vector<Rivals> collectives() {
  return {
      {"all_reduce", [](Communicator& ranks, const Operands& t) { return ranks.all_reduce(t.full); },
       [](const Operands& t) { return MpiOwn::all_reduce(t.full); }},
      {"reduce_scatter", [](Communicator& ranks, const Operands& t) { return ranks.reduce_scatter(t.full, t.part); },
       [](const Operands& t) { return MpiOwn::reduce_scatter(t.full, t.part); }},
      {"all_gather", [](Communicator& ranks, const Operands& t) { return ranks.all_gather(t.part, t.full); },
       [](const Operands& t) { return MpiOwn::all_gather(t.part, t.full); }}};
}

/// Seconds of one call when `repeats` are in flight, from when all ranks are there.
template <class Call>
double seconds_of_each(Communicator& ranks, int repeats, Call&& call) {
  ranks.barrier().wait();
  return seconds_of([&] {
           Event last;
           for (int k = 0; k < repeats; ++k) last = call();
           last.wait();
         }) /
         repeats;
}

}  // namespace

std::vector<Figure> bench_collectives(Communicator& ranks, const Context& context, DType dtype, int samples,
                                      const std::vector<int64_t>& mebibytes) {
  std::vector<Figure> figures;
  const int64_t count = ranks.size();
  const bool beside_mpi = ranks.backend() == "mpi" && dtype == DType::f32;
  const bool beside_f32 = dtype != DType::f32;
  for (const int64_t mib : mebibytes) {
    const int64_t shard = mib * (int64_t{1} << 20) / (size_of(dtype) * count);
    const Operands operands = make_operands(context, shard, count, dtype);
    const Operands wide = beside_f32 ? make_operands(context, shard, count, DType::f32) : operands;
    // The number of repetitions must be the same on every rank: it depends on the size alone.
    const int repeats = static_cast<int>(std::max<int64_t>(1, 32 / mib));
    for (const Rivals& each : collectives()) {
      Figure figure{.name = fmt::format("{} of {} MiB", each.name, mib),
                    .work = static_cast<double>(operands.full.bytes()),
                    .unit = "B",
                    .limit_name = beside_mpi   ? "MPI"
                                  : beside_f32 ? "as f32"
                                               : ""};
      const auto own = [&] { return each.own(ranks, operands); };
      for (int i = -1; i < samples; ++i) {
        double beside = 0;
        if (beside_mpi) beside = seconds_of_each(ranks, repeats, [&] { return each.mpi(operands); });
        if (beside_f32) beside = seconds_of_each(ranks, repeats, [&] { return each.own(ranks, wide); });
        const double seconds = seconds_of_each(ranks, repeats, own);
        if (i < 0) continue;  // the first warms up
        if (beside > 0) figure.limits.values.push_back(figure.work / beside);
        figure.seconds.values.push_back(seconds);
      }
      figures.push_back(std::move(figure));
    }
  }
  return figures;
}

}  // namespace nought
