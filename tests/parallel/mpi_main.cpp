// Attention over context ranks between real processes: test_parallel_mpi [windows=0], started by mpirun. Prints one
// line that begins with "ok" on rank 0, and leaves with 0, when all is well.
#include <cstdio>
#include <string_view>

#include "support/context_checks.h"

#include "nought/comm/mpi.h"

namespace nought {
namespace {

void check_processes(bool windows) {
  use_one_openmp_thread();
  const Context context = Context::cpu();
  MpiWorld world(context, {.shared_windows = windows});
  int cases = 0;
  const auto check = [&](const test::ContextCase& of, ContextMethod method, int64_t gathered_heads) {
    test::check_context_attention(world.world(), context, of, method, gathered_heads);
    ++cases;
  };
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16})
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      test::ContextCase of = test::random_case(seed, dtype);
      for (const ContextMethod method : {ContextMethod::ring, ContextMethod::gather})
        check(of, method, seed % 2 == 0 ? 1 : 0);
      const int64_t ranks = world.world().size();
      of.heads = {.num_heads = 2 * ranks, .num_kv_heads = seed % 2 == 0 ? ranks : 1, .head_dim = 6};
      check(of, ContextMethod::heads, 0);
    }
  world.world().barrier().wait();
  if (world.world().rank() == 0) std::printf("ok: %d cases on %d ranks\n", cases, world.world().size());
}

}  // namespace
}  // namespace nought

int main(int argc, char** argv) {
  try {
    nought::check_processes(argc < 2 || std::string_view(argv[1]) != "windows=0");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "test_parallel_mpi: %s\n", error.what());
    nought::MpiWorld::abort(3);
  }
  return 0;
}
