// What is compiled for OpenCL.

#include "gpu/kernels/all.h"

#include "opencl/probe.h"
