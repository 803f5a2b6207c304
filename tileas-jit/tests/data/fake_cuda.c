/* A driver without a device, for tests of the calls: it writes every call that matters to the file FAKE_CUDA_LOG, checks what the
   real one relies on, and plays a little: memory is the host's, a launch "runs" until something waits for it.
   Types and numbers are written down anew from the driver's documentation, so that those of the bindings are tested too. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { uint32_t id; char pad[4]; union { char pad[64]; struct { uint32_t x, y, z; } cluster; } value; } Attribute;
typedef struct { uint32_t grid[3], block[3], shared; void *stream; Attribute *attributes; uint32_t count; } Config;

static int depth, running, linkers;
static char *errors;

static void say(const char *format, ...) {
    va_list list;
    FILE *file = fopen(getenv("FAKE_CUDA_LOG"), "a");
    if (!file) abort();
    va_start(list, format);
    vfprintf(file, format, list);
    va_end(list);
    fclose(file);
}
static int asked(const char *name) { return getenv(name) ? atoi(getenv(name)) : 0; }
static void current(const char *call) { if (!depth) say("%s WITHOUT A CONTEXT\n", call); }

int cuGetErrorString(int error, const char **text) { *text = error == 700 ? "an illegal address" : "a made-up error"; return 0; }
int cuDriverGetVersion(int *version) { *version = asked("FAKE_CUDA_DRIVER") ? asked("FAKE_CUDA_DRIVER") : 12090; return 0; }
int cuInit(unsigned flags) { say("init %u\n", flags); return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal + 40; return ordinal ? 101 : 0; }
int cuDeviceGetName(char *name, int size, int device) { snprintf(name, size, "Fake %d", device); return 0; }
int cuDeviceGetAttribute(int *value, int which, int device) {
    *value = which == 75 ? 10 : which == 76 ? 0 : which == 16 ? 148 : which == 97 ? 232448 : -1;
    return device == 40 ? 0 : 101;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)0x100; say("retain %d\n", device); return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { say("release %d, contexts pushed %d, linkers %d\n", device, depth, linkers); return 0; }
int cuCtxPushCurrent_v2(void *context) { if (context != (void *)0x100) abort(); depth++; return 0; }
int cuCtxPopCurrent_v2(void **context) { *context = (void *)0x100; current("pop"); depth--; return 0; }
int cuCtxSynchronize(void) {
    current("synchronize");
    say("synchronize context\n");
    if (asked("FAKE_CUDA_BROKEN")) return 700;
    running = 0;
    return 0;
}
int cuStreamCreate(void **stream, unsigned flags) { current("stream"); *stream = (void *)0x200; say("stream, flags %u\n", flags); return 0; }
int cuStreamDestroy_v2(void *stream) { say("destroy stream %p\n", stream); return 0; }
int cuStreamSynchronize(void *stream) { say("synchronize stream %p\n", stream); return 0; }
int cuEventCreate(void **event, unsigned flags) { static uintptr_t n = 0x300; current("event"); *event = (void *)n++; say("event, flags %u\n", flags); return 0; }
int cuEventRecord(void *event, void *stream) { say("record %p in %p\n", event, stream); return 0; }
int cuEventSynchronize(void *event) { say("synchronize event %p\n", event); return 0; }
int cuEventElapsedTime(float *ms, void *start, void *end) { *ms = 1.5f; say("elapsed from %p to %p\n", start, end); return 0; }
int cuEventDestroy_v2(void *event) { say("destroy event %p\n", event); return 0; }
int cuMemAlloc_v2(uint64_t *address, size_t size) { current("alloc"); *address = (uint64_t)malloc(size); say("alloc %zu\n", size); return 0; }
int cuMemFree_v2(uint64_t address) { current("free"); free((void *)address); say("free\n"); return 0; }
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *stream) { memcpy((void *)to, from, size); say("write %zu in %p\n", size, stream); return 0; }
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, void *stream) { memcpy(to, (void *)from, size); say("read %zu in %p\n", size, stream); return 0; }
int cuMemsetD8Async(uint64_t to, unsigned char byte, size_t size, void *stream) { memset((void *)to, byte, size); say("fill %zu with %d in %p\n", size, byte, stream); return 0; }

int cuModuleLoadDataEx(void **module, const void *image, unsigned count, const int *options, void **values) {
    current("load");
    *module = (void *)0x400;
    say("load, %u options\n", count);
    if (count && (count != 2 || options[0] != 5 || options[1] != 6)) abort();
    if (!memcmp(image, count ? ".version" : "\177ELF", 4)) return 0;
    if (count) snprintf(values[0], (size_t)values[1], "ptxas fatal: no");
    return count ? 218 : 200;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = (void *)0x500;
    say("function %s of %p\n", name, module);
    return strcmp(name, "kernel") ? 500 : 0;
}
int cuModuleUnload(void *module) { current("unload"); say("unload %p%s\n", module, running ? " WHILE IT RUNS" : ""); return 0; }
int cuFuncSetAttribute(void *function, int attribute, int value) { current("attribute"); say("attribute %d of %p = %d\n", attribute, function, value); return 0; }
/* As an H100 counts them: a tensor map that comes first is not at 0. */
static const size_t params[][2] = {{48, 128}, {176, 8}, {184, 2}, {188, 4}};
int cuFuncGetParamInfo(void *function, size_t n, size_t *offset, size_t *size) {
    if (function != (void *)0x500 || n >= 4) return 1;
    *offset = params[n][0], *size = params[n][1];
    return 0;
}
int cuLaunchKernelEx(const Config *c, void *function, void **values, void **extra) {
    current("launch");
    say("launch %p in %p: grid %u %u %u, block %u %u %u, shared %u", function, c->stream, c->grid[0], c->grid[1], c->grid[2], c->block[0],
        c->block[1], c->block[2], c->shared);
    for (uint32_t n = 0; n < c->count; n++) {
        Attribute *a = &c->attributes[n];
        say(", attribute %u: %u %u %u", a->id, a->value.cluster.x, a->value.cluster.y, a->value.cluster.z);
    }
    for (int n = 0; n < 4; n++) {
        unsigned char *bytes = values[n];
        say("%s", n ? ", " : "\n  ");
        for (size_t b = 0; b < params[n][1] && b < 8; b++) say("%02x", bytes[b]);
    }
    say("%s%s\n", (uintptr_t)values[0] % 64 ? ", MAP NOT ALIGNED" : "", extra ? ", EXTRA" : "");
    running = 1;
    return asked("FAKE_CUDA_BROKEN") ? 700 : 0;
}
int cuTensorMapEncodeTiled(void *map, uint32_t type, uint32_t rank, void *address, const uint64_t *dims, const uint64_t *strides,
                           const uint32_t *box, const uint32_t *steps, uint32_t interleave, uint32_t swizzle, uint32_t l2, uint32_t fill) {
    say("map: type %u, address %p, interleave %u, swizzle %u, l2 %u, fill %u%s\n ", type, address, interleave, swizzle, l2, fill,
        (uintptr_t)map % 64 ? ", NOT ALIGNED" : "");
    for (uint32_t d = 0; d < rank; d++)
        say(" [%llu stride %llu box %u step %u]", (unsigned long long)dims[d], d ? (unsigned long long)strides[d - 1] : 0, box[d], steps[d]);
    say("\n");
    for (int n = 0; n < 128; n++) ((unsigned char *)map)[n] = n + 1;
    return dims[0] == 13;
}

int cuLinkCreate_v2(unsigned count, const int *options, void **values, void **state) {
    current("link");
    *state = (void *)0x600;
    linkers++;
    say("linker:");
    for (unsigned n = 0; n < count; n++) {
        if (options[n] == 5) errors = values[n], say(" log");
        else say(" %d=%zu", options[n], (size_t)values[n]);
    }
    say("\n");
    return 0;
}
static char *image;
int cuLinkAddData_v2(void *state, int type, const char *data, size_t size, const char *name, unsigned count, void *options, void **values) {
    (void)options, (void)values;
    say("add to %p: type %d, %zu bytes%s, %s, %u options\n", state, type, size, data[size - 1] ? " WITHOUT AN END" : "", name, count);
    if (strstr(data, "bad;")) return strcpy(errors, "ptxas application ptx input, line 2; error   : no bad\n"), 218;
    return strstr(data, "future;") ? 222 : strstr(data, "silent;") ? 218 : 0;
}
int cuLinkComplete(void *state, void **out, size_t *size) {
    static const unsigned char header[] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0x41};
    (void)state;
    *size = 64;
    *out = image = calloc(1, *size);
    memcpy(image, header, sizeof header);
    image[18] = (char)190, image[49] = 100;
    return 0;
}
int cuLinkDestroy(void *state) {
    say("destroy linker %p\n", state);
    linkers--;
    if (image) memset(image, 0xee, 64), free(image), image = 0;
    if (errors) strcat(errors, " "), errors = 0;
    return 0;
}
