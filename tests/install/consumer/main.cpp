// An external program: one operation on the CPU kernels, one collective in a group of one.
#include <nought/comm/communicator.h>
#include <nought/kernels/kernels.h>

int main() {
  const nought::Context context = nought::Context::cpu();
  const nought::Tensor x = context.empty({3, 5}, nought::DType::f32);
  context.run(nought::Fill{.x = x, .value = 0.5});
  nought::make_self_communicator()->all_reduce(x).wait();
  return x.to_vector<double>() == std::vector<double>(15, 0.5) ? 0 : 1;
}
