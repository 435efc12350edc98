// Metal behind the C interface of bridge.h. All work goes through one queue in order.

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include <cstring>
#include <map>
#include <string>

#include "metal/bridge.h"

struct OxiMetalDevice {
  id<MTLDevice> device;
  id<MTLCommandQueue> queue;
  id<MTLLibrary> library;
  std::map<std::string, id<MTLComputePipelineState>> pipelines;
  id<MTLCommandBuffer> commands;         // being encoded; nil: none
  id<MTLComputeCommandEncoder> encoder;  // of it
};

struct OxiMetalBuffer {
  id<MTLBuffer> buffer;
};

namespace {

void set_error(char** error, NSString* text) {
  *error = strdup(text == nil ? "Metal gives no reason" : text.UTF8String);
}

// docs/arithmetic.md: nothing is fused, flushed or approximated.
MTLCompileOptions* exact_options() {
  MTLCompileOptions* options = [MTLCompileOptions new];
  if (@available(macOS 15.0, *)) {
    options.mathMode = MTLMathModeSafe;
    options.mathFloatingPointFunctions = MTLMathFloatingPointFunctionsPrecise;
  } else {
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wdeprecated-declarations"
    options.fastMathEnabled = NO;
#pragma clang diagnostic pop
  }
  return options;
}

id<MTLComputePipelineState> pipeline(OxiMetalDevice* d, const char* kernel, char** error) {
  const auto found = d->pipelines.find(kernel);
  if (found != d->pipelines.end()) return found->second;
  id<MTLFunction> function = [d->library newFunctionWithName:@(kernel)];
  if (function == nil) {
    set_error(error, [NSString stringWithFormat:@"there is no kernel %s", kernel]);
    return nil;
  }
  NSError* reason = nil;
  id<MTLComputePipelineState> made = [d->device newComputePipelineStateWithFunction:function
                                                                              error:&reason];
  if (made == nil) {
    set_error(error, reason.localizedDescription);
    return nil;
  }
  d->pipelines[kernel] = made;
  return made;
}

}  // namespace

OxiMetalDevice* oxi_metal_open(const char* source, char** error) {
  @autoreleasepool {
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    if (device == nil) {
      set_error(error, @"this Mac has no GPU that Metal can use");
      return nullptr;
    }
    if (![device supportsFamily:MTLGPUFamilyApple7]) {
      set_error(error, @"the kernels need a GPU of Apple's own, M1 or later");
      return nullptr;
    }
    NSError* reason = nil;
    id<MTLLibrary> library = [device newLibraryWithSource:@(source)
                                                  options:exact_options()
                                                    error:&reason];
    if (library == nil) {
      set_error(error, reason.localizedDescription);
      return nullptr;
    }
    return new OxiMetalDevice{device, [device newCommandQueue], library, {}, nil, nil};
  }
}

void oxi_metal_close(OxiMetalDevice* d) {
  @autoreleasepool {
    if (d->encoder != nil) [d->encoder endEncoding];
    delete d;
  }
}

char* oxi_metal_name(OxiMetalDevice* d) { return strdup(d->device.name.UTF8String); }

uint64_t oxi_metal_recommended_bytes(OxiMetalDevice* d) {
  return d->device.recommendedMaxWorkingSetSize;
}

uint64_t oxi_metal_used_bytes(OxiMetalDevice* d) { return d->device.currentAllocatedSize; }

OxiMetalBuffer* oxi_metal_allocate(OxiMetalDevice* d, uint64_t bytes) {
  @autoreleasepool {
    if (bytes > d->device.maxBufferLength) return nullptr;
    id<MTLBuffer> buffer = [d->device newBufferWithLength:bytes
                                                  options:MTLResourceStorageModeShared];
    return buffer == nil ? nullptr : new OxiMetalBuffer{buffer};
  }
}

void oxi_metal_free(OxiMetalBuffer* b) {
  @autoreleasepool {
    delete b;
  }
}

void* oxi_metal_contents(OxiMetalBuffer* b) { return b->buffer.contents; }

void oxi_metal_launch(OxiMetalDevice* d, const char* kernel, const uint32_t grid[3],
                      uint32_t threads, const void* args, uint64_t arg_bytes,
                      OxiMetalBuffer* const* buffers, const uint64_t* offsets, int count,
                      char** error) {
  @autoreleasepool {
    id<MTLComputePipelineState> state = pipeline(d, kernel, error);
    if (state == nil) return;
    if (d->commands == nil) {
      d->commands = [d->queue commandBuffer];
      d->encoder = [d->commands computeCommandEncoder];
    }
    [d->encoder setComputePipelineState:state];
    [d->encoder setBytes:args length:arg_bytes atIndex:0];
    for (int i = 0; i < count; ++i) {
      id<MTLBuffer> buffer = buffers[i] == nullptr ? nil : buffers[i]->buffer;
      [d->encoder setBuffer:buffer offset:(buffer == nil ? 0 : offsets[i]) atIndex:(i + 1)];
    }
    [d->encoder dispatchThreadgroups:MTLSizeMake(grid[0], grid[1], grid[2])
               threadsPerThreadgroup:MTLSizeMake(threads, 1, 1)];
  }
}

void oxi_metal_synchronize(OxiMetalDevice* d, char** error) {
  @autoreleasepool {
    if (d->commands == nil) return;
    [d->encoder endEncoding];
    [d->commands commit];
    [d->commands waitUntilCompleted];
    if (d->commands.status == MTLCommandBufferStatusError)
      set_error(error, d->commands.error.localizedDescription);
    d->commands = nil;
    d->encoder = nil;
  }
}
