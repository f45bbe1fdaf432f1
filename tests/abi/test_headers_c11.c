/* SPDX-License-Identifier: Apache-2.0
 * Both headers are clean C11, stand alone, and mean what DLPack means. */
#include <einkorn/ops.h>
/* again, for the include guards */
#include <einkorn/einkorn.h>
#include <einkorn/ops.h>

#include "check.h"

/* DLTensor and DLDataType, as dlpack.h has them. */
typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} dl_data_type;

typedef struct {
  void* data;
  struct {
    int32_t device_type;
    int32_t device_id;
  } device;
  int32_t ndim;
  dl_data_type dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} dl_tensor;

#define SAME(a, b) _Static_assert(offsetof(ek_tensor, a) == offsetof(dl_tensor, b), #a)
SAME(data, data);
SAME(device.type, device.device_type);
SAME(device.id, device.device_id);
SAME(ndim, ndim);
SAME(dtype, dtype);
SAME(shape, shape);
SAME(strides, strides);
SAME(byte_offset, byte_offset);
_Static_assert(sizeof(ek_tensor) == sizeof(dl_tensor), "ek_tensor");
_Static_assert(sizeof(ek_dtype) == sizeof(dl_data_type), "ek_dtype");
_Static_assert(sizeof(ek_device_info) == 160, "the ABI of ek_device_info changed");
_Static_assert(sizeof(ek_kernel_info) == 24, "the ABI of ek_kernel_info changed");

int main(void) {
  const dl_data_type bf16 = {4, 16, 1};
  const ek_dtype code = EK_DTYPE_BF16;
  CHECK(memcmp(&bf16, &code, sizeof code) == 0);
  CHECK(ek_version() == (EK_VERSION_MAJOR << 16 | EK_VERSION_MINOR << 8 | EK_VERSION_PATCH));
  CHECK(strncmp(ek_build_info(), "einkorn ", 8) == 0);
  return report("test_headers_c11");
}
