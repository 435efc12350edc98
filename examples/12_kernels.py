"""Use a kernel by itself: a matrix with one bit a weight, times a vector."""

import numpy as np

from oxibonsai import kernels

rng = np.random.default_rng(0)
weights = rng.standard_normal((64, 256)).astype(np.float32)
x = rng.standard_normal(256).astype(np.float32)

matrix = kernels.quantize(weights, "Q1_0")
product = np.asarray(kernels.gemv(matrix, x))
print(product[:4])

exact = np.asarray(matrix.dequantize()) @ x
error = np.abs(product - exact).max() / np.abs(exact).max()
print(f"rounding the input to 8 bits costs {error:.2%} of the largest product")
assert error < 0.02
