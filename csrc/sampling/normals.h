#pragma once

// Standard normal numbers of a seed as two other programs draw them, for pictures that start from
// the noise that those start from. Nothing here uses libm, so the bytes are the same everywhere.

#include <cstdint>

namespace oxibonsai::sampling {

// What MLX's random.normal draws in float32 from a key: bit for bit on Linux. The numbers depend on
// the count: a longer array does not begin with a shorter one.
void mlx_normals(uint64_t seed, int64_t count, float* out);

// What torch.randn draws in float32 from its generator on a CPU; count is at least 16, below which
// torch has another algorithm. The integers are the same; torch's logarithm and sine differ between
// its own builds, these are rounded from double.
void torch_normals(uint64_t seed, int64_t count, float* out);

}  // namespace oxibonsai::sampling
