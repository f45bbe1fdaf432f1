// SPDX-License-Identifier: Apache-2.0
#include "core/blas.h"

#include <dlfcn.h>

#include <initializer_list>

namespace ek {

static CblasSgemm load_sgemm() {
  // Those with kernels of their own for this CPU first; the last may be the plain reference BLAS.
  for (const char* name : {"libopenblas.so.0", "libblis.so", "libblis.so.4", "libmkl_rt.so.2", "libcblas.so.3"}) {
    // Not closed again: a BLAS's threads would go on without their code.
    void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) continue;
    if (void* symbol = dlsym(library, "cblas_sgemm")) return reinterpret_cast<CblasSgemm>(symbol);
  }
  return nullptr;
}

CblasSgemm find_sgemm() {
  static const CblasSgemm sgemm = load_sgemm();
  return sgemm;
}

}  // namespace ek
