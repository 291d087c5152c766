#include "nought/kernels/kernels.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace nought {

void use_one_openmp_thread() {
#ifdef _OPENMP
  omp_set_num_threads(1);
#endif
}

Tensor Context::on_host(const Tensor& tensor) const {
  Tensor host = tensor;
  if (!tensor.on_host()) {
    host = Tensor::empty(*memory, tensor.shape(), tensor.dtype(), tensor.buffer()->category(), Pool::host);
    copy(tensor, host);
  }
  stream->record().wait();
  return host;
}

Tensor Context::on_device(const Tensor& tensor) const {
  if (!tensor || tensor.buffer()->pool() == Pool::device) return tensor;
  const Tensor placed = empty(tensor.shape(), tensor.dtype(), tensor.buffer()->category());
  copy(tensor, placed);
  return placed;
}

}  // namespace nought
