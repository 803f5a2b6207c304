// max(A * B^T + bias, 0) in f16, on the emulator: compile, launch, compare.
//
// Usage: gemm examples/gemm_f16.tileas [--explain]

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tileas.h"

enum { M = 200, N = 264, K = 136 };

// Whole numbers up to 2048 as f16: sign, exponent, fraction.
static uint16_t half(int n) {
  uint16_t sign = n < 0 ? 0x8000 : 0;
  int size = abs(n), exponent = 25;
  if (size == 0) return sign;
  for (; size < 1024; size *= 2) exponent--;
  return (uint16_t)(sign | exponent << 10 | (size & 1023));
}

static int number(int i, int seed) { return (i * 7 + seed + i / 11) % 5 - 2; }

static void check(const tileas_error *error) {
  if (error == NULL) return;
  fprintf(stderr, "%s: %s\n", tileas_error_code(error), tileas_error_message(error));
  exit(1);
}

static tileas_context *c;
static tileas_error *error;

static tileas_tensor tensor(tileas_device device, int rows, int columns, int seed) {
  int64_t extents[2] = {rows, columns};
  tileas_tensor made = tileas_tensor_zeros(c, device, "f16", rows > 1 ? 2 : 1, extents + (rows == 1), &error);
  check(error);
  uint16_t *data = malloc((size_t)(rows * columns) * 2);
  for (int i = 0; i < rows * columns; i++) data[i] = half(number(i, seed));
  tileas_tensor_write(c, made, data, (size_t)(rows * columns) * 2, &error);
  check(error);
  free(data);
  return made;
}

static uint16_t got[M * N];

int main(int argc, char **argv) {
  static char source[10000];
  FILE *file = argc > 1 ? fopen(argv[1], "r") : NULL;
  if (file == NULL) return fprintf(stderr, "usage: gemm FILE.tileas [--explain]\n"), 2;
  size_t length = fread(source, 1, sizeof source, file);
  fclose(file);

  c = tileas_context_new();
  tileas_device device = tileas_device_emulator(c, NULL, 0, &error); // or tileas_device_cuda(c, 0, &error)
  check(error);
  tileas_jit jit = tileas_jit_new(c, device, NULL, 0, NULL, 0, &error);
  check(error);
  tileas_module module = tileas_module_parse(c, jit, source, length, &error);
  check(error);
  tileas_kernel kernel = tileas_kernel_get(c, jit, module, "gemm_bias_relu", &error);
  check(error);
  tileas_stream stream = tileas_stream_new(c, device, &error);
  check(error);
  tileas_tensor a = tensor(device, M, K, 1), b = tensor(device, N, K, 2), bias = tensor(device, 1, N, 3);
  tileas_tensor result = tensor(device, M, N, 0);
  tileas_arg args[] = {tileas_read(a), tileas_read(b), tileas_read(bias), tileas_write(result), tileas_int((K + 63) / 64)};
  tileas_launch(c, kernel, stream, NULL, args, 5, &error);
  check(error);
  tileas_tensor_read(c, result, got, sizeof got, &error); // waits for the launch
  check(error);

  for (int i = 0; i < M * N; i++) {
    int want = number(i % N, 3);
    for (int k = 0; k < K; k++) want += number(i / N * K + k, 1) * number(i % N * K + k, 2);
    if (got[i] != half(want > 0 ? want : 0)) return fprintf(stderr, "element %d is wrong\n", i), 1;
  }
  printf("%d x %d elements are right, on the %s\n", M, N, tileas_device_name(c, device, &error));
  if (argc > 2 && strcmp(argv[2], "--explain") == 0) {
    tileas_text why = tileas_explain(c, jit, module, "gemm_bias_relu", &error);
    check(error);
    puts(tileas_text_get(c, why, &error));
  }
  tileas_context_free(c); // with everything in it
  return 0;
}
