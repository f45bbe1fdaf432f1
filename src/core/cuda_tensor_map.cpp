// SPDX-License-Identifier: Apache-2.0
// The one driver call for tensor maps.
#include "core/cuda_driver.h"
#include "cuda/tensor_map.h"

namespace ek {

namespace {

CUtensorMapSwizzle swizzle_of(int bytes) {
  if (bytes == 128) return CU_TENSOR_MAP_SWIZZLE_128B;
  return bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_32B;
}

}  // namespace

bool make_tensor_map(const TensorBox& box, CUtensorMap* map_out) {
  static const auto encode = driver_call<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  if (!encode) return false;
  const int bytes = dtype_bytes(box.dtype);
  const auto type = box.dtype == EK_DTYPE_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const cuuint64_t sizes[4] = {static_cast<cuuint64_t>(box.size_x), static_cast<cuuint64_t>(box.size_y),
                               static_cast<cuuint64_t>(box.size_z), static_cast<cuuint64_t>(box.size_w)};
  // The stride of a dim of size 1 is never used, but must be one that the driver accepts.
  const auto stride = [&](int64_t size, int64_t elements) {
    return static_cast<cuuint64_t>(size > 1 ? elements * bytes : 16);
  };
  const cuuint64_t strides[3] = {stride(box.size_y, box.stride_y), stride(box.size_z, box.stride_z),
                                 stride(box.size_w, box.stride_w)};
  const cuuint32_t extent[4] = {static_cast<cuuint32_t>(box.box_x), static_cast<cuuint32_t>(box.box_y), 1, 1};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  // Rows that begin off L2's lines of 128 bytes ask for more of them as it is.
  const bool neighbours = !box.once && box.stride_y * bytes % 128 == 0;
  return encode(map_out, type, box.size_w ? 4 : 3, const_cast<void*>(box.data), sizes, strides, extent, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(box.box_x * bytes),
                neighbours ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace ek
