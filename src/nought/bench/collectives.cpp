#include <algorithm>

#include "nought/bench/bench.h"
#include "nought/comm/mpi.h"
#include "nought/comm/streaming.h"

namespace nought {

namespace {

/// The tensors of one call.
struct Operands {
  Tensor full, part;

  int parts() const { return static_cast<int>(full.numel() / part.numel()); }
  Tensor part_of_full(int rank) const { return full.flat(rank * part.numel(), (rank + 1) * part.numel()); }
};

/// The tensors of calls one after the other. As in training, each call has tensors of its own, and its input was
/// written by this rank and read by nobody: tensors that are used again and again would lie in the caches of those who
/// read them.
using Series = std::vector<Operands>;

Series make_series(const Context& context, int64_t shard, int64_t ranks, DType dtype) {
  constexpr int64_t kLeastBytes = 32 << 20;
  const int64_t calls = ceil_div(kLeastBytes, shard * ranks * size_of(dtype));
  // Cut from long blocks, as those of a training step are: the pages of short ones are small.
  const Tensor fulls = context.empty({calls, shard * ranks}, dtype, Category::communication),
               parts = context.empty({calls, shard}, dtype, Category::communication);
  Series series;
  for (int64_t i = 0; i < calls; ++i) series.push_back({fulls.slice(i, i + 1), parts.slice(i, i + 1)});
  return series;
}

void write_anew(const Context& context, const Series& series) {
  for (const Operands& operands : series) {
    context.run(Fill{.x = operands.full, .value = 0});
    context.run(Fill{.x = operands.part, .value = 0});
  }
}

/// One collective: as this program does it, as MPI does, and as few reads and writes of memory as any way of doing it
/// has, on this rank's own.
struct Rivals {
  std::string name;
  std::function<Event(Communicator&, const Operands&)> own;
  std::function<Event(const Operands&)> mpi;
  std::function<void(const Context&, const Operands&, int rank)> least;
};

/// Calls f(begin, end) for intervals of a part that stay in the cache.
template <class F>
void for_each_block(const Operands& t, F&& f) {
  constexpr int64_t kBlock = 8 << 10;
  for (int64_t begin = 0; begin < t.part.numel(); begin += kBlock) f(begin, std::min(t.part.numel(), begin + kBlock));
}

/// The parts of all ranks are read, and their sum is written to `sum` and, if `spread`, over all of them.
void sum_parts(const Context& context, const Operands& t, const Tensor& sum, bool spread) {
  for_each_block(t, [&](int64_t begin, int64_t end) {
    std::vector<Tensor> inputs;
    for (int rank = 0; rank < t.parts(); ++rank) inputs.push_back(t.part_of_full(rank).flat(begin, end));
    const Tensor out = sum.flat(begin, end);
    context.run(SumTensors{inputs, out});
    if (!spread) return;
    for (const Tensor& input : inputs) context.copy(out, input);
  });
}

/// A part is read, and all parts are written.
void copy_parts(const Operands& t) {
  for_each_block(t, [&](int64_t begin, int64_t end) {
    const Tensor from = t.part.flat(begin, end);
    for (int rank = 0; rank < t.parts(); ++rank)
      copy_streaming(t.part_of_full(rank).flat(begin, end).raw(), from.raw(), static_cast<size_t>(from.bytes()));
  });
}

std::vector<Rivals> collectives() {
  return {
      {"all_reduce", [](Communicator& ranks, const Operands& t) { return ranks.all_reduce(t.full); },
       [](const Operands& t) { return MpiNative::all_reduce(t.full); },
       [](const Context& context, const Operands& t, int rank) {
         sum_parts(context, t, t.part_of_full(rank), /*spread=*/true);
       }},
      {"reduce_scatter", [](Communicator& ranks, const Operands& t) { return ranks.reduce_scatter(t.full, t.part); },
       [](const Operands& t) { return MpiNative::reduce_scatter(t.full, t.part); },
       [](const Context& context, const Operands& t, int) { sum_parts(context, t, t.part, /*spread=*/false); }},
      {"all_gather", [](Communicator& ranks, const Operands& t) { return ranks.all_gather(t.part, t.full); },
       [](const Operands& t) { return MpiNative::all_gather(t.part, t.full); },
       [](const Context&, const Operands& t, int) { copy_parts(t); }}};
}

class CollectivesBench {
 public:
  CollectivesBench(Communicator& ranks, const Context& context, int samples)
      : ranks_(ranks), context_(context), samples_(samples) {}

  /// Seconds of one call of a series, all in flight at once, from when all ranks are there.
  template <class Call>
  double seconds_of_each(const Series& series, Call&& call) {
    write_anew(context_, series);
    ranks_.barrier().wait();
    return seconds_of([&] {
             Event last;
             for (const Operands& operands : series) last = call(operands);
             last.wait();
           }) /
           static_cast<double>(series.size());
  }

  /// Beside MPI's own, where there is one, and beside as few reads and writes as there can be.
  std::vector<Figure> beside_limits(const Rivals& each, const Series& series) {
    const bool with_mpi = ranks_.backend() == "mpi";
    Figure beside_mpi = figure(each, series, "MPI"), beside_memory = figure(each, series, "memory");
    for (int i = -1; i < samples_; ++i) {
      const double mpi = with_mpi ? seconds_of_each(series, each.mpi) : 0;
      const double own = seconds_of_each(series, [&](const Operands& t) { return each.own(ranks_, t); });
      const double least = seconds_of_each(series, [&](const Operands& t) {
        each.least(context_, t, ranks_.rank());
        return Event();
      });
      if (i < 0) continue;  // the first warms up
      if (with_mpi) add(beside_mpi, own, mpi);
      add(beside_memory, own, least);
    }
    return with_mpi ? std::vector{beside_mpi, beside_memory} : std::vector{beside_memory};
  }

  /// Beside as many elements in f32.
  Figure beside_f32(const Rivals& each, const Series& series, const Series& wide) {
    Figure result = figure(each, series, "as f32");
    const auto own = [&](const Operands& t) { return each.own(ranks_, t); };
    for (int i = -1; i < samples_; ++i) {
      const double seconds_wide = seconds_of_each(wide, own);
      const double seconds = seconds_of_each(series, own);
      if (i >= 0) add(result, seconds, seconds_wide);
    }
    return result;
  }

 private:
  static Figure figure(const Rivals& each, const Series& series, const std::string& limit_name) {
    const int64_t bytes = series.front().full.bytes();
    return {.name = fmt::format("{} of {} MiB", each.name, bytes >> 20),
            .work = static_cast<double>(bytes),
            .unit = "B",
            .limit_name = limit_name};
  }
  static void add(Figure& figure, double seconds, double limit_seconds) {
    figure.seconds.values.push_back(seconds);
    figure.limits.values.push_back(figure.work / limit_seconds);
  }

  Communicator& ranks_;
  Context context_;
  int samples_;
};

}  // namespace

std::vector<Figure> bench_collectives(Communicator& ranks, const Context& context, DType dtype, int samples,
                                      const std::vector<int64_t>& mebibytes) {
  require<ConfigError>(ranks.size() > 1, "a collective needs several ranks: add --ranks 2, or run under mpirun");
  std::vector<Figure> figures;
  CollectivesBench bench(ranks, context, samples);
  for (const int64_t mib : mebibytes) {
    const int64_t shard = mib * (int64_t{1} << 20) / (size_of(dtype) * ranks.size());
    const Series series = make_series(context, shard, ranks.size(), dtype);
    const Series wide = dtype == DType::f32 ? Series() : make_series(context, shard, ranks.size(), DType::f32);
    for (const Rivals& each : collectives()) {
      if (dtype != DType::f32) {
        figures.push_back(bench.beside_f32(each, series, wide));
      } else {
        for (Figure& figure : bench.beside_limits(each, series)) figures.push_back(std::move(figure));
      }
    }
  }
  return figures;
}

}  // namespace nought
