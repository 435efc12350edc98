#include "cuda/nvrtc.h"

#include <memory>

#include "base/check.h"
#include "base/library.h"

namespace oxibonsai::cuda {
namespace {

struct ProgramHandle;

#define OXI_NVRTC_CALLS(X)                                                                      \
  X(nvrtcCreateProgram, int,                                                                    \
    (ProgramHandle * *program, const char* source, const char* name, int count,                 \
     const char* const* headers, const char* const* names))                                     \
  X(nvrtcDestroyProgram, int, (ProgramHandle * *program))                                       \
  X(nvrtcCompileProgram, int, (ProgramHandle * program, int count, const char* const* options)) \
  X(nvrtcGetProgramLogSize, int, (ProgramHandle * program, size_t * bytes))                     \
  X(nvrtcGetProgramLog, int, (ProgramHandle * program, char* log))                              \
  X(nvrtcGetCUBINSize, int, (ProgramHandle * program, size_t * bytes))                          \
  X(nvrtcGetCUBIN, int, (ProgramHandle * program, char* cubin))                                 \
  X(nvrtcGetErrorString, const char*, (int result))

struct Compiler {
#define X(name, type, parameters) type(*name) parameters = nullptr;
  OXI_NVRTC_CALLS(X)
#undef X

  explicit Compiler(const std::vector<std::string>& libraries) {
    if (libraries.empty()) throw UnsupportedError("no run-time compiler is named");
    for (size_t i = 0; i + 1 < libraries.size(); ++i) Library before(libraries[i]);
    const Library library(libraries.back());
#define X(name, type, parameters) \
  library.find(&name, #name, "the run-time compiler is older than CUDA 11.1");
    OXI_NVRTC_CALLS(X)
#undef X
  }

  void check(int result, const char* what) const {
    if (result != 0) throw DeviceError(std::string(what) + ": " + nvrtcGetErrorString(result));
  }

  std::string log(ProgramHandle* program) const {
    size_t bytes = 0;
    if (nvrtcGetProgramLogSize(program, &bytes) != 0 || bytes == 0) return "";
    std::string text(bytes, '\0');
    if (nvrtcGetProgramLog(program, text.data()) != 0) return "";
    return text.c_str();
  }
};

}  // namespace

std::vector<uint8_t> compile_cubin(const std::vector<std::string>& libraries,
                                   const std::string& source, const std::string& generation) {
  const Compiler compiler(libraries);
  ProgramHandle* program = nullptr;
  compiler.check(compiler.nvrtcCreateProgram(&program, source.c_str(), "oxibonsai_kernels.cu", 0,
                                             nullptr, nullptr),
                 "nvrtcCreateProgram");
  const auto destroy = [&](ProgramHandle* p) { compiler.nvrtcDestroyProgram(&p); };
  const std::unique_ptr<ProgramHandle, decltype(destroy)> owner(program, destroy);
  const std::string target = "--gpu-architecture=" + generation;
  // docs/arithmetic.md: nothing is fused, flushed or approximated.
  const char* options[] = {target.c_str(), "--std=c++17",     "--fmad=false",
                           "--ftz=false",  "--prec-div=true", "--prec-sqrt=true"};
  const int result = compiler.nvrtcCompileProgram(
      program, static_cast<int>(sizeof options / sizeof *options), options);
  if (result != 0)
    throw DeviceError("the kernels cannot be compiled for " + generation + ": " +
                      compiler.nvrtcGetErrorString(result) + "; " + compiler.log(program));
  size_t bytes = 0;
  compiler.check(compiler.nvrtcGetCUBINSize(program, &bytes), "nvrtcGetCUBINSize");
  std::vector<uint8_t> cubin(bytes);
  compiler.check(compiler.nvrtcGetCUBIN(program, reinterpret_cast<char*>(cubin.data())),
                 "nvrtcGetCUBIN");
  return cubin;
}

}  // namespace oxibonsai::cuda
