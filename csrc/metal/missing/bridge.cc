#include "metal/bridge.h"

#include <cstring>

extern "C" {

OxiMetalDevice* oxi_metal_open(const char*, char** error) {
  *error = strdup("Metal is part of Apple's systems, and this is another");
  return nullptr;
}

// Nothing can be opened, so none of these is ever called.
void oxi_metal_close(OxiMetalDevice*) {}
char* oxi_metal_name(OxiMetalDevice*) { return nullptr; }
uint64_t oxi_metal_recommended_bytes(OxiMetalDevice*) { return 0; }
uint64_t oxi_metal_used_bytes(OxiMetalDevice*) { return 0; }
OxiMetalBuffer* oxi_metal_allocate(OxiMetalDevice*, uint64_t) { return nullptr; }
void oxi_metal_free(OxiMetalBuffer*) {}
void* oxi_metal_contents(OxiMetalBuffer*) { return nullptr; }
void oxi_metal_launch(OxiMetalDevice*, const char*, const uint32_t*, uint32_t, const void*,
                      uint64_t, OxiMetalBuffer* const*, const uint64_t*, int, char**) {}
void oxi_metal_synchronize(OxiMetalDevice*, char**) {}

}  // extern "C"
