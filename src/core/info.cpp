// SPDX-License-Identifier: Apache-2.0
// Version and names.
#include "core/info.h"

#include <cstdio>
#include <cstring>

#include "core/backend.h"

namespace ek {

namespace {

struct DtypeName {
  ek_dtype dtype;
  const char* name;
};
constexpr DtypeName kDtypeNames[] = {
    {EK_DTYPE_BOOL, "bool"}, {EK_DTYPE_U8, "u8"},     {EK_DTYPE_I8, "i8"},     {EK_DTYPE_I32, "i32"},
    {EK_DTYPE_I64, "i64"},   {EK_DTYPE_F64, "f64"},   {EK_DTYPE_F32, "f32"},   {EK_DTYPE_F16, "f16"},
    {EK_DTYPE_BF16, "bf16"}, {EK_DTYPE_E4M3, "e4m3"}, {EK_DTYPE_E5M2, "e5m2"}, {EK_DTYPE_E8M0, "e8m0"},
    {EK_DTYPE_E2M1, "e2m1"}, {EK_DTYPE_I4, "i4"},     {EK_DTYPE_U4, "u4"},
};

struct BuildInfo {
  char text[288];
  BuildInfo() {
#ifdef EINKORN_CUDA
    const char* cuda = cuda_build_info();
#else
    const char* cuda = "cpu only";
#endif
    snprintf(text, sizeof(text), "einkorn %d.%d.%d, %s", EK_VERSION_MAJOR, EK_VERSION_MINOR, EK_VERSION_PATCH, cuda);
  }
};

}  // namespace

ek_dtype find_dtype(const char* name, size_t length) {
  for (const DtypeName& d : kDtypeNames)
    if (strlen(d.name) == length && memcmp(d.name, name, length) == 0) return d.dtype;
  return 0;
}

}  // namespace ek

uint32_t ek_version(void) { return EK_VERSION_MAJOR << 16 | EK_VERSION_MINOR << 8 | EK_VERSION_PATCH; }

const char* ek_build_info(void) {
  static const ek::BuildInfo info;
  return info.text;
}

const char* ek_status_name(ek_status status) {
  switch (status) {
    case EK_STATUS_OK: return "ok";
    case EK_STATUS_INVALID_ARGUMENT: return "invalid_argument";
    case EK_STATUS_UNSUPPORTED: return "unsupported";
    case EK_STATUS_OUT_OF_MEMORY: return "out_of_memory";
    case EK_STATUS_WORKSPACE: return "workspace";
    case EK_STATUS_CUDA: return "cuda";
    case EK_STATUS_NOT_FOUND: return "not_found";
    case EK_STATUS_INTERNAL: return "internal";
  }
  return "unknown";
}

const char* ek_dtype_name(ek_dtype dtype) {
  for (const ek::DtypeName& d : ek::kDtypeNames)
    if (d.dtype == dtype) return d.name;
  return "unknown";
}
