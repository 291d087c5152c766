#include "nought/cuda/backend/blas.h"

namespace nought::cuda {

BlasFunctions load_blas(const LibrarySearch& search) {
  const Library library({"libcublasLt.so.13", "libcublasLt.so.12"}, search);
  BlasFunctions to{};
  const auto take = [&]<class Function>(Function*& function, const char* name) {
    function = library.function<Function>(name);
  };
  take(to.create, "cublasLtCreate");
  take(to.destroy, "cublasLtDestroy");
  take(to.desc_create, "cublasLtMatmulDescCreate");
  take(to.desc_set, "cublasLtMatmulDescSetAttribute");
  take(to.desc_destroy, "cublasLtMatmulDescDestroy");
  take(to.layout_create, "cublasLtMatrixLayoutCreate");
  take(to.layout_destroy, "cublasLtMatrixLayoutDestroy");
  take(to.preference_create, "cublasLtMatmulPreferenceCreate");
  take(to.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  take(to.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  take(to.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  take(to.multiply, "cublasLtMatmul");
  return to;
}

}  // namespace nought::cuda
