// tileas: compile and launch GPU tile kernels.
//
// Everything that is made belongs to a context, and is known by a handle. Functions may be called from any number of threads at once
// with one context; only tileas_context_free() must be the last, and alone. Errors: a function that fails returns a handle of 0,
// NULL or TILEAS_FAILED and puts an error into the place that `error` points to (NULL: nobody wants to know); else it puts NULL there. A
// handle that was freed, is of another kind or of another context is an error, not undefined behaviour. What is undefined: pointers
// that do not point to what is said here, a context or an error that is used after it was freed, and memory of a GPU that is borrowed and
// is not what was said of it.
//
// Made by cbindgen of tileas-capi/src/ffi.rs; a test keeps the two equal.

#ifndef TILEAS_H
#define TILEAS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define TILEAS_VERSION "0.1.0"


// Success.
#define TILEAS_OK 0

// Failure: the error says why.
#define TILEAS_FAILED 1

// Dimensions of a tensor, at most.
#define TILEAS_MAX_RANK 8

// The argument is a tensor that the kernel reads.
#define TILEAS_READ 0

// The argument is a tensor that the kernel may write.
#define TILEAS_WRITE 1

// The argument is an integer.
#define TILEAS_INT 2

// The argument is a floating-point number.
#define TILEAS_FLOAT 3

// Everything that is made belongs to a context. Functions may be called from any number of threads at once with one context; only
// tileas_context_free() must be the last, and alone.
typedef struct tileas_context tileas_context;

// Why a function failed. It belongs to whoever gets it, and is freed by tileas_error_free().
typedef struct tileas_error tileas_error;

// One of the things that are wrong. Texts live as long as the error.
typedef struct tileas_error_entry {
  // Stable code, such as "E0203".
  const char *code;
  // What is wrong.
  const char *message;
  // File, as a front end named it; empty: the text of the module.
  const char *file;
  // Line from 1 on; 0: not known.
  uint32_t line;
  // Column from 1 on; 0: not known.
  uint32_t column;
} tileas_error_entry;

// Where kernels run: a GPU, or the emulator. Copies of the handle mean the same device.
typedef struct tileas_device {
  // The number of the handle; 0: there is none.
  uint64_t id;
} tileas_device;

// Makes kernels for a device.
typedef struct tileas_jit {
  // The number of the handle; 0: there is none.
  uint64_t id;
} tileas_jit;

// The text of kernels, read.
typedef struct tileas_module {
  // The number of the handle; 0: there is none.
  uint64_t id;
} tileas_module;

// A kernel, compiled and loaded.
typedef struct tileas_kernel {
  // The number of the handle; 0: there is none.
  uint64_t id;
} tileas_kernel;

// A text that was made.
typedef struct tileas_text {
  // The number of the handle; 0: there is none.
  uint64_t id;
} tileas_text;

// Memory of a device with an element type, extents and strides.
typedef struct tileas_tensor {
  // The number of the handle; 0: there is none.
  uint64_t id;
} tileas_tensor;

// An order of launches.
typedef struct tileas_stream {
  // The number of the handle; 0: there is none.
  uint64_t id;
} tileas_stream;

// An argument of a launch; tileas_read(), tileas_write(), tileas_int() and tileas_float() make them.
typedef struct tileas_arg {
  // TILEAS_READ, TILEAS_WRITE, TILEAS_INT or TILEAS_FLOAT.
  uint32_t kind;
  // A tensor.
  struct tileas_tensor tensor;
  // An integer.
  int64_t i;
  // A number.
  double f;
} tileas_arg;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library, such as "0.1.0".
const char *tileas_version(void);

// A new context; NULL where there is no memory for it.
struct tileas_context *tileas_context_new(void);

// Frees a context with everything in it: handles and texts of it mean nothing any more. Waits for launches that are under way. NULL is
// taken.
void tileas_context_free(struct tileas_context *context);

// The code of an error, such as "E1301". It lives as long as the error.
const char *tileas_error_code(const struct tileas_error *error);

// The whole text of an error. It lives as long as the error.
const char *tileas_error_message(const struct tileas_error *error);

// How many things are wrong: at least one.
size_t tileas_error_count(const struct tileas_error *error);

// One of the things that are wrong, by its number from 0 on. TILEAS_FAILED where there are not so many.
int tileas_error_at(const struct tileas_error *error, size_t n, struct tileas_error_entry *entry);

// Frees an error. NULL is taken.
void tileas_error_free(struct tileas_error *error);

// The emulator as a device: kernels run on the CPU, under detectors of races, deadlocks and accesses out of bounds. `target`: the processor that
// code is made for, such as "sm_100a"; NULL for that. `sms`: multiprocessors, for grids with as many CTAs; 0 for 4.
struct tileas_device tileas_device_emulator(struct tileas_context *context,
                                            const char *target,
                                            uint32_t sms,
                                            struct tileas_error **error);

// A GPU by its number.
struct tileas_device tileas_device_cuda(struct tileas_context *context,
                                        uint32_t ordinal,
                                        struct tileas_error **error);

// What a device is, in words. The text lives as long as the handle.
const char *tileas_device_name(struct tileas_context *context,
                               struct tileas_device device,
                               struct tileas_error **error);

// The processor that code is made for. The text lives as long as the handle.
const char *tileas_device_target(struct tileas_context *context,
                                 struct tileas_device device,
                                 struct tileas_error **error);

// A maker of kernels for a device. `options`: `count` texts NAME=VALUE (`tileas options` lists them). `cache`: a folder where kernels are kept, which
// processes may share, or NULL; `cache_bytes`: its size at most, 0 for 1 GiB.
struct tileas_jit tileas_jit_new(struct tileas_context *context,
                                 struct tileas_device device,
                                 const char *const *options,
                                 size_t count,
                                 const char *cache,
                                 uint64_t cache_bytes,
                                 struct tileas_error **error);

// How many kernels a maker has compiled, as no cache had them; 0 for a handle that means nothing.
uint64_t tileas_jit_compiled(struct tileas_context *context, struct tileas_jit jit);

// Reads the text of a module: `len` bytes of UTF-8.
struct tileas_module tileas_module_parse(struct tileas_context *context,
                                         struct tileas_jit jit,
                                         const char *source,
                                         size_t len,
                                         struct tileas_error **error);

// How many kernels a module has; 0 for a handle that means nothing.
size_t tileas_module_count(struct tileas_context *context, struct tileas_module module);

// The name of a kernel by its number from 0 on. The text lives as long as the module.
const char *tileas_module_kernel_name(struct tileas_context *context,
                                      struct tileas_module module,
                                      size_t n,
                                      struct tileas_error **error);

// A kernel of a module, by its name: from memory, from the cache, or compiled now.
struct tileas_kernel tileas_kernel_get(struct tileas_context *context,
                                       struct tileas_jit jit,
                                       struct tileas_module module,
                                       const char *name,
                                       struct tileas_error **error);

// The name of a kernel. The text lives as long as the kernel.
const char *tileas_kernel_name(struct tileas_context *context,
                               struct tileas_kernel kernel,
                               struct tileas_error **error);

// The PTX of a kernel. The text lives as long as the kernel.
const char *tileas_kernel_ptx(struct tileas_context *context,
                              struct tileas_kernel kernel,
                              struct tileas_error **error);

// The launch metadata of a kernel as JSON. The text lives as long as the kernel.
const char *tileas_kernel_metadata(struct tileas_context *context,
                                   struct tileas_kernel kernel,
                                   struct tileas_error **error);

// What made the machine code of a kernel; empty without machine code. The text lives as long as the kernel.
const char *tileas_kernel_assembler(struct tileas_context *context,
                                    struct tileas_kernel kernel,
                                    struct tileas_error **error);

// The compiler's warnings, a line each; empty without any. The text lives as long as the kernel.
const char *tileas_kernel_warnings(struct tileas_context *context,
                                   struct tileas_kernel kernel,
                                   struct tileas_error **error);

// The machine code of a kernel, an ELF image, and its size; NULL where there is none, as on the emulator. It lives as long as the kernel.
const void *tileas_kernel_machine_code(struct tileas_context *context,
                                       struct tileas_kernel kernel,
                                       size_t *bytes,
                                       struct tileas_error **error);

// How the loops of a kernel are scheduled, what limits them, and what would change that.
struct tileas_text tileas_explain(struct tileas_context *context,
                                  struct tileas_jit jit,
                                  struct tileas_module module,
                                  const char *name,
                                  struct tileas_error **error);

// The schedules of a kernel as a picture. `format`: "gantt", "svg", "html" or "chrome-trace".
struct tileas_text tileas_draw(struct tileas_context *context,
                               struct tileas_jit jit,
                               struct tileas_module module,
                               const char *name,
                               const char *format,
                               struct tileas_error **error);

// A text. It lives as long as its handle.
const char *tileas_text_get(struct tileas_context *context,
                            struct tileas_text made,
                            struct tileas_error **error);

// A tensor of zeros, rows without gaps. `elem`: "f16", "bf16", "f32", "i32", …; `extents`: `rank` of them, outermost first.
struct tileas_tensor tileas_tensor_zeros(struct tileas_context *context,
                                         struct tileas_device device,
                                         const char *elem,
                                         size_t rank,
                                         const int64_t *extents,
                                         struct tileas_error **error);

// A tensor in memory of a GPU that the caller has and keeps: the address of its first element, extents and strides in elements. It is the
// caller's word that the memory is there, as large as that, until the tensor is freed and all launches with it have ended.
struct tileas_tensor tileas_tensor_borrow(struct tileas_context *context,
                                          struct tileas_device device,
                                          uint64_t address,
                                          const char *elem,
                                          size_t rank,
                                          const int64_t *extents,
                                          const int64_t *strides,
                                          struct tileas_error **error);

// Another window into the memory of a tensor, `first` elements behind its first one. The memory lives as long as any tensor in it.
struct tileas_tensor tileas_tensor_window(struct tileas_context *context,
                                          struct tileas_tensor tensor,
                                          size_t first,
                                          size_t rank,
                                          const int64_t *extents,
                                          const int64_t *strides,
                                          struct tileas_error **error);

// Writes all elements of a tensor, in row-major order, after everything launched before. `bytes` is what they take.
int tileas_tensor_write(struct tileas_context *context,
                        struct tileas_tensor tensor,
                        const void *data,
                        size_t bytes,
                        struct tileas_error **error);

// Reads all elements of a tensor, in row-major order, after everything launched before. `bytes` is what they take.
int tileas_tensor_read(struct tileas_context *context,
                       struct tileas_tensor tensor,
                       void *data,
                       size_t bytes,
                       struct tileas_error **error);

// A new order of launches: each begins when the one before it has ended.
struct tileas_stream tileas_stream_new(struct tileas_context *context,
                                       struct tileas_device device,
                                       struct tileas_error **error);

// A CUstream that the caller has and keeps, of the device's primary context; NULL is the default one.
struct tileas_stream tileas_stream_borrow(struct tileas_context *context,
                                          struct tileas_device device,
                                          void *stream,
                                          struct tileas_error **error);

// Waits until all launches of a stream have ended.
int tileas_stream_synchronize(struct tileas_context *context,
                              struct tileas_stream stream,
                              struct tileas_error **error);

// Launches a kernel. `grid`: three numbers of CTAs, or NULL for those that the metadata suggest. `args`: `count` arguments in the order of
// the kernel's parameters.
int tileas_launch(struct tileas_context *context,
                  struct tileas_kernel kernel,
                  struct tileas_stream stream,
                  const uint32_t *grid,
                  const struct tileas_arg *args,
                  size_t count,
                  struct tileas_error **error);

// Frees a device: the handle means nothing any more. What was made of it keeps it. A handle of 0 is taken.
int tileas_device_free(struct tileas_context *context,
                       struct tileas_device handle,
                       struct tileas_error **error);

// Frees a jit: the handle means nothing any more. Its kernels stay. A handle of 0 is taken.
int tileas_jit_free(struct tileas_context *context, struct tileas_jit handle, struct tileas_error **error);

// Frees a module: the handle means nothing any more. A handle of 0 is taken.
int tileas_module_free(struct tileas_context *context,
                       struct tileas_module handle,
                       struct tileas_error **error);

// Frees a kernel: the handle means nothing any more. It is unloaded when no launch of it is under way any more. A handle of 0 is taken.
int tileas_kernel_free(struct tileas_context *context,
                       struct tileas_kernel handle,
                       struct tileas_error **error);

// Frees a tensor: the handle means nothing any more. The memory is freed with the last tensor in it, when no launch with it is under way any more. A handle of 0 is taken.
int tileas_tensor_free(struct tileas_context *context,
                       struct tileas_tensor handle,
                       struct tileas_error **error);

// Frees a stream: the handle means nothing any more. Waits for nothing. A handle of 0 is taken.
int tileas_stream_free(struct tileas_context *context,
                       struct tileas_stream handle,
                       struct tileas_error **error);

// Frees a text: the handle means nothing any more. A handle of 0 is taken.
int tileas_text_free(struct tileas_context *context, struct tileas_text handle, struct tileas_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TILEAS_H */

#ifndef TILEAS_NO_HELPERS
// A tensor that the kernel reads.
static inline struct tileas_arg tileas_read(struct tileas_tensor tensor) {
  struct tileas_arg arg = {TILEAS_READ, tensor, 0, 0.0};
  return arg;
}

// A tensor that the kernel may write.
static inline struct tileas_arg tileas_write(struct tileas_tensor tensor) {
  struct tileas_arg arg = {TILEAS_WRITE, tensor, 0, 0.0};
  return arg;
}

// An integer.
static inline struct tileas_arg tileas_int(int64_t i) {
  struct tileas_arg arg = {TILEAS_INT, {0}, i, 0.0};
  return arg;
}

// A floating-point number.
static inline struct tileas_arg tileas_float(double f) {
  struct tileas_arg arg = {TILEAS_FLOAT, {0}, 0, f};
  return arg;
}
#endif
