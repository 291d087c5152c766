#include <algorithm>
#include <cstring>

#include "nought/bench/bench.h"

namespace nought {

std::vector<Figure> bench_collectives(Communicator& ranks, const Context& context, DType dtype, int samples) {
  std::vector<Figure> figures;
  const int64_t count = ranks.size();
  for (const int64_t mib : {1, 4, 16, 64, 256}) {
    const int64_t shard = mib * (int64_t{1} << 20) / (size_of(dtype) * count);
    Tensor full = context.empty({shard * count}, dtype, Category::communication);
    Tensor part = context.empty({shard}, dtype, Category::communication);
    context.run(Fill{.x = full, .value = 0});
    context.run(Fill{.x = part, .value = 0});
    const auto copy_rate = [&] {
      const Tensor source = full.flat(0, shard);
      const double seconds =
          seconds_of([&] { std::memcpy(part.raw(), source.raw(), static_cast<size_t>(part.bytes())); });
      const double rate = static_cast<double>(part.bytes()) / seconds;
      ranks.barrier().wait();  // the copies of others are no part of the collective
      return rate;
    };
    const auto add = [&](const char* what, auto&& run) {
      Figure figure{.name = fmt::format("{} of {} MiB", what, mib),
                    .work = static_cast<double>(full.bytes()),
                    .unit = "B",
                    .limit_name = "copy"};
      // The number of repetitions must be the same on every rank: it depends on the size alone.
      const int repeats = static_cast<int>(std::max<int64_t>(1, 16 / mib));
      run();
      for (int i = 0; i < samples; ++i) {
        figure.limits.values.push_back(copy_rate());
        const double seconds = seconds_of([&] {
          for (int k = 0; k < repeats; ++k) run();
        });
        figure.seconds.values.push_back(seconds / repeats);
      }
      figures.push_back(std::move(figure));
    };
    add("all_reduce", [&] { ranks.all_reduce(full).wait(); });
    add("reduce_scatter", [&] { ranks.reduce_scatter(full, part).wait(); });
    add("all_gather", [&] { ranks.all_gather(part, full).wait(); });
  }
  return figures;
}

}  // namespace nought
