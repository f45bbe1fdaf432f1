// SPDX-License-Identifier: Apache-2.0
// group_norm on the CPU: y = (x - mean) * rstd * weight[c] + bias[c], mean and rstd of each (image, group).
// nchw: a group is some whole rows of x. nhwc: it is a few columns, so a block of about kColumns channels, whole
// groups, goes down the positions together with sums for each channel. Three passes: mean, variance, result.
#include "dispatch/ops_gen.h"
#include "ops/norm/layer_norm_cpu.h"

namespace ek::EK_CPU_NS {

// x and y [channels of the group, positions]; weight and bias of the group's channels, or null.
template <class T>
static void group_norm_rows(const GroupNormArgs& a, const T* x, const T* weight, const T* bias, T* y) {
  const int64_t channels = a.channels / a.groups, count = channels * a.positions;
  const int64_t x_stride = a.x.stride[1], y_stride = a.y.stride[1];
  double total = 0, first = 0, second = 0;
  for (int64_t c = 0; c < channels; ++c) total += sum_row(x + c * x_stride, a.positions);
  const float base = static_cast<float>(total / static_cast<double>(count));
  for (int64_t c = 0; c < channels; ++c) add_deviations(x + c * x_stride, a.positions, base, first, second);
  const Moments m = moments_of(base, first, second, count, a.eps);
  for (int64_t c = 0; c < channels; ++c) {
    const float factor = weight ? m.rstd * to_f32(weight[c]) : m.rstd, shift = bias ? to_f32(bias[c]) : 0.f;
    const auto value = [&](int64_t at, int64_t n, float* v) {
      load(x + c * x_stride + at, n, v);
      for (int64_t i = 0; i < n; ++i) v[i] = (v[i] - m.base - m.rest) * factor + shift;
    };
    store_row(a.positions, value, y + c * y_stride);
  }
}

// Channels that go together in nhwc: two cache lines of bf16, and enough blocks for the threads.
constexpr int64_t kColumns = 64;

// sum and squares of x - base for each of n <= kTile columns. f32 over 32 positions, f64 beyond.
template <class T>
static void column_sums(const T* x, int64_t stride, int64_t positions, int64_t n, const float* base, double* sum,
                        double* squares) {
  for (int64_t i = 0; i < n; ++i) sum[i] = squares[i] = 0;
  for (int64_t begin = 0; begin < positions; begin += 32) {
    float v[kTile], s[kTile] = {}, q[kTile] = {};
    for (int64_t p = begin; p < min_of<int64_t>(positions, begin + 32); ++p) {
      load(x + p * stride, n, v);
      for (int64_t i = 0; i < n; ++i) {
        const float d = v[i] - base[i];
        s[i] += d;
        q[i] += d * d;
      }
    }
    for (int64_t i = 0; i < n; ++i) sum[i] += s[i];
    for (int64_t i = 0; i < n; ++i) squares[i] += q[i];
  }
}

// `groups` <= kColumns whole groups; x and y [positions, their channels].
template <class T>
static void group_norm_columns(const GroupNormArgs& a, int64_t groups, const T* x, const T* weight, const T* bias,
                               T* y) {
  const int64_t channels = a.channels / a.groups, count = channels * a.positions;
  const int64_t x_stride = a.x.stride[1], y_stride = a.y.stride[1];
  float base[kTile] = {}, rest[kTile], factor[kTile], shift[kTile] = {}, v[kTile];
  double sum[kTile], squares[kTile], total[kColumns] = {}, first[kColumns] = {}, second[kColumns] = {};
  Moments m[kColumns];
  each_tile(groups * channels, [&](int64_t at, int64_t n) {
    column_sums(x + at, x_stride, a.positions, n, base, sum, squares);
    for (int64_t i = 0; i < n; ++i) total[(at + i) / channels] += sum[i];
  });
  for (int64_t g = 0; g < groups; ++g) m[g].base = static_cast<float>(total[g] / static_cast<double>(count));
  each_tile(groups * channels, [&](int64_t at, int64_t n) {
    for (int64_t i = 0; i < n; ++i) base[i] = m[(at + i) / channels].base;
    column_sums(x + at, x_stride, a.positions, n, base, sum, squares);
    for (int64_t i = 0; i < n; ++i) first[(at + i) / channels] += sum[i];
    for (int64_t i = 0; i < n; ++i) second[(at + i) / channels] += squares[i];
  });
  for (int64_t g = 0; g < groups; ++g) m[g] = moments_of(m[g].base, first[g], second[g], count, a.eps);
  each_tile(groups * channels, [&](int64_t at, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const Moments& of = m[(at + i) / channels];
      base[i] = of.base;
      rest[i] = of.rest;
      factor[i] = of.rstd;
    }
    multiply_weight(weight, 0.f, at, n, factor);
    if (bias) load(bias + at, n, shift);
    for (int64_t p = 0; p < a.positions; ++p) {
      load(x + p * x_stride + at, n, v);
      for (int64_t i = 0; i < n; ++i) v[i] = (v[i] - base[i] - rest[i]) * factor[i] + shift[i];
      store(v, n, y + p * y_stride + at);
    }
  });
}

static ek_status group_norm_cpu(const GroupNormArgs& a, const Launch&) {
  const bool nchw = a.layout == EK_IMAGE_LAYOUT_NCHW;
  const int64_t channels = a.channels / a.groups;
  const int64_t together = nchw ? 1 : max_of<int64_t>(1, kColumns / channels), units = ceil_div(a.groups, together);
  with_float(a.T, [&](auto type) {
    using T = typename decltype(type)::type;
    const T *weight = data_of<const T>(a.weight), *bias = data_of<const T>(a.bias);
    parallel_for(a.batch * units, grain_of(together * channels * a.positions), [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t image = unit / units, group = unit % units * together, c = group * channels;
        const T* x = data_of<const T>(a.x) + image * a.x.stride[0] + c * (nchw ? a.x.stride[1] : 1);
        T* y = data_of<T>(a.y) + image * a.y.stride[0] + c * (nchw ? a.y.stride[1] : 1);
        const T *w = weight ? weight + c : nullptr, *b = bias ? bias + c : nullptr;
        if (nchw)
          group_norm_rows(a, x, w, b, y);
        else
          group_norm_columns(a, min_of(together, a.groups - group), x, w, b, y);
      }
    });
  });
  return EK_STATUS_OK;
}

const Kernel<GroupNormArgs> kGroupNormCpu[] = {{EK_CPU_ROW("group_norm_cpu"), kCpuTarget, nullptr, group_norm_cpu}, {}};

}  // namespace ek::EK_CPU_NS
