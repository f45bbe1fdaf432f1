/* SPDX-License-Identifier: Apache-2.0
 * A user's C program: one rms_norm on the CPU, through installed headers and library. */
#include <einkorn/einkorn.h>
#include <einkorn/ops.h>
#include <stdio.h>

static int failed(const char* what, ek_status status, const char* message) {
  fprintf(stderr, "%s: %s: %s\n", what, ek_status_name(status), message);
  return 1;
}

int main(void) {
  const uint32_t version = EK_VERSION_MAJOR << 16 | EK_VERSION_MINOR << 8 | EK_VERSION_PATCH;
  if (ek_version() != version) {
    fprintf(stderr, "header is 0x%06x, library 0x%06x\n", (unsigned)version, (unsigned)ek_version());
    return 1;
  }

  const ek_device cpu = {EK_DEVICE_CPU, 0};
  ek_context* context = NULL;
  ek_status status = ek_context_create(cpu, &context);
  if (status != EK_STATUS_OK) return failed("ek_context_create", status, ek_last_error());

  /* mean(x^2) is 12.5 in row 0 and 50 in row 1, so y is x / sqrt(12.5) and x / sqrt(50): the same numbers. */
  float x_data[4] = {3, 4, 6, 8}, weight_data[2] = {1, 2}, y_data[4] = {0, 0, 0, 0};
  const int64_t shape[2] = {2, 2}, dim[1] = {2};
  const ek_tensor x = {x_data, cpu, 2, EK_DTYPE_F32, shape, NULL, 0};
  const ek_tensor weight = {weight_data, cpu, 1, EK_DTYPE_F32, dim, NULL, 0};
  const ek_tensor y = {y_data, cpu, 2, EK_DTYPE_F32, shape, NULL, 0};

  ek_rms_norm_args args = EK_RMS_NORM_ARGS;
  args.x = &x;
  args.weight = &weight;
  args.y = &y;
  args.eps = 0;
  status = ek_rms_norm(context, &args);
  if (status != EK_STATUS_OK) return failed("ek_rms_norm", status, ek_context_error(context));

  const float expected[4] = {0.84852814f, 2.2627417f, 0.84852814f, 2.2627417f};
  for (int i = 0; i < 4; ++i) {
    const float error = y_data[i] - expected[i];
    if (!(error < 1e-6f && error > -1e-6f)) {
      fprintf(stderr, "y[%d] is %.8f, expected %.8f\n", i, (double)y_data[i], (double)expected[i]);
      return 1;
    }
  }
  printf("%s: %s\n", ek_build_info(), ek_kernel_last(context));
  ek_context_destroy(context);
  return 0;
}
