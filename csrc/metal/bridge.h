#pragma once

// All that is asked of Metal, as plain C: bridge.mm answers on Apple's systems, missing/bridge.cc
// says elsewhere that there is none, and a test may stand in for both.
//
// A call that can fail takes `error`, which is left null where all is well and else is a text that
// the caller frees with free(). Handles are null where a call has failed.

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct OxiMetalDevice OxiMetalDevice;
typedef struct OxiMetalBuffer OxiMetalBuffer;

// The GPU with a queue, and the kernels compiled from Metal source without fast math.
OxiMetalDevice* oxi_metal_open(const char* source, char** error);
void oxi_metal_close(OxiMetalDevice* device);

// The GPU's name, to be freed with free().
char* oxi_metal_name(OxiMetalDevice* device);
// What Metal recommends to use at most, and what this process uses; bytes.
uint64_t oxi_metal_recommended_bytes(OxiMetalDevice* device);
uint64_t oxi_metal_used_bytes(OxiMetalDevice* device);

// Memory that processor and GPU share. Null without an error where there is too little.
OxiMetalBuffer* oxi_metal_allocate(OxiMetalDevice* device, uint64_t bytes);
void oxi_metal_free(OxiMetalBuffer* buffer);
void* oxi_metal_contents(OxiMetalBuffer* buffer);

// Encodes a launch behind those before it; `buffers` are bound from index 1 on, where null stands
// for none, `args` at index 0.
void oxi_metal_launch(OxiMetalDevice* device, const char* kernel, const uint32_t grid[3],
                      uint32_t threads, const void* args, uint64_t arg_bytes,
                      OxiMetalBuffer* const* buffers, const uint64_t* offsets, int count,
                      char** error);
// Runs what was encoded and waits for it.
void oxi_metal_synchronize(OxiMetalDevice* device, char** error);

#ifdef __cplusplus
}
#endif
