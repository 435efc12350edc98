// All kernels, as the emulator runs them.

#include "gpu/dialect.h"

namespace {

#include "gpu/kernels/all.h"

}  // namespace
