// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "core/backend.h"
#include "core/sized.h"

namespace ek {

const Backend* find_backend(int32_t device_type) {
  switch (device_type) {
    case EK_DEVICE_CPU: return &cpu_backend();
#ifdef EINKORN_CUDA
    case EK_DEVICE_CUDA:
    case EK_DEVICE_CUDA_HOST:
    case EK_DEVICE_CUDA_MANAGED: return &cuda_backend();
#endif
    default: return nullptr;
  }
}

namespace {

bool is_cuda_type(int32_t type) {
  return type == EK_DEVICE_CUDA || type == EK_DEVICE_CUDA_HOST || type == EK_DEVICE_CUDA_MANAGED;
}

}  // namespace

ek_status check_device(ek_context* context, const char* caller, ek_device device, const Backend** backend_out) {
  const Backend* backend = find_backend(device.type);
  if (!backend) {
    if (is_cuda_type(device.type))
      return fail(context, EK_STATUS_NOT_FOUND, "%s: no device cuda:%d: this build of einkorn has no CUDA", caller,
                  device.id);
    return fail(context, EK_STATUS_INVALID_ARGUMENT, "%s: device type is %d, expected %d (CPU) or %d (CUDA)", caller,
                device.type, EK_DEVICE_CPU, EK_DEVICE_CUDA);
  }
  int count = 0;
  if (const ek_status status = backend->count(context, &count)) return status;
  if (device.id < 0 || device.id >= count) {
    if (count == 0)
      return fail(context, EK_STATUS_NOT_FOUND, "%s: no device %s:%d: %s", caller, backend->name, device.id,
                  backend->why_none());
    return fail(context, EK_STATUS_NOT_FOUND, "%s: no device %s:%d: there %s %d", caller, backend->name, device.id,
                count == 1 ? "is" : "are", count);
  }
  *backend_out = backend;
  return EK_STATUS_OK;
}

}  // namespace ek

using ek::fail;

ek_status ek_device_count(int32_t device_type, int32_t* count_out) {
  if (!count_out) return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_device_count: count_out is NULL");
  if (device_type != EK_DEVICE_CPU && device_type != EK_DEVICE_CUDA)
    return fail(nullptr, EK_STATUS_INVALID_ARGUMENT,
                "ek_device_count: device type is %d, expected %d (CPU) or %d (CUDA)", device_type, EK_DEVICE_CPU,
                EK_DEVICE_CUDA);
  int count = 0;
  if (const ek::Backend* backend = ek::find_backend(device_type))
    if (const ek_status status = backend->count(nullptr, &count)) return status;
  *count_out = count;
  return ek::succeed(nullptr);
}

ek_status ek_device_query(ek_device device, ek_device_info* info_out) {
  const ek::Backend* backend = nullptr;
  ek::Device d;
  if (const ek_status status = ek::check_sized(nullptr, "ek_device_query", "info_out", info_out)) return status;
  if (const ek_status status = ek::check_device(nullptr, "ek_device_query", device, &backend)) return status;
  if (const ek_status status = backend->describe(nullptr, device.id, &d)) return status;
  ek_device_info info = {};
  info.target = d.target;
  info.processors = d.processors;
  info.memory_bytes = static_cast<uint64_t>(d.memory_bytes);
  info.l2_bytes = static_cast<uint64_t>(d.l2_bytes);
  memcpy(info.name, d.name, sizeof(info.name));
  ek::fill_sized(info_out, info);
  return ek::succeed(nullptr);
}
