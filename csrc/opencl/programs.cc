#include "opencl/programs.h"

#include <cctype>

#include "gpu/embedded_kernels.h"

namespace oxibonsai::opencl {
namespace {

std::string unpacked(const std::function<std::string(std::string_view)>& unpack) {
  if (gpu::embedded_spirv().kernels.empty())
    throw UnsupportedError(
        "this build embeds no SPIR-V for OpenCL: build it where clang-15 and llvm-spirv-15 are "
        "installed");
  return unpack(gpu::embedded_spirv().compressed);
}

// A part of a file's name.
std::string plain(std::string text) {
  for (char& c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.') c = '-';
  return text;
}

std::string kept_name(const DeviceInfo& device, const std::string& kernel) {
  return "opencl-" + plain(device.platform_name) + "-" + plain(device.name) + "-driver_" +
         plain(device.driver_version) + "-" + std::string(gpu::kernel_digest()) + "-" + kernel +
         ".bin";
}

}  // namespace

Programs::Programs(const Driver& driver, const DeviceInfo& device, ContextHandle* context,
                   const std::string& folder,
                   const std::function<std::string(std::string_view)>& unpack)
    : driver_(driver),
      device_(device),
      context_(context),
      cache_(folder),
      modules_(unpacked(unpack)) {
  std::string_view rest = modules_;
  for (const auto& kernel : gpu::embedded_spirv().kernels) {
    module_of_[std::string(kernel.name)] = rest.substr(0, kernel.bytes);
    rest.remove_prefix(kernel.bytes);
  }
}

Programs::~Programs() {
  for (const auto& [name, k] : kernels_) {
    driver_.clReleaseKernel(k.kernel);
    driver_.clReleaseProgram(k.program);
  }
}

KernelHandle* Programs::get(const char* name, uint32_t threads) {
  auto found = kernels_.find(name);
  if (found == kernels_.end()) found = kernels_.emplace(name, make(name)).first;
  Kernel& k = found->second;
  if (k.threads != threads) {
    check_launch(name, k.kernel, threads);
    k.threads = threads;
  }
  return k.kernel;
}

Programs::Kernel Programs::make(const std::string& name) const {
  Kernel k;
  const std::string file = kept_name(device_, name);
  const std::vector<uint8_t> kept = cache_.read(file);
  if (!kept.empty()) k.program = load(name, kept);
  const bool is_new = k.program == nullptr;
  if (is_new) k.program = compile(name);
  Result result = kSuccess;
  k.kernel = driver_.clCreateKernel(k.program, name.c_str(), &result);
  if (result != kSuccess) {
    driver_.clReleaseProgram(k.program);
    driver_.check(result, "clCreateKernel of " + name);
  }
  if (is_new) cache_.keep(file, image_of(k.program));
  return k;
}

// Null where the driver refuses it: damaged, or another driver's under the same version.
ProgramHandle* Programs::load(const std::string& name, const std::vector<uint8_t>& image) const {
  const size_t bytes = image.size();
  const uint8_t* data = image.data();
  Result status = kSuccess, result = kSuccess;
  ProgramHandle* program = driver_.clCreateProgramWithBinary(context_, 1, &device_.device, &bytes,
                                                             &data, &status, &result);
  if (result != kSuccess) return nullptr;
  result = driver_.clBuildProgram(program, 1, &device_.device, "", nullptr, nullptr);
  KernelHandle* kernel = nullptr;
  if (result == kSuccess) kernel = driver_.clCreateKernel(program, name.c_str(), &result);
  if (kernel != nullptr) driver_.clReleaseKernel(kernel);
  if (result == kSuccess) return program;
  driver_.clReleaseProgram(program);
  return nullptr;
}

ProgramHandle* Programs::compile(const std::string& name) const {
  const auto module = module_of_.find(name);
  if (module == module_of_.end()) throw DeviceError("there is no kernel " + name);
  Result result = kSuccess;
  ProgramHandle* program = driver_.clCreateProgramWithIL(context_, module->second.data(),
                                                         module->second.size(), &result);
  driver_.check(result, "clCreateProgramWithIL of " + name);
  result = driver_.clBuildProgram(program, 1, &device_.device, "", nullptr, nullptr);
  if (result == kSuccess) return program;
  size_t bytes = 0;
  driver_.clGetProgramBuildInfo(program, device_.device, kProgramBuildLog, 0, nullptr, &bytes);
  std::string log(bytes + 1, '\0');
  driver_.clGetProgramBuildInfo(program, device_.device, kProgramBuildLog, bytes, log.data(),
                                nullptr);
  driver_.clReleaseProgram(program);
  throw DeviceError("the driver cannot compile the kernel " + name + ": " + log.c_str());
}

// Empty where the driver gives none: then it is compiled anew the next time.
std::vector<uint8_t> Programs::image_of(ProgramHandle* program) const {
  size_t bytes = 0;
  if (driver_.clGetProgramInfo(program, kProgramBinarySizes, sizeof bytes, &bytes, nullptr) !=
      kSuccess)
    return {};
  std::vector<uint8_t> image(bytes);
  uint8_t* data = image.data();
  if (driver_.clGetProgramInfo(program, kProgramBinaries, sizeof data, &data, nullptr) != kSuccess)
    return {};
  return image;
}

void Programs::check_launch(const std::string& name, KernelHandle* kernel, size_t threads) const {
  size_t most = 0;
  driver_.check(driver_.clGetKernelWorkGroupInfo(kernel, device_.device, kKernelWorkGroupSize,
                                                 sizeof most, &most, nullptr),
                "clGetKernelWorkGroupInfo of " + name);
  if (most < threads)
    throw DeviceError("the driver runs the kernel " + name + " in work groups of at most " +
                      std::to_string(most) + ", not " + std::to_string(threads));
  const size_t block[3] = {threads, 1, 1};
  size_t lanes = 0;
  driver_.check(
      driver_.clGetKernelSubGroupInfo(kernel, device_.device, kKernelMaxSubGroupSizeForNdrange,
                                      sizeof block, block, sizeof lanes, &lanes, nullptr),
      "clGetKernelSubGroupInfo of " + name);
  if (lanes != 32)
    throw DeviceError("the driver runs the kernel " + name + " in subgroups of " +
                      std::to_string(lanes) + ", not 32");
}

}  // namespace oxibonsai::opencl
