#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace oxibonsai::cuda {

// Compiles CUDA C++ for one generation of cards ("sm_90") with NVIDIA's run-time compiler, the last
// of `libraries`; those before it are opened first. UnsupportedError where there is no compiler,
// DeviceError with its log where it refuses the source.
std::vector<uint8_t> compile_cubin(const std::vector<std::string>& libraries,
                                   const std::string& source, const std::string& generation);

}  // namespace oxibonsai::cuda
