// Everything that can be done wrong with handles, numbers and texts. Prints a line for each: what, code.

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tileas.h"

static const char KERNEL[] =
    "kernel @twice(%x: view<gmem, ?xf32>, %y: view<gmem, ?xf32>, %s: f32) {\n"
    "  %p = program_id <{axis = 0}> : i32\n"
    "  %t = tiled_load %x[%p] : tile<128xf32>\n"
    "  %m = splat %s : tile<128xf32>\n"
    "  %r = mulf %t, %m : tile<128xf32>\n"
    "  tiled_store %r, %y[%p]\n"
    "  return\n"
    "}\n";

static tileas_context *c;
static tileas_error *error;

static void said(const char *what) {
  printf("%s: %s\n", what, error == NULL ? "no error" : tileas_error_code(error));
  tileas_error_free(error);
  error = NULL;
}

static tileas_kernel kernel;
static tileas_device device;

// Launches on tensors of its own.
static void *threads(void *right) {
  int64_t extent = 256;
  float data[256], got[256];
  for (int round = 0; round < 20; round++) {
    tileas_error *mine = NULL;
    tileas_stream stream = tileas_stream_new(c, device, &mine);
    tileas_tensor x = tileas_tensor_zeros(c, device, "f32", 1, &extent, &mine);
    tileas_tensor y = tileas_tensor_zeros(c, device, "f32", 1, &extent, &mine);
    for (int i = 0; i < 256; i++) data[i] = (float)(i + round);
    tileas_tensor_write(c, x, data, sizeof data, &mine);
    tileas_arg args[] = {tileas_read(x), tileas_write(y), tileas_float(2.0)};
    if (tileas_launch(c, kernel, stream, NULL, args, 3, &mine) != TILEAS_OK) return NULL;
    if (tileas_tensor_read(c, y, got, sizeof got, &mine) != TILEAS_OK) return NULL;
    for (int i = 0; i < 256; i++)
      if (got[i] != 2 * data[i]) return NULL;
    tileas_tensor_free(c, x, &mine);
    tileas_tensor_free(c, y, &mine);
    tileas_stream_free(c, stream, &mine);
  }
  return right;
}

int main(void) {
  int64_t extents[] = {256, 1 << 20, 1 << 20, 1 << 20}, strides[] = {1, 1, 1, 1}, negative = -1;
  float data[256] = {0};
  const char *bad_options[] = {"no-such-option=1", "max-regs=many"}, *no_option[] = {NULL};
  tileas_device_emulator(NULL, NULL, 0, &error), said("no context");
  tileas_context_free(NULL);
  tileas_error_free(NULL);
  c = tileas_context_new();
  tileas_context *other = tileas_context_new();
  device = tileas_device_emulator(c, NULL, 0, &error), said("a device");
  tileas_device_emulator(c, "sm_\xff", 0, &error), said("a target that is no text");
  tileas_device strange = tileas_device_emulator(c, "sm_12", 0, &error);
  tileas_jit stranger_jit = tileas_jit_new(c, strange, NULL, 0, NULL, 0, &error);
  tileas_device_cuda(c, 99, &error), said("a GPU that there is not");
  tileas_jit_new(c, device, bad_options, 1, NULL, 0, &error), said("an option that there is not");
  tileas_jit_new(c, device, bad_options + 1, 1, NULL, 0, &error), said("a value that an option has not");
  tileas_jit_new(c, device, no_option, 1, NULL, 0, &error), said("an option that is null");
  tileas_jit_new(c, device, NULL, 1, NULL, 0, &error), said("options that are null");
  tileas_jit_new(c, device, NULL, 0, "/dev/null", 0, &error), said("a cache in a file");
  tileas_jit jit = tileas_jit_new(c, device, NULL, 0, NULL, 0, &error);
  tileas_device_emulator(other, NULL, 0, &error);
  tileas_jit_new(other, device, NULL, 0, NULL, 0, &error), said("a device of another context");

  tileas_module_parse(c, jit, NULL, 5, &error), said("a text that is null");
  tileas_module_parse(c, jit, "\xc3(", 2, &error), said("a text that is not UTF-8");
  tileas_module_parse(c, jit, "kernel @k() {\n  %x = addi 1, 2.5 : i32\n  retrun\n}\n", 50, &error);
  for (size_t n = 0; n < tileas_error_count(error); n++) {
    tileas_error_entry entry;
    tileas_error_at(error, n, &entry);
    printf("  %s at %u:%u\n", entry.code, entry.line, entry.column);
  }
  printf("  one more: %d, no place: %d\n", tileas_error_at(error, 99, NULL), tileas_error_at(error, 0, NULL));
  said("a text with errors");
  tileas_module module = tileas_module_parse(c, jit, KERNEL, sizeof KERNEL - 1, &error);
  printf("%zu kernel: %s\n", tileas_module_count(c, module), tileas_module_kernel_name(c, module, 0, &error));
  tileas_module_kernel_name(c, module, 1, &error), said("a kernel too many");
  tileas_kernel_get(c, jit, module, "thrice", &error), said("a kernel that there is not");
  tileas_kernel_get(c, jit, module, NULL, &error), said("a name that is null");
  tileas_draw(c, jit, module, "twice", "png", &error), said("a format that there is not");
  tileas_jit wrong = {module.id};
  tileas_kernel_get(c, wrong, module, "twice", &error), said("a module as a jit");
  tileas_kernel_get(c, stranger_jit, module, "twice", &error), said("a processor that there is not");
  kernel = tileas_kernel_get(c, jit, module, "twice", &error), said("a kernel");
  size_t bytes = 1;
  printf("%d, %zu\n", tileas_kernel_machine_code(c, kernel, &bytes, &error) == NULL, bytes);
  printf("%d\n", strstr(tileas_kernel_ptx(c, kernel, &error), ".entry twice") != NULL);

  tileas_tensor_zeros(c, device, "f33", 1, extents, &error), said("a type that there is not");
  tileas_tensor_zeros(c, device, "f32", 9, extents, &error), said("too many dimensions");
  tileas_tensor_zeros(c, device, "f32", 1, NULL, &error), said("extents that are null");
  tileas_tensor_zeros(c, device, "f32", 1, &negative, &error), said("a negative extent");
  tileas_tensor_zeros(c, device, "f32", 4, extents, &error), said("too large a tensor");
  tileas_tensor_borrow(c, device, 64, "f32", 1, extents, strides, &error), said("an address, to the emulator");
  tileas_stream_borrow(c, device, NULL, &error), said("a stream of others, to the emulator");
  tileas_tensor x = tileas_tensor_zeros(c, device, "f32", 1, extents, &error);
  tileas_tensor y = tileas_tensor_zeros(c, device, "f32", 1, extents, &error);
  tileas_tensor_write(c, x, data, 4, &error), said("too few bytes");
  tileas_tensor_write(c, x, NULL, sizeof data, &error), said("data that are null");
  tileas_tensor_read(c, x, NULL, sizeof data, &error), said("a place that is null");
  tileas_tensor_window(c, x, 1, 1, extents, strides, &error), said("a window that sticks out");
  tileas_tensor half = tileas_tensor_zeros(c, device, "f16", 1, extents, &error);
  int64_t plane[] = {16, 16};
  tileas_tensor wide = tileas_tensor_zeros(c, device, "f32", 2, plane, &error);
  tileas_stream stream = tileas_stream_new(c, device, &error);
  tileas_arg args[] = {tileas_read(x), tileas_write(y), tileas_float(2.0)};
  tileas_launch(c, kernel, stream, NULL, args, 2, &error), said("an argument too few");
  tileas_launch(c, kernel, stream, NULL, NULL, 3, &error), said("arguments that are null");
  args[0] = tileas_read(half);
  tileas_launch(c, kernel, stream, NULL, args, 3, &error), said("a tensor of another type");
  args[0] = tileas_read(wide);
  tileas_launch(c, kernel, stream, NULL, args, 3, &error), said("a tensor of another rank");
  args[0] = tileas_int(7);
  tileas_launch(c, kernel, stream, NULL, args, 3, &error), said("a number for a tensor");
  args[0] = tileas_read(x), args[1] = tileas_read(y);
  tileas_launch(c, kernel, stream, NULL, args, 3, &error), said("a tensor that is written, for reading");
  args[1] = tileas_write(y), args[2].kind = 77;
  tileas_launch(c, kernel, stream, NULL, args, 3, &error), said("a kind that there is not");
  args[2] = tileas_float(2.0);
  uint32_t none[3] = {0, 1, 1};
  tileas_launch(c, kernel, stream, none, args, 3, &error), said("an empty grid");
  tileas_device second = tileas_device_emulator(c, NULL, 0, &error);
  tileas_stream foreign = tileas_stream_new(c, second, &error);
  tileas_launch(c, kernel, foreign, NULL, args, 3, &error), said("a stream of another device");
  tileas_launch(c, kernel, stream, NULL, args, 3, &error), said("a launch");

  tileas_tensor_free(c, x, &error), said("freed");
  tileas_tensor_free(c, x, &error), said("freed twice");
  tileas_launch(c, kernel, stream, NULL, args, 3, &error), said("a freed tensor");
  tileas_tensor none_at_all = {0}, made_up = {0x123456789abcdefu}, stranger = {kernel.id};
  tileas_tensor_free(c, none_at_all, &error), said("nothing, freed");
  tileas_tensor_read(c, none_at_all, data, sizeof data, &error), said("nothing, read");
  tileas_tensor_read(c, made_up, data, sizeof data, &error), said("a handle out of thin air");
  tileas_tensor_free(c, stranger, &error), said("a kernel, freed as a tensor");
  tileas_tensor_read(other, y, data, sizeof data, &error), said("a tensor of another context");
  tileas_module_free(c, module, &error), said("a module, freed");
  tileas_kernel_get(c, jit, module, "twice", &error), said("a freed module");

  pthread_t all[4];
  int right = 0;
  for (int n = 0; n < 4; n++) pthread_create(&all[n], NULL, threads, &right);
  for (int n = 0; n < 4; n++) {
    void *result;
    pthread_join(all[n], &result);
    right += result == &right;
  }
  printf("%d threads of 4 are right\n", right);
  tileas_context_free(other);
  tileas_context_free(c);
  return 0;
}
